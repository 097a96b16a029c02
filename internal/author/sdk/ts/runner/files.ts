// `ctx.files`: the files of the repository, on either host. Paths begin at the step's folder.

import { base64Decode, base64Encode, bytesOf, utf8Decode } from '../web/bytes';
import { shown } from '@kici-dev/sdk/runtime';
import { host } from './host';
import { asBuffer } from './shell';

/** Makes `files` for a folder. */
export function filesApi(root: string): any {
  const ask = (fn: string, path: unknown, more: object = {}): Promise<any> => {
    if (typeof path !== 'string' || path === '') throw new TypeError(`files.${fn} needs a path, not ${JSON.stringify(path) ?? typeof path}`);
    return host.call('files', { fn, root, path, ...more });
  };
  const bytes = async (path: string): Promise<Uint8Array> => base64Decode((await ask('read', path)) ?? '')!;
  const text = async (path: string): Promise<string> => utf8Decode(await bytes(path)).text;
  return {
    read: text,
    readBytes: async (path: string) => asBuffer(await bytes(path)),
    readJson: async (path: string) => {
      try {
        return JSON.parse(await text(path));
      } catch (e: any) {
        throw e instanceof SyntaxError ? new SyntaxError(`${path}: ${e.message}`) : e;
      }
    },
    write: async (path: string, data: unknown, { mode }: { mode?: number } = {}) => {
      if (mode !== undefined && !(Number.isInteger(mode) && mode >= 0 && mode <= 0o777)) throw new TypeError(`files.write: mode must be a number such as 0o755, not ${shown(mode)}`);
      await ask('write', path, { ...dataOf(data), ...(mode !== undefined && { mode }) });
    },
    append: async (path: string, data: unknown) => void (await ask('append', path, dataOf(data))),
    exists: (path: string) => ask('exists', path),
    list: (glob: string) => ask('list', glob),
    remove: async (path: string) => void (await ask('remove', path)),
  };
}

// What is written: text and bytes as they are, other values as JSON.
function dataOf(data: unknown): object {
  if (typeof data === 'string') return { text: data };
  const raw = bytesOf(data);
  if (raw) return { bytes: base64Encode(raw) };
  const json = JSON.stringify(data, undefined, 2);
  if (json === undefined) throw new TypeError(`a file cannot hold ${typeof data}`);
  return { text: `${json}\n` };
}
