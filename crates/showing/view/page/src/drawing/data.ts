// A whole trace in memory, in columns.

import { BadData, Numbers, NumberWriter } from '../decode';
import type { Func, LabelValue, Mark, Place, SampleRun, State, Trace } from '../types';

/** The calls of a track, by entry, callers before what they call. */
export class Calls {
  /** The call around each, or -1. */
  readonly parent: Int32Array;
  /** One after the last call within each. */
  readonly end: Uint32Array;
  /** For each depth, its calls by time: they don't overlap. */
  readonly rows: Uint32Array[];

  constructor(
    readonly from: Float64Array,
    readonly to: Float64Array,
    readonly func: Uint32Array,
    readonly depth: Uint32Array,
    readonly bits: Uint8Array,
  ) {
    const n = from.length;
    this.parent = new Int32Array(n);
    this.end = new Uint32Array(n);
    const sizes: number[] = [];
    const open: number[] = [];
    for (let call = 0; call < n; call++) {
      // A depth that skips a level would have no caller: it is the next level then.
      const level = Math.min(depth[call], open.length);
      depth[call] = level;
      while (open.length > level) this.end[open.pop() as number] = call;
      this.parent[call] = level === 0 ? -1 : open[level - 1];
      open.push(call);
      sizes[level] = (sizes[level] ?? 0) + 1;
    }
    while (open.length > 0) this.end[open.pop() as number] = n;
    this.rows = sizes.map((size) => new Uint32Array(size));
    const filled = new Uint32Array(sizes.length);
    for (let call = 0; call < n; call++) this.rows[depth[call]][filled[depth[call]]++] = call;
  }

  get length(): number {
    return this.from.length;
  }

  duration(call: number): number {
    return this.to[call] - this.from[call];
  }

  /** The first place in a row whose call ends after `at`, or begins there. */
  firstAfter(row: Uint32Array, at: number): number {
    let low = 0;
    let high = row.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      const call = row[middle];
      if (this.to[call] > at || this.from[call] >= at) high = middle;
      else low = middle + 1;
    }
    return low;
  }

  /** The first place in a row whose call begins at `at` or later. */
  firstFrom(row: Uint32Array, at: number): number {
    let low = 0;
    let high = row.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.from[row[middle]] >= at) high = middle;
      else low = middle + 1;
    }
    return low;
  }

  /** The first call that begins at `at` or later. */
  firstCall(at: number): number {
    let low = 0;
    let high = this.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.from[middle] >= at) high = middle;
      else low = middle + 1;
    }
    return low;
  }

  /** The call at a place, or -1. */
  find(at: number, depth: number): number {
    const row = this.rows[depth];
    if (!row) return -1;
    for (let place = Math.max(0, this.firstFrom(row, at + 1) - 1); place >= 0 && place < row.length; place--) {
      const call = row[place];
      if (this.from[call] <= at && (at < this.to[call] || this.from[call] === at)) return call;
      if (this.from[call] < at) break;
    }
    return -1;
  }
}

export class BadRequest extends Error {}

export const placeOf = (track: number, calls: Calls, call: number): Place => ({
  track,
  from: calls.from[call],
  to: calls.to[call],
  depth: calls.depth[call],
});

export interface CounterData {
  track: number;
  name: string;
  pid: number;
  points: [number, number][];
}

export interface Data {
  trace: Trace;
  functions: Func[];
  calls: Map<number, Calls>;
  sources: Record<string, string>;
  states: Record<string, State[]>;
  marks: Mark[];
  samples: SampleRun[];
  counters: CounterData[];
  /** Track, begin and depth of a call, with the name and value of a label. */
  labels: [number, number, number, string, LabelValue][];
  /** All calls, as counted beside the events: function, track (null: it isn't in the page), calls. */
  all_calls: [number, number | null, number][];
}

