// Bytes and text, for an engine that has neither TextEncoder nor atob.

/** The UTF-8 bytes of a text. Halves of surrogate pairs become U+FFFD. */
export function utf8Encode(text: string): Uint8Array {
  const out = new Uint8Array(text.length * 3);
  let n = 0;
  for (let i = 0; i < text.length; i++) {
    const point = wellFormed(text, i);
    if (point > 0xffff) i++;
    if (point < 0x80) out[n++] = point;
    else if (point < 0x800) {
      out[n++] = 0xc0 | (point >> 6);
      out[n++] = 0x80 | (point & 63);
    } else {
      if (point > 0xffff) {
        out[n++] = 0xf0 | (point >> 18);
        out[n++] = 0x80 | ((point >> 12) & 63);
      } else out[n++] = 0xe0 | (point >> 12);
      out[n++] = 0x80 | ((point >> 6) & 63);
      out[n++] = 0x80 | (point & 63);
    }
  }
  return out.slice(0, n);
}

function wellFormed(text: string, at: number): number {
  const point = text.codePointAt(at)!;
  return point >= 0xd800 && point <= 0xdfff ? 0xfffd : point;
}

/** How many bytes a character takes that begins with this one, and what of the second byte is allowed; undefined for one
 * that begins none. */
function lead(byte: number): [length: number, from: number, to: number] | undefined {
  if (byte >= 0xc2 && byte <= 0xdf) return [2, 0x80, 0xbf];
  if (byte >= 0xe0 && byte <= 0xef) return [3, byte === 0xe0 ? 0xa0 : 0x80, byte === 0xed ? 0x9f : 0xbf];
  if (byte >= 0xf0 && byte <= 0xf4) return [4, byte === 0xf0 ? 0x90 : 0x80, byte === 0xf4 ? 0x8f : 0xbf];
  return undefined;
}

/** The text of UTF-8 bytes, and how many bytes of a character that is not whole stand at the end. `fatal` makes bytes that
 * are none throw; else each such piece is a U+FFFD. */
export function utf8Decode(bytes: Uint8Array, fatal = false): { text: string; open: number } {
  let text = '';
  let units: number[] = [];
  const put = (point: number) => {
    if (point > 0xffff) units.push(0xd800 + ((point - 0x10000) >> 10), 0xdc00 + ((point - 0x10000) & 0x3ff));
    else units.push(point);
    if (units.length > 8000) {
      text += String.fromCharCode(...units);
      units = [];
    }
  };
  let open = 0;
  for (let i = 0; i < bytes.length;) {
    const first = bytes[i];
    if (first < 0x80) {
      put(first);
      i++;
      continue;
    }
    const [length, from, to] = lead(first) ?? [0, 0, 0];
    let good = length > 0 ? 1 : 0;
    while (good > 0 && good < length && i + good < bytes.length && inside(bytes[i + good], good === 1 ? from : 0x80, good === 1 ? to : 0xbf)) good++;
    if (length > 0 && good === length) {
      let point = first & (0xff >> (length + 1));
      for (let k = 1; k < length; k++) point = (point << 6) | (bytes[i + k] & 63);
      put(point);
      i += length;
    } else if (length > 0 && i + good === bytes.length) {
      open = good;
      break;
    } else {
      if (fatal) throw new TypeError('the bytes are no UTF-8');
      put(0xfffd);
      i += good || 1;
    }
  }
  return { text: text + String.fromCharCode(...units), open };
}

const inside = (value: number, from: number, to: number) => value >= from && value <= to;

const digits = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/';

/** Bytes as base64. */
export function base64Encode(bytes: Uint8Array): string {
  const parts: string[] = [];
  for (let i = 0; i < bytes.length; i += 3) {
    const [a, b, c] = [bytes[i], bytes[i + 1] ?? 0, bytes[i + 2] ?? 0];
    const four = digits[a >> 2] + digits[((a & 3) << 4) | (b >> 4)] + digits[((b & 15) << 2) | (c >> 6)] + digits[c & 63];
    parts.push(i + 1 >= bytes.length ? `${four.slice(0, 2)}==` : i + 2 >= bytes.length ? `${four.slice(0, 3)}=` : four);
  }
  return parts.join('');
}

/** The bytes of base64. White space and padding may be left out; undefined for what is none. */
export function base64Decode(text: string): Uint8Array | undefined {
  let clean = text.replace(/[\t\n\f\r ]/g, '');
  if (clean.length % 4 === 0) clean = clean.replace(/==?$/, '');
  if (clean.length % 4 === 1 || /[^A-Za-z0-9+/]/.test(clean)) return undefined;
  const out = new Uint8Array(Math.floor((clean.length * 3) / 4));
  let bits = 0, value = 0, n = 0;
  for (let i = 0; i < clean.length; i++) {
    value = ((value << 6) | digits.indexOf(clean[i])) & 0xffff;
    bits += 6;
    if (bits < 8) continue;
    bits -= 8;
    out[n++] = (value >> bits) & 0xff;
  }
  return out;
}

/** The bytes of a buffer, or of a view of one. */
export function bytesOf(value: any): Uint8Array | undefined {
  if (value instanceof ArrayBuffer) return new Uint8Array(value);
  return ArrayBuffer.isView(value) ? new Uint8Array(value.buffer, value.byteOffset, value.byteLength) : undefined;
}
