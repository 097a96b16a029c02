// URLSearchParams: the pairs of a query.

import { utf8Decode, utf8Encode } from './bytes';

/** Turns `%41` into bytes and those into text. */
export function percentDecode(text: string): string {
  if (!text.includes('%')) return text;
  const bytes = utf8Encode(text);
  const out: number[] = [];
  for (let i = 0; i < bytes.length; i++) {
    const hex = bytes[i] === 37 ? /^[0-9A-Fa-f]{2}$/.exec(String.fromCharCode(bytes[i + 1] ?? 0, bytes[i + 2] ?? 0)) : null;
    out.push(hex ? parseInt(hex[0], 16) : bytes[i]);
    if (hex) i += 2;
  }
  const { text: decoded, open } = utf8Decode(new Uint8Array(out));
  return open ? `${decoded}\ufffd` : decoded;
}

/** Turns characters that are in the set, or beyond ASCII, into `%41`. */
export function percentEncode(text: string, set: RegExp): string {
  return text.replace(set, (c) => Array.from(utf8Encode(c), (b) => `%${b.toString(16).toUpperCase().padStart(2, '0')}`).join(''));
}

const serialized = (text: string) => percentEncode(text, /[^A-Za-z0-9*\-._ ]/gu).replaceAll(' ', '+');

/** The pairs of a query. Those of a URL change it. */
export class URLSearchParams {
  #pairs: [string, string][] = [];
  #changed: () => void;

  constructor(init: any = '', changed: () => void = () => {}) {
    this.#changed = changed;
    if (init !== null && typeof init === 'object') {
      const pairs = typeof init[Symbol.iterator] === 'function' ? [...init] : Object.entries(init);
      for (const pair of pairs) {
        const [name, value, ...more] = pair;
        if (value === undefined || more.length) throw new TypeError('Each query pair must be an iterable [name, value] tuple');
        this.#pairs.push([String(name), String(value)]);
      }
    } else this.read(String(init));
  }

  /** For URL; not for authors. */
  read(query: string): void {
    const text = query.startsWith('?') ? query.slice(1) : query;
    this.#pairs = text.split('&').filter((part) => part !== '').map((part) => {
      const at = part.indexOf('=');
      const [name, value] = at < 0 ? [part, ''] : [part.slice(0, at), part.slice(at + 1)];
      const plain = (s: string) => percentDecode(s.replaceAll('+', ' '));
      return [plain(name), plain(value)];
    });
  }

  get size(): number { return this.#pairs.length; }
  get(name: string): string | null { return this.#pairs.find(([n]) => n === String(name))?.[1] ?? null; }
  getAll(name: string): string[] { return this.#pairs.flatMap(([n, v]) => (n === String(name) ? [v] : [])); }
  has(name: string, value?: string): boolean { return this.#pairs.some(([n, v]) => n === String(name) && (value === undefined || v === String(value))); }
  append(name: string, value: string): void {
    this.#pairs.push([String(name), String(value)]);
    this.#changed();
  }
  set(name: string, value: string): void {
    const first = this.#pairs.findIndex(([n]) => n === String(name));
    if (first < 0) return this.append(name, value);
    this.#pairs = this.#pairs.filter(([n], i) => n !== String(name) || i === first);
    this.#pairs[first] = [String(name), String(value)];
    this.#changed();
  }
  delete(name: string, value?: string): void {
    this.#pairs = this.#pairs.filter(([n, v]) => n !== String(name) || (value !== undefined && v !== String(value)));
    this.#changed();
  }
  sort(): void {
    this.#pairs.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));
    this.#changed();
  }
  forEach(fn: (value: string, name: string, params: URLSearchParams) => void): void { for (const [name, value] of this) fn(value, name, this); }
  *entries(): IterableIterator<[string, string]> { for (const [name, value] of this.#pairs) yield [name, value]; }
  *keys(): IterableIterator<string> { for (const [name] of this.#pairs) yield name; }
  *values(): IterableIterator<string> { for (const [, value] of this.#pairs) yield value; }
  [Symbol.iterator](): IterableIterator<[string, string]> { return this.entries(); }
  toString(): string { return this.#pairs.map(([n, v]) => `${serialized(n)}=${serialized(v)}`).join('&'); }
}
