// What of a track is drawn in a window: its calls, and cells in place of calls that share a pixel.

import type { Counter, Mark, SampleRun, Slices, State } from '../types';
import type { Calls, CounterData } from './data';

/** How many calls of a cell are looked at for the longest of them. */
const SAMPLES = 8;

export function cells(track: number, calls: Calls, from: number, to: number, pixels: number, depths: [number, number]): Slices {
  const size = Math.max((to - from) / pixels, 1e-9);
  const out: { from: number[]; to: number[]; func: number[]; count: number[]; depth: number[]; bits: number[] } =
    { from: [], to: [], func: [], count: [], depth: [], bits: [] };
  const last = Math.min(depths[1], calls.rows.length);
  for (let depth = depths[0]; depth < last; depth++) {
    const row = calls.rows[depth];
    const end = calls.firstFrom(row, to);
    for (let place = calls.firstAfter(row, from); place < end;) {
      const first = row[place];
      const pixelEnd = from + (Math.floor((calls.from[first] - from) / size) + 1) * size;
      const next = calls.to[first] >= pixelEnd ? place + 1 : Math.min(end, endWithin(calls, row, place, pixelEnd));
      let shown = first;
      let bits = calls.bits[first];
      if (next > place + 1) {
        const step = Math.max(1, Math.floor((next - place) / SAMPLES));
        for (let other = place; other < next; other += step) {
          if (calls.duration(row[other]) > calls.duration(shown)) shown = row[other];
        }
        bits = 0;
      }
      out.from.push(calls.from[first]);
      out.to.push(calls.to[row[next - 1]]);
      out.func.push(calls.func[shown]);
      out.count.push(next - place);
      out.depth.push(depth);
      out.bits.push(bits);
      place = next;
    }
  }
  return {
    track,
    incomplete: false,
    n: out.from.length,
    from: Float64Array.from(out.from),
    to: Float64Array.from(out.to),
    func: Uint32Array.from(out.func),
    count: Uint32Array.from(out.count),
    depth: Uint32Array.from(out.depth),
    bits: Uint8Array.from(out.bits),
  };
}

/** The first place after this one whose call doesn't end before the pixel does. */
function endWithin(calls: Calls, row: Uint32Array, place: number, pixelEnd: number): number {
  let step = 1;
  while (place + step < row.length && calls.to[row[place + step]] < pixelEnd) step *= 2;
  let low = place + (step >> 1);
  let high = Math.min(row.length, place + step);
  while (low < high) {
    const middle = (low + high) >> 1;
    if (calls.to[row[middle]] < pixelEnd) low = middle + 1;
    else high = middle;
  }
  return Math.max(low, place + 1);
}

export function mergedStates(states: State[], from: number, to: number, pixels: number): State[] {
  const size = (to - from) / pixels;
  const out: State[] = [];
  for (const state of states) {
    if (state[1] <= from || state[0] >= to) continue;
    const last = out[out.length - 1];
    // What is shorter than a pixel goes into the state before, if that ends in the same pixel; the longer one is shown.
    const pixel = (at: number): number => Math.ceil((at - from) / size);
    if (last && state[1] - state[0] < size && pixel(last[1]) === pixel(state[1])) {
      if (state[1] - state[0] > last[1] - last[0]) (last as unknown[]).splice(2, Infinity, ...state.slice(2));
      last[1] = state[1];
    } else {
      out.push([...state]);
    }
  }
  return out;
}

export function mergedMarks(marks: Mark[], tracks: Set<number>, from: number, to: number, pixels: number): Mark[] {
  const size = (to - from) / pixels;
  const last = new Map<string, Mark>();
  const out: Mark[] = [];
  for (const mark of marks) {
    if (!tracks.has(mark.track) || mark.at >= to || (mark.to ?? mark.at) < from) continue;
    const key = `${mark.track} ${mark.kind}`;
    const before = last.get(key);
    const isShort = (mark.to ?? mark.at) - mark.at < size;
    if (before && isShort && mark.at - before.at < size) {
      before.count += mark.count;
      continue;
    }
    const copy = { ...mark };
    if (isShort) last.set(key, copy);
    out.push(copy);
  }
  return out;
}

/** Runs of samples; of those of one depth that are closer than a pixel, one, with the place of the longest. */
export function mergedSamples(runs: SampleRun[], tracks: Set<number>, from: number, to: number, pixels: number): SampleRun[] {
  const size = (to - from) / pixels;
  const last = new Map<string, { run: SampleRun; most: number }>();
  const out: SampleRun[] = [];
  for (const run of runs) {
    if (!tracks.has(run.track) || run.at >= to || run.to < from) continue;
    const key = `${run.track} ${run.depth}`;
    const before = last.get(key);
    if (before && run.to - before.run.at < size) {
      before.run.count += run.count;
      before.run.to = Math.max(before.run.to, run.to);
      if (run.text === before.run.text) {
        before.most += run.count;
      } else if (run.count > before.most) {
        before.run.text = run.text;
        before.most = run.count;
      }
      continue;
    }
    const copy = { ...run };
    last.set(key, { run: copy, most: run.count });
    out.push(copy);
  }
  return out;
}

export function mergedCounter(counter: CounterData, from: number, to: number, pixels: number): Counter {
  const size = (to - from) / pixels;
  const points: Counter['points'] = [];
  let before: [number, number] | undefined;
  for (const point of counter.points) {
    const [at, value] = point;
    if (at >= to) break;
    if (at < from) {
      before = point;
      continue;
    }
    const last = points[points.length - 1];
    if (last && Math.floor((at - from) / size) === Math.floor((last[0] - from) / size)) {
      last[1] = Math.min(last[1], value);
      last[2] = Math.max(last[2], value);
      last[3] = value;
    } else {
      points.push([at, value, value, value]);
    }
  }
  if (before) points.unshift([before[0], before[1], before[1], before[1]]);
  return { track: counter.track, name: counter.name, pid: counter.pid, points };
}
