// URL, as the standard of the same name (url.spec.whatwg.org) reads and writes it.

import { readHost } from './host-name';
import { URLSearchParams, percentEncode } from './params';

export { URLSearchParams } from './params';

/** The default ports of the schemes with which the standard deals in a special way. */
const ports: Record<string, string> = { 'http:': '80', 'https:': '443', 'ws:': '80', 'wss:': '443', 'ftp:': '21', 'file:': '' };

const inFragment = /[^\x21\x23-\x3b\x3d\x3f-\x5f\x61-\x7e]/gu;
const inQuery = /[^\x21\x24-\x3b\x3d\x3f-\x7e]/gu;
const inSpecialQuery = /[^\x21\x24-\x26\x28-\x3b\x3d\x3f-\x7e]/gu;
const inPath = /[^\x21\x24-\x3b\x3d\x40-\x5d\x5f\x61-\x7a\x7c\x7e]/gu;
const inUser = /[^\x21\x24-\x2e\x30-\x39\x41-\x5a\x5f\x61-\x7a\x7e]/gu;
const inOpaque = /[^\x20-\x7e]/gu;

interface Parts {
  protocol: string; // with its colon
  username: string;
  password: string;
  host?: string; // undefined where there is none at all
  port: string;
  path: string[] | string; // a text where it is opaque
  query?: string;
  fragment?: string;
}

const isSpecial = (p: { protocol: string }) => Object.hasOwn(ports, p.protocol);

function parse(given: string, base?: Parts): Parts | undefined {
  let rest = given.replace(/^[\0-\x20]+|[\0-\x20]+$/g, '').replace(/[\t\n\r]/g, '');
  const hash = rest.indexOf('#');
  const fragment = hash < 0 ? undefined : percentEncode(rest.slice(hash + 1), inFragment);
  if (hash >= 0) rest = rest.slice(0, hash);
  const scheme = /^[a-z][a-z0-9+.-]*:/i.exec(rest);
  const protocol = scheme?.[0].toLowerCase();
  let made: Parts | undefined;
  if (protocol === undefined) made = base && relative(rest, base, fragment);
  else {
    rest = rest.slice(protocol.length);
    const same = base && base.protocol === protocol && isSpecial(base) && !/^[/\\]{2}/.test(rest);
    made = same && (protocol === 'file:' || !/^[/\\]/.test(rest)) ? relative(rest, base, fragment) : absolute(protocol, rest);
  }
  return made && { ...made, fragment };
}

function empty(protocol: string): Parts {
  return { protocol, username: '', password: '', port: '', path: [] };
}

function absolute(protocol: string, rest: string): Parts | undefined {
  const made = empty(protocol);
  if (protocol === 'file:') {
    const file = /^[/\\]{2}([^/\\?]*)(.*)$/s.exec(rest);
    if (file && !/^[a-z][:|]$/i.test(file[1])) return withHost({ ...made }, file[1], file[2]);
    return withPath({ ...made, host: '' }, file ? rest.slice(2) : rest, []);
  }
  if (isSpecial(made)) return withAuthority(made, rest.replace(/^[/\\]*/, ''));
  if (rest.startsWith('//')) return withAuthority(made, rest.slice(2));
  if (rest.startsWith('/')) return withPath(made, rest, []);
  const at = rest.indexOf('?');
  const path = percentEncode(at < 0 ? rest : rest.slice(0, at), inOpaque);
  return { ...made, path, ...(at >= 0 && { query: percentEncode(rest.slice(at + 1), inQuery) }) };
}

function relative(rest: string, base: Parts, fragment: string | undefined): Parts | undefined {
  if (typeof base.path === 'string') return rest === '' && fragment !== undefined ? { ...base } : undefined;
  const slash = isSpecial(base) ? /^[/\\]/ : /^\//;
  if (slash.test(rest) && slash.test(rest.slice(1))) {
    return base.protocol === 'file:' ? absolute('file:', rest) : withAuthority(empty(base.protocol), rest.slice(2));
  }
  const { query: _, ...bare } = base;
  if (slash.test(rest)) return withPath({ ...bare }, rest, []);
  if (rest === '') return { ...base };
  return withPath({ ...bare }, rest, rest.startsWith('?') ? undefined : base.path.slice(0, -1));
}

function withAuthority(made: Parts, rest: string): Parts | undefined {
  const end = rest.search(isSpecial(made) ? /[/\\?]/ : /[/?]/);
  const authority = end < 0 ? rest : rest.slice(0, end);
  const at = authority.lastIndexOf('@');
  if (at >= 0) {
    const [user, ...password] = authority.slice(0, at).split(':');
    made.username = percentEncode(user, inUser);
    made.password = percentEncode(password.join(':'), inUser);
  }
  const named = /^(\[[^\]]*\]|[^:]*)(?::(.*))?$/s.exec(authority.slice(at + 1));
  if (!named || (at >= 0 && named[1] === '')) return undefined;
  const port = readPort(named[2] ?? '', made.protocol);
  if (port === undefined || (named[1] === '' && (isSpecial(made) || named[2]))) return undefined;
  made.port = port;
  return withHost(made, named[1], end < 0 ? '' : rest.slice(end));
}

function readPort(text: string, protocol: string): string | undefined {
  if (!/^\d*$/.test(text) || Number(text) > 65535) return undefined;
  const port = text && String(Number(text));
  return port === ports[protocol] ? '' : port;
}

function withHost(made: Parts, name: string, rest: string): Parts | undefined {
  made.host = name === '' ? '' : readHost(name, isSpecial(made));
  if (made.host === undefined) return undefined;
  if (made.protocol === 'file:' && made.host === 'localhost') made.host = '';
  return withPath(made, rest, []);
}

