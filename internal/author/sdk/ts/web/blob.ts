// Blob and File: bytes with a type, and a name.

import { bytesOf, utf8Decode, utf8Encode } from './bytes';

/** Bytes with a type. */
export class Blob {
  readonly type: string;
  #bytes: Uint8Array;
  constructor(parts: Iterable<unknown> = [], options: { type?: string } = {}) {
    const pieces = [...parts].map((part) => (part instanceof Blob ? part.#bytes : bytesOf(part) ?? utf8Encode(String(part))));
    this.#bytes = new Uint8Array(pieces.reduce((n, p) => n + p.length, 0));
    let at = 0;
    for (const piece of pieces) {
      this.#bytes.set(piece, at);
      at += piece.length;
    }
    this.type = String(options.type ?? '').toLowerCase();
  }
  get size(): number { return this.#bytes.length; }
  async bytes(): Promise<Uint8Array> { return this.#bytes.slice(); }
  async arrayBuffer(): Promise<ArrayBuffer> { return this.#bytes.slice().buffer as ArrayBuffer; }
  async text(): Promise<string> {
    const { text, open } = utf8Decode(this.#bytes);
    return open ? `${text}\ufffd` : text;
  }
  slice(from?: number, to?: number, type = ''): Blob { return new Blob([this.#bytes.slice(from, to)], { type }); }
}

/** A blob with a name. */
export class File extends Blob {
  readonly name: string;
  readonly lastModified: number;
  constructor(parts: Iterable<unknown>, name: string, options: { type?: string; lastModified?: number } = {}) {
    super(parts, options);
    this.name = String(name);
    this.lastModified = options.lastModified ?? Date.now();
  }
}
