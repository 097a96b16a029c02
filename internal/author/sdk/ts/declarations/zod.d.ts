// `zod` without an installation: the schema builder of the SDK. Written by `kici init`.
// Delete this file when you install zod 4; workflows then use that.

declare module 'zod' {
  export { z, z as default, ZodError, type ZodType } from '@kici-dev/sdk';
}
