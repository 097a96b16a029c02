// crypto: random values, UUIDs and digests. The host makes the bytes.

import { base64Decode, base64Encode, bytesOf } from './bytes';

const host = () => (globalThis as any).__kiciHost;

function fill(array: any): any {
  if (!ArrayBuffer.isView(array) || array instanceof Float32Array || array instanceof Float64Array || array instanceof DataView) {
    throw Object.assign(new TypeError('The data argument must be an integer-type TypedArray'), { name: 'TypeMismatchError' });
  }
  const bytes = bytesOf(array)!;
  if (bytes.length > 65536) throw Object.assign(new Error('The requested length exceeds 65,536 bytes'), { name: 'QuotaExceededError' });
  bytes.set(base64Decode(host().random(bytes.length))!);
  return array;
}

function uuid(): string {
  const b = fill(new Uint8Array(16));
  b[6] = (b[6] & 15) | 64;
  b[8] = (b[8] & 63) | 128;
  const hex = Array.from(b as Uint8Array, (v) => v.toString(16).padStart(2, '0')).join('');
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`;
}

async function digest(algorithm: any, data: unknown): Promise<ArrayBuffer> {
  const name = String(algorithm?.name ?? algorithm).toUpperCase();
  if (!['SHA-1', 'SHA-256', 'SHA-384', 'SHA-512'].includes(name)) throw Object.assign(new Error('Unrecognized algorithm name'), { name: 'NotSupportedError' });
  const bytes = bytesOf(data);
  if (!bytes) throw new TypeError('the data of crypto.subtle.digest must be an ArrayBuffer or a view of one');
  return base64Decode(host().digest(name, base64Encode(bytes)))!.buffer as ArrayBuffer;
}

/** The part of the Web Crypto API that needs no keys. */
export const crypto = { getRandomValues: fill, randomUUID: uuid, subtle: { digest } };
