// The binary answer of `slices`, and the data of a page of its own.

import type { Slices } from './types';

const MAGIC = 0x31535645; // "EVS1", little endian

export class BadData extends Error {}

/** Reads an answer of `slices`. Columns are views into it where they are aligned. */
export function decodeSlices(buffer: ArrayBuffer): Slices[] {
  const view = new DataView(buffer);
  if (buffer.byteLength < 8 || view.getUint32(0, true) !== MAGIC) throw new BadData('the answer has no slices');
  const tracks = view.getUint32(4, true);
  const answer: Slices[] = [];
  let at = 8;
  for (let index = 0; index < tracks; index++) {
    if (at + 12 > buffer.byteLength) throw new BadData('the answer is truncated');
    const track = view.getUint32(at, true);
    const n = view.getUint32(at + 4, true);
    const flags = view.getUint32(at + 8, true);
    at = padded(at + 12);
    const column = (bytes: number): number => {
      const start = at;
      if (start + n * bytes > buffer.byteLength) throw new BadData('the answer is truncated');
      at = padded(start + n * bytes);
      return start;
    };
    answer.push({
      track,
      n,
      incomplete: (flags & 2) !== 0,
      from: new Float64Array(buffer, column(8), n),
      to: new Float64Array(buffer, column(8), n),
      func: new Uint32Array(buffer, column(4), n),
      count: new Uint32Array(buffer, column(4), n),
      depth: new Uint16Array(buffer, column(2), n),
      bits: new Uint8Array(buffer, column(1), n),
    });
  }
  return answer;
}

const padded = (at: number): number => (at + 7) & ~7;

/** Writes what `decodeSlices` reads. Depths count from `base`. */
export function encodeSlices(all: Slices[], base: number): ArrayBuffer {
  let size = 8;
  for (const { n } of all) size = padded(size + 12) + 2 * 8 * n + 2 * padded(4 * n) + padded(2 * n) + padded(n);
  const buffer = new ArrayBuffer(size);
  const view = new DataView(buffer);
  view.setUint32(0, MAGIC, true);
  view.setUint32(4, all.length, true);
  let at = 8;
  for (const slices of all) {
    const { n } = slices;
    view.setUint32(at, slices.track, true);
    view.setUint32(at + 4, n, true);
    view.setUint32(at + 8, slices.incomplete ? 2 : 0, true);
    at = padded(at + 12);
    new Float64Array(buffer, at, n).set(slices.from);
    new Float64Array(buffer, at + 8 * n, n).set(slices.to);
    at += 16 * n;
    new Uint32Array(buffer, at, n).set(slices.func);
    at += padded(4 * n);
    new Uint32Array(buffer, at, n).set(slices.count);
    at += padded(4 * n);
    new Uint16Array(buffer, at, n).set(slices.depth.map((depth) => depth - base));
    at += padded(2 * n);
    new Uint8Array(buffer, at, n).set(slices.bits);
    at += padded(n);
  }
  return buffer;
}

/** Reads unsigned LEB128 numbers below 2^53. */
export class Numbers {
  private at: number;
  constructor(private readonly bytes: Uint8Array, start: number, private readonly end: number) {
    this.at = start;
  }

  get isDone(): boolean {
    return this.at >= this.end;
  }

  next(): number {
    const { bytes } = this;
    let value = 0;
    let scale = 1;
    while (this.at < this.end) {
      const byte = bytes[this.at++];
      if (byte < 0x80) return value + byte * scale;
      value += (byte & 0x7f) * scale;
      scale *= 128;
      if (scale > 2 ** 56) break;
    }
    throw new BadData("the page's data is damaged");
  }

  nextSigned(): number {
    const value = this.next();
    return value % 2 === 0 ? value / 2 : -(value + 1) / 2;
  }
}

/** Writes what `Numbers` reads. */
export class NumberWriter {
  readonly bytes: number[] = [];

  write(value: number): void {
    while (value >= 128) {
      this.bytes.push((value % 128) | 0x80);
      value = Math.floor(value / 128);
    }
    this.bytes.push(value);
  }

  writeSigned(value: number): void {
    this.write(value >= 0 ? 2 * value : -2 * value - 1);
  }
}

/** Base64 text to bytes, in pieces, as one call for all of it would need it as a string of the same length. */
export function fromBase64(text: string): Uint8Array {
  const clean = text.replace(/\s+/g, '');
  const piece = 4 << 18;
  const padding = clean.endsWith('==') ? 2 : clean.endsWith('=') ? 1 : 0;
  const bytes = new Uint8Array((clean.length / 4) * 3 - padding);
  let at = 0;
  for (let start = 0; start < clean.length; start += piece) {
    const part = atob(clean.slice(start, start + piece));
    for (let index = 0; index < part.length; index++) bytes[at++] = part.charCodeAt(index);
  }
  return bytes;
}

export async function gunzip(bytes: Uint8Array): Promise<Uint8Array> {
  const stream = new Blob([bytes as BlobPart]).stream().pipeThrough(new DecompressionStream('gzip'));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}
