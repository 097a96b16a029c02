// The host of a URL: a name, an IPv4 or an IPv6 address.

import { percentDecode, percentEncode } from './params';

const forbidden = /[\0-\x20"#%/:<>?@[\\\]^`{|}\x7f]/;

/** The host as a URL has it; undefined for one that is none. */
export function readHost(text: string, special: boolean): string | undefined {
  if (text.startsWith('[')) return text.endsWith(']') ? ipv6(text.slice(1, -1)) : undefined;
  if (!special) return /[\0\t\n\r #/:<>?@[\\\]^|]/.test(text) ? undefined : percentEncode(text, /[^\x20-\x7e]/gu);
  const name = percentDecode(text).normalize('NFKC').toLowerCase().replace(/[\u3002\uff0e\uff61]/g, '.').replaceAll('\u00ad', '');
  const ascii = name.split('.').map((label) => (/^[\0-\x7f]*$/.test(label) ? label : punycode(label))).join('.');
  if (ascii === '' || forbidden.test(ascii)) return undefined;
  return endsInNumber(ascii) ? ipv4(ascii) : ascii;
}

// The letters beyond ASCII of a label, as those of ASCII tell where to put them (RFC 3492).
function punycode(label: string): string {
  const points = Array.from(label, (c) => c.codePointAt(0)!);
  const basic = points.filter((p) => p < 0x80);
  let out = String.fromCodePoint(...basic) + (basic.length ? '-' : '');
  let n = 128, delta = 0, bias = 72;
  for (let done = basic.length; done < points.length;) {
    const next = Math.min(...points.filter((p) => p >= n));
    delta += (next - n) * (done + 1);
    n = next;
    for (const p of points) {
      if (p < n) delta++;
      if (p !== n) continue;
      let q = delta;
      for (let k = 36; ; k += 36) {
        const t = Math.min(26, Math.max(1, k - bias));
        if (q < t) break;
        out += digit(t + ((q - t) % (36 - t)));
        q = Math.floor((q - t) / (36 - t));
      }
      out += digit(q);
      bias = adapted(delta, done + 1, done === basic.length);
      delta = 0;
      done++;
    }
    delta++;
    n++;
  }
  return `xn--${out}`;
}

const digit = (d: number) => String.fromCharCode(d < 26 ? 97 + d : 22 + d);

function adapted(delta: number, count: number, first: boolean): number {
  let d = Math.floor(delta / (first ? 700 : 2));
  d += Math.floor(d / count);
  let k = 0;
  for (; d > 455; k += 36) d = Math.floor(d / 35);
  return k + Math.floor((36 * d) / (d + 38));
}

function endsInNumber(host: string): boolean {
  const parts = host.split('.');
  if (parts.at(-1) === '') parts.pop();
  return /^(\d+|0x[0-9a-f]*)$/i.test(parts.at(-1) ?? '');
}

function ipv4(host: string): string | undefined {
  const parts = host.replace(/\.$/, '').split('.');
  if (parts.length > 4) return undefined;
  const numbers = parts.map(ipv4Number);
  const last = numbers.pop()!;
  if (numbers.some((n) => !(n <= 255)) || !(last < 256 ** (4 - numbers.length))) return undefined;
  const value = numbers.reduce((sum, n, i) => sum + n * 256 ** (3 - i), last);
  return [3, 2, 1, 0].map((i) => Math.floor(value / 256 ** i) % 256).join('.');
}

function ipv4Number(text: string): number {
  if (/^0x[0-9a-f]*$/i.test(text)) return parseInt(text.slice(2) || '0', 16);
  if (/^0[0-7]*$/.test(text)) return parseInt(text, 8);
  return /^[1-9]\d*$/.test(text) ? Number(text) : NaN;
}

function ipv6(text: string): string | undefined {
  const [head, tail, ...more] = text.split('::');
  if (more.length) return undefined;
  const left = pieces(head);
  const right = tail === undefined ? [] : pieces(tail);
  if (!left || !right) return undefined;
  const missing = 8 - left.length - right.length;
  if (tail === undefined ? missing !== 0 : missing < 1) return undefined;
  return `[${shortest([...left, ...Array(Math.max(0, missing)).fill(0), ...right])}]`;
}

function pieces(text: string): number[] | undefined {
  if (text === '') return [];
  const parts = text.split(':');
  const dotted = parts.at(-1)!.includes('.') ? /^(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})$/.exec(parts.pop()!) : undefined;
  if (dotted === null || dotted?.slice(1).some((n) => Number(n) > 255) || parts.some((p) => !/^[0-9a-f]{1,4}$/i.test(p))) return undefined;
  const [a, b, c, d] = (dotted?.slice(1) ?? []).map(Number);
  return [...parts.map((p) => parseInt(p, 16)), ...(dotted ? [a * 256 + b, c * 256 + d] : [])];
}

// The longest run of zeros becomes `::`.
function shortest(values: number[]): string {
  let best = { at: -1, length: 1 };
  for (let i = 0; i < 8; i++) {
    let n = 0;
    while (i + n < 8 && values[i + n] === 0) n++;
    if (n > best.length) best = { at: i, length: n };
  }
  const hex = (list: number[]) => list.map((v) => v.toString(16)).join(':');
  return best.at < 0 ? hex(values) : `${hex(values.slice(0, best.at))}::${hex(values.slice(best.at + best.length))}`;
}
