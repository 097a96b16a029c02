// TextEncoder, TextDecoder, atob and btoa.

import { base64Decode, base64Encode, bytesOf, utf8Decode, utf8Encode } from './bytes';

/** Text to UTF-8. */
export class TextEncoder {
  readonly encoding = 'utf-8';
  encode(text: unknown = ''): Uint8Array { return utf8Encode(String(text)); }
  encodeInto(text: string, into: Uint8Array): { read: number; written: number } {
    let read = 0, written = 0;
    for (const c of text) {
      const bytes = utf8Encode(c);
      if (written + bytes.length > into.length) break;
      into.set(bytes, written);
      written += bytes.length;
      read += c.length;
    }
    return { read, written };
  }
}

const labels: Record<string, string> = {
  'utf-8': 'utf-8', utf8: 'utf-8', 'unicode-1-1-utf-8': 'utf-8', latin1: 'windows-1252', ascii: 'windows-1252', 'us-ascii': 'windows-1252',
  'iso-8859-1': 'windows-1252', 'utf-16le': 'utf-16le', 'utf-16': 'utf-16le',
};

/** UTF-8, UTF-16 or Latin-1 to text. */
export class TextDecoder {
  readonly encoding: string;
  readonly fatal: boolean;
  readonly ignoreBOM: boolean;
  #rest = new Uint8Array(0);
  #begun = false;
  constructor(label = 'utf-8', options: { fatal?: boolean; ignoreBOM?: boolean } = {}) {
    const encoding = labels[String(label).trim().toLowerCase()];
    if (!encoding) throw new RangeError(`The "${label}" encoding is not supported`);
    this.encoding = encoding;
    this.fatal = options.fatal === true;
    this.ignoreBOM = options.ignoreBOM === true;
  }
  decode(input?: unknown, options: { stream?: boolean } = {}): string {
    const given = input === undefined ? new Uint8Array(0) : bytesOf(input);
    if (!given) throw new TypeError('The "list" argument must be an instance of ArrayBuffer or ArrayBufferView');
    const bytes = new Uint8Array(this.#rest.length + given.length);
    bytes.set(this.#rest);
    bytes.set(given, this.#rest.length);
    let { text, open } = this.#read(bytes);
    this.#rest = options.stream ? bytes.slice(bytes.length - open) : new Uint8Array(0);
    if (open && !options.stream) {
      if (this.fatal) throw new TypeError('The encoded data was not valid for encoding utf-8');
      text += '\ufffd';
    }
    if (!this.#begun && !this.ignoreBOM && text.startsWith('\ufeff')) text = text.slice(1);
    this.#begun = options.stream === true && (this.#begun || text !== '');
    return text;
  }
  #read(bytes: Uint8Array): { text: string; open: number } {
    if (this.encoding === 'utf-8') return utf8Decode(bytes, this.fatal);
    let text = '';
    const wide = this.encoding === 'utf-16le';
    for (let i = 0; i + (wide ? 1 : 0) < bytes.length; i += wide ? 2 : 1) {
      text += String.fromCharCode(wide ? bytes[i] | (bytes[i + 1] << 8) : windows1252[bytes[i] - 0x80] ?? bytes[i]);
    }
    return { text, open: wide ? bytes.length % 2 : 0 };
  }
}

// Where Windows-1252 differs from Latin-1, from 0x80 on.
const windows1252 = [
  0x20ac, 0x81, 0x201a, 0x192, 0x201e, 0x2026, 0x2020, 0x2021, 0x2c6, 0x2030, 0x160, 0x2039, 0x152, 0x8d, 0x17d, 0x8f,
  0x90, 0x2018, 0x2019, 0x201c, 0x201d, 0x2022, 0x2013, 0x2014, 0x2dc, 0x2122, 0x161, 0x203a, 0x153, 0x9d, 0x17e, 0x178,
];

/** The bytes of base64, each as one character. */
export function atob(text: unknown): string {
  const bytes = base64Decode(String(text));
  if (!bytes) throw Object.assign(new Error('The string to be decoded is not correctly encoded.'), { name: 'InvalidCharacterError' });
  return Array.from(bytes, (b) => String.fromCharCode(b)).join('');
}

/** Base64 of characters that are bytes. */
export function btoa(value: unknown): string {
  const text = String(value);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) {
    const unit = text.charCodeAt(i);
    if (unit > 255) throw Object.assign(new Error('Invalid character'), { name: 'InvalidCharacterError' });
    bytes[i] = unit;
  }
  return base64Encode(bytes);
}
