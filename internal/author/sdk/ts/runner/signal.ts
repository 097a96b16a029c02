// Controllers that are aborted with their parents. On every host they are those of the platform, see web/install.

import type { Signal } from '../web/abort';
import { host } from './host';

export { AbortError, type Signal } from '../web/abort';

export interface Controller {
  readonly signal: Signal;
  abort(reason?: any): void;
}

/** Makes a controller; it is aborted with its parent. */
export function controller(parent?: Signal): Controller {
  const made: Controller = new (globalThis as any).AbortController();
  host.manyListeners?.(made.signal);
  if (parent?.aborted) made.abort(parent.reason);
  else parent?.addEventListener('abort', () => made.abort(parent.reason), { once: true });
  return made;
}