// withPath reads the path and the query; before is what the path goes on from, undefined for one that stays.
function withPath(made: Parts, rest: string, before: string[] | undefined): Parts {
  const at = rest.indexOf('?');
  if (at >= 0) made.query = percentEncode(rest.slice(at + 1), isSpecial(made) ? inSpecialQuery : inQuery);
  if (before) made.path = segments(made, at < 0 ? rest : rest.slice(0, at), before);
  return made;
}

function segments(made: Parts, text: string, before: string[]): string[] {
  const special = isSpecial(made);
  if (text === '' && !special && before.length === 0) return [];
  const list = text.replace(special ? /^[/\\]/ : /^\//, '').split(special ? /[/\\]/ : '/');
  const path = [...before];
  list.forEach((segment, i) => {
    const dots = segment.replace(/%2e/gi, '.');
    const last = i === list.length - 1;
    if (dots === '..') path.pop();
    if (dots === '.' || dots === '..') {
      if (last) path.push('');
    } else path.push(percentEncode(segment, inPath));
  });
  return path;
}

function pathname(p: Parts): string {
  return typeof p.path === 'string' ? p.path : p.path.map((s) => `/${s}`).join('');
}

function serialize(p: Parts): string {
  const user = p.username || p.password ? `${p.username}${p.password && `:${p.password}`}@` : '';
  const host = p.host === undefined ? '' : `//${user}${p.host}${p.port && `:${p.port}`}`;
  // A path that begins with two slashes would read as a host.
  const mark = p.host === undefined && typeof p.path !== 'string' && p.path.length > 1 && p.path[0] === '' ? '/.' : '';
  return `${p.protocol}${host}${mark}${pathname(p)}${p.query === undefined ? '' : `?${p.query}`}${p.fragment === undefined ? '' : `#${p.fragment}`}`;
}

/** An address. */
export class URL {
  #parts: Parts;
  readonly searchParams: URLSearchParams;

  constructor(url: unknown, base?: unknown) {
    const from = base === undefined ? undefined : parse(String(base));
    const parts = base !== undefined && !from ? undefined : parse(String(url), from);
    if (!parts) throw Object.assign(new TypeError('Invalid URL'), { code: 'ERR_INVALID_URL', input: String(url) });
    this.#parts = parts;
    this.searchParams = new URLSearchParams(parts.query ?? '', () => {
      const query = this.searchParams.toString();
      this.#parts.query = query === '' ? undefined : query;
    });
  }

  static canParse(url: unknown, base?: unknown): boolean { return URL.parse(url, base) !== null; }
  static parse(url: unknown, base?: unknown): URL | null {
    try {
      return new URL(url, base);
    } catch {
      return null;
    }
  }

  get href(): string { return serialize(this.#parts); }
  set href(url: string) { this.#parts = new URL(url).#parts; this.searchParams.read(this.#parts.query ?? ''); }
  get origin(): string {
    if (this.protocol === 'blob:') return URL.parse(this.pathname)?.origin ?? 'null';
    return isSpecial(this.#parts) && this.protocol !== 'file:' ? `${this.protocol}//${this.host}` : 'null';
  }
  get protocol(): string { return this.#parts.protocol; }
  set protocol(value: string) {
    const protocol = /^[a-z][a-z0-9+.-]*/i.exec(value)?.[0].toLowerCase();
    if (!protocol || isSpecial(this.#parts) !== Object.hasOwn(ports, `${protocol}:`) || (this.protocol === 'file:' && !this.#parts.host)) return;
    this.#parts.protocol = `${protocol}:`;
    this.port = this.#parts.port;
  }
  get username(): string { return this.#parts.username; }
  set username(value: string) { if (this.#parts.host) this.#parts.username = percentEncode(String(value), inUser); }
  get password(): string { return this.#parts.password; }
  set password(value: string) { if (this.#parts.host) this.#parts.password = percentEncode(String(value), inUser); }
  get host(): string { return `${this.hostname}${this.port && `:${this.port}`}`; }
  set host(value: string) {
    const [, name, port] = /^(\[[^\]]*\]|[^:/\\?#]*)(?::(\d*))?/.exec(String(value))!;
    this.hostname = name;
    if (port) this.port = port;
  }
  get hostname(): string { return this.#parts.host ?? ''; }
  set hostname(value: string) {
    const host = typeof this.#parts.path === 'string' || value === '' ? undefined : readHost(String(value), isSpecial(this.#parts));
    if (host !== undefined) this.#parts.host = host;
  }
  get port(): string { return this.#parts.port; }
  set port(value: string) {
    const port = readPort(/^\d*/.exec(String(value))![0], this.#parts.protocol);
    if (port !== undefined && this.#parts.host && this.protocol !== 'file:') this.#parts.port = port;
  }
  get pathname(): string { return pathname(this.#parts); }
  set pathname(value: string) {
    if (typeof this.#parts.path === 'string') return;
    this.#parts.path = segments(this.#parts, String(value).replaceAll('?', '%3F').replaceAll('#', '%23'), []);
  }
  get search(): string { return this.#parts.query ? `?${this.#parts.query}` : ''; }
  set search(value: string) {
    const text = String(value).replace(/^\?/, '');
    this.#parts.query = text === '' ? undefined : percentEncode(text, isSpecial(this.#parts) ? inSpecialQuery : inQuery).replaceAll('#', '%23');
    this.searchParams.read(this.#parts.query ?? '');
  }
  get hash(): string { return this.#parts.fragment ? `#${this.#parts.fragment}` : ''; }
  set hash(value: string) {
    const text = String(value).replace(/^#/, '');
    this.#parts.fragment = text === '' ? undefined : percentEncode(text, inFragment);
  }
  toString(): string { return this.href; }
  toJSON(): string { return this.href; }
}
