// fetch, with whole bodies: the host does the request and gives its answer in one piece.

import { AbortError, type Signal } from './abort';
import { base64Decode, base64Encode, bytesOf, utf8Decode, utf8Encode } from './bytes';
import { URL, URLSearchParams } from './url';

const token = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;

/** The fields of a request or a response. Names count without regard to case. */
export class Headers {
  #fields = new Map<string, string[]>();
  constructor(init?: any) {
    const pairs = init === undefined || init === null ? [] : typeof init[Symbol.iterator] === 'function' ? [...init] : Object.entries(init);
    for (const [name, value] of pairs as [string, unknown][]) this.append(name, value);
  }
  append(name: string, value: unknown): void {
    const key = fieldName(name);
    this.#fields.set(key, [...(this.#fields.get(key) ?? []), fieldValue(value)]);
  }
  set(name: string, value: unknown): void { this.#fields.set(fieldName(name), [fieldValue(value)]); }
  get(name: string): string | null { return this.#fields.get(fieldName(name))?.join(', ') ?? null; }
  has(name: string): boolean { return this.#fields.has(fieldName(name)); }
  delete(name: string): void { this.#fields.delete(fieldName(name)); }
  getSetCookie(): string[] { return [...(this.#fields.get('set-cookie') ?? [])]; }
  forEach(fn: (value: string, name: string, headers: Headers) => void): void { for (const [name, value] of this) fn(value, name, this); }
  *entries(): IterableIterator<[string, string]> {
    for (const name of [...this.#fields.keys()].sort()) {
      if (name === 'set-cookie') for (const value of this.#fields.get(name)!) yield [name, value];
      else yield [name, this.#fields.get(name)!.join(', ')];
    }
  }
  *keys(): IterableIterator<string> { for (const [name] of this) yield name; }
  *values(): IterableIterator<string> { for (const [, value] of this) yield value; }
  [Symbol.iterator](): IterableIterator<[string, string]> { return this.entries(); }
}

function fieldName(name: unknown): string {
  if (!token.test(String(name))) throw new TypeError(`Headers: "${name}" is an invalid header name.`);
  return String(name).toLowerCase();
}

function fieldValue(value: unknown): string {
  const text = String(value).replace(/^[\t\n\r ]+|[\t\n\r ]+$/g, '');
  if (/[\0\r\n]/.test(text)) throw new TypeError(`Headers: "${text}" is an invalid header value.`);
  return text;
}

// A body as bytes, and the type that it has by itself.
function bodyOf(body: any): { bytes?: Uint8Array; type?: string } {
  if (body === undefined || body === null) return {};
  if (body instanceof URLSearchParams) return { bytes: utf8Encode(body.toString()), type: 'application/x-www-form-urlencoded;charset=UTF-8' };
  const bytes = bytesOf(body);
  return bytes ? { bytes: bytes.slice() } : { bytes: utf8Encode(String(body)), type: 'text/plain;charset=UTF-8' };
}

/** What requests and responses have in common: a body that is read once. */
class Body {
  readonly headers: Headers;
  bodyUsed = false;
  /** Bodies are no streams here. */
  readonly body = null;
  protected bytesOfBody?: Uint8Array;
  constructor(body: any, headers: any) {
    this.headers = new Headers(headers);
    const { bytes, type } = bodyOf(body);
    this.bytesOfBody = bytes;
    if (type && !this.headers.has('content-type')) this.headers.set('content-type', type);
  }
  async bytes(): Promise<Uint8Array> {
    if (this.bodyUsed) throw new TypeError('Body is unusable: Body has already been read');
    this.bodyUsed = this.bytesOfBody !== undefined;
    return this.bytesOfBody ?? new Uint8Array(0);
  }
  async text(): Promise<string> {
    const { text, open } = utf8Decode(await this.bytes());
    return (open ? `${text}\ufffd` : text).replace(/^\ufeff/, '');
  }
  async json(): Promise<any> { return JSON.parse(await this.text()); }
  async arrayBuffer(): Promise<ArrayBuffer> { return (await this.bytes()).slice().buffer as ArrayBuffer; }
}

/** What is asked of a server. */
export class Request extends Body {
  readonly url: string;
  readonly method: string;
  readonly redirect: string;
  readonly signal: Signal | null;
  constructor(input: any, init: any = {}) {
    const from = input instanceof Request ? input : undefined;
    super(init.body ?? from?.bytesOfBody, init.headers ?? from?.headers);
    const method = String(init.method ?? from?.method ?? 'GET');
    this.method = /^(get|head|post|put|delete|options)$/i.test(method) ? method.toUpperCase() : method;
    this.url = from ? from.url : new URL(String(input)).href;
    this.redirect = init.redirect ?? from?.redirect ?? 'follow';
    this.signal = init.signal ?? from?.signal ?? null;
    if (!token.test(this.method)) throw new TypeError(`'${method}' is not a valid HTTP method.`);
    if (this.bytesOfBody && (this.method === 'GET' || this.method === 'HEAD')) throw new TypeError('Request with GET/HEAD method cannot have body.');
  }
  clone(): Request { return new Request(this); }
}

/** A server's answer. */
export class Response extends Body {
  readonly status: number;
  readonly statusText: string;
  readonly url: string = '';
  readonly redirected: boolean = false;
  readonly type: string = 'default';
  constructor(body?: any, init: any = {}) {
    super(body, init.headers);
    this.status = init.status ?? 200;
    this.statusText = init.statusText ?? '';
    if (!(this.status >= 200 && this.status <= 599)) throw new RangeError(`init["status"] must be in the range of 200 to 599, inclusive.`);
  }
  get ok(): boolean { return this.status >= 200 && this.status < 300; }
  clone(): Response {
    if (this.bodyUsed) throw new TypeError('Response.clone: Body has already been consumed.');
    const { url, redirected, type } = this;
    return Object.assign(new Response(this.bytesOfBody, this), { url, redirected, type });
  }
  static json(data: unknown, init: any = {}): Response {
    const headers = new Headers(init.headers);
    if (!headers.has('content-type')) headers.set('content-type', 'application/json');
    return new Response(JSON.stringify(data), { ...init, headers });
  }
  static redirect(url: string, status = 302): Response { return new Response(null, { status, headers: { location: new URL(url).href } }); }
}

let requests = 0;

/** Asks a server. */
export async function fetch(input: any, init?: any): Promise<Response> {
  const request = new Request(input, init);
  const host = (globalThis as any).__kiciHost;
  if (!host?.call) throw new TypeError('fetch failed: nothing can be fetched while a workflow is compiled; do it in a step');
  const { signal } = request;
  if (signal?.aborted) throw signal.reason;
  const id = `fetch-${++requests}`;
  const sent = (request as any).bytesOfBody as Uint8Array | undefined;
  const answer: Promise<any> = host.call('fetch', {
    id, url: request.url, method: request.method, headers: [...request.headers], redirect: request.redirect, ...(sent && { body: base64Encode(sent) }),
  });
  let stop = () => {};
  const aborted = new Promise<never>((_, reject) => {
    stop = () => {
      void host.call('wake', { id });
      reject(signal!.reason ?? new AbortError());
    };
  });
  signal?.addEventListener('abort', stop);
  try {
    return respond(request, await Promise.race([answer.catch(failed), aborted]));
  } finally {
    signal?.removeEventListener('abort', stop);
  }
}

function failed(cause: any): never {
  throw Object.assign(new TypeError(`fetch failed: ${cause.message}`), { cause });
}

function respond(request: Request, got: any): Response {
  const none = [204, 205, 304].includes(got.status) || request.method === 'HEAD';
  const made = new Response(none ? null : base64Decode(got.body ?? ''), { status: got.status, statusText: got.statusText, headers: got.headers });
  return Object.assign(made, { url: got.url, redirected: got.redirected, type: 'basic' });
}
