// What every host of a workflow offers of the web's interfaces. Where the platform has them they are left alone.

import { AbortController, AbortSignal, Event, EventTarget } from './abort';
import { Blob, File } from './blob';
import { structuredClone } from './clone';
import { crypto } from './crypto';
import { Headers, Request, Response, fetch } from './fetch';
import { TextDecoder, TextEncoder, atob, btoa } from './text';
import { URL, URLSearchParams } from './url';

const begun = Date.now();

const offered = {
  AbortController, AbortSignal, Event, EventTarget, Blob, File, structuredClone, crypto, Headers, Request, Response, fetch, TextDecoder,
  TextEncoder, atob, btoa, URL, URLSearchParams,
  queueMicrotask: (fn: () => void) => void Promise.resolve().then(fn),
  performance: { timeOrigin: begun, now: () => Date.now() - begun },
};

for (const [name, value] of Object.entries(offered)) {
  if (typeof (globalThis as any)[name] === 'undefined') Object.defineProperty(globalThis, name, { value, writable: true, configurable: true });
}