interface Head extends Omit<Data, 'calls'> {
  /** Of each place in code, its function and its kind. */
  places: [number, number][];
  order: number[];
  counts: number[];
}

/** For each track; the last one is for sums alone. */
const STREAMS = 6;

/** Reads the data of a page of its own, unpacked. */
export function readData(bytes: Uint8Array): Data {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (bytes.length < 8 || new TextDecoder().decode(bytes.subarray(0, 4)) !== 'EVL2') {
    throw new BadData('the page has no data of a trace');
  }
  let at = 4;
  const piece = (): [number, number] => {
    if (at + 4 > bytes.length) throw new BadData("the page's data is truncated");
    const start = at + 4;
    at = start + view.getUint32(at, true);
    if (at > bytes.length) throw new BadData("the page's data is truncated");
    return [start, at];
  };
  const head = JSON.parse(new TextDecoder().decode(bytes.subarray(...piece()))) as Head;
  const functionOf = Uint32Array.from(head.places, ([func]) => func);
  const calls = new Map<number, Calls>();
  head.order.forEach((track, index) => {
    const streams = Array.from({ length: STREAMS }, () => new Numbers(bytes, ...piece()));
    calls.set(track, readCalls(head.counts[index], functionOf, streams));
  });
  return {
    trace: head.trace,
    functions: head.functions,
    calls,
    sources: head.sources ?? {},
    states: head.states ?? {},
    marks: (head.marks ?? []).sort((a, b) => a.at - b.at),
    samples: head.samples ?? [],
    counters: head.counters ?? [],
    labels: head.labels ?? [],
    all_calls: head.all_calls ?? [],
  };
}

function readCalls(n: number, functionOf: Uint32Array, [froms, durations, places, depths, exceptions]: Numbers[]): Calls {
  const from = new Float64Array(n);
  const to = new Float64Array(n);
  const func = new Uint32Array(n);
  const depth = new Uint32Array(n);
  const bits = new Uint8Array(n);
  let now = 0;
  let level = 0;
  for (let call = 0; call < n; call++) {
    now += froms.next();
    from[call] = now;
    to[call] = now + durations.next();
    func[call] = functionOf[places.next()];
    level += depths.nextSigned();
    depth[call] = level;
  }
  let call = 0;
  while (!exceptions.isDone) {
    call += exceptions.next();
    // Those above the lowest eight aren't drawn.
    bits[call] = exceptions.next() % 256;
  }
  return new Calls(from, to, func, depth, bits);
}

/** Writes what `readData` reads. */
export function writeData(data: Data): Uint8Array {
  const order = [...data.calls.keys()];
  const { calls, ...rest } = data;
  const head: Head = { ...rest, order, counts: order.map((track) => calls.get(track)?.length ?? 0), places: data.functions.map(({ id }) => [id, 0]) };
  const pieces: Uint8Array[] = [new TextEncoder().encode('EVL2')];
  const add = (bytes: Uint8Array): void => {
    pieces.push(new Uint8Array(new Uint32Array([bytes.length]).buffer), bytes);
  };
  add(new TextEncoder().encode(JSON.stringify(head)));
  for (const own of calls.values()) {
    const streams = Array.from({ length: STREAMS }, () => new NumberWriter());
    let [now, level, last] = [0, 0, 0];
    for (let call = 0; call < own.length; call++) {
      streams[0].write(own.from[call] - now);
      now = own.from[call];
      streams[1].write(own.duration(call));
      streams[2].write(own.func[call]);
      streams[3].writeSigned(own.depth[call] - level);
      level = own.depth[call];
      if (own.bits[call] === 0) continue;
      streams[4].write(call - last);
      streams[4].write(own.bits[call]);
      last = call;
    }
    for (const stream of streams) add(Uint8Array.from(stream.bytes));
  }
  const all = new Uint8Array(pieces.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const bytes of pieces) {
    all.set(bytes, at);
    at += bytes.length;
  }
  return all;
}
