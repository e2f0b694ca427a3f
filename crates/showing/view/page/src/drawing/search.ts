// Hits of a search, or all calls of a function: in one order, by beginning, track and depth.

import type { Hit, Hits, Mark, Next } from '../types';
import { BadRequest, placeOf } from './data';
import type { Data } from './data';

/** A predicate of texts: a part of them, in any case, or a regular expression between slashes. */
export function matcher(q: string): (text: string) => boolean {
  if (q.length > 2 && q.startsWith('/') && q.endsWith('/')) {
    let expression: RegExp;
    try {
      expression = new RegExp(q.slice(1, -1), 'i');
    } catch (error) {
      throw new BadRequest(error instanceof Error ? error.message : String(error));
    }
    return (text) => expression.test(text);
  }
  const part = q.toLowerCase();
  return (text) => text.toLowerCase().includes(part);
}

/** Which marks have texts that are searched. */
const SEARCHED = new Set(['label', 'instant', 'span', 'log', 'output']);

export class Found {
  /** For each track, its calls that are hits. */
  readonly calls = new Map<number, Uint32Array>();
  readonly marks: Mark[];
  readonly total: number;
  readonly functions = new Set<number>();

  constructor(private readonly data: Data, what: { q: string } | { func: number }) {
    let marks: Mark[] = [];
    if ('func' in what) {
      this.functions.add(what.func);
    } else if (what.q !== '') {
      const matches = matcher(what.q);
      data.functions.forEach((func, id) => {
        if (matches(func.full) || matches(func.name)) this.functions.add(id);
      });
      marks = data.marks.filter((mark) => SEARCHED.has(mark.kind) && matches(mark.text));
    }
    this.marks = marks;
    let total = marks.length;
    const isSought = new Uint8Array(data.functions.length);
    for (const func of this.functions) isSought[func] = 1;
    for (const [track, calls] of data.calls) {
      let n = 0;
      for (let call = 0; call < calls.length; call++) n += isSought[calls.func[call]] ?? 0;
      if (n === 0) continue;
      const own = new Uint32Array(n);
      n = 0;
      for (let call = 0; call < calls.length; call++) if (isSought[calls.func[call]]) own[n++] = call;
      this.calls.set(track, own);
      total += n;
    }
    this.total = total;
  }

  /** The first hits. */
  first(limit: number): Hit[] {
    const hits: Hit[] = [];
    for (const [track, own] of this.calls) {
      const calls = this.data.calls.get(track);
      if (!calls) continue;
      for (const call of own.subarray(0, limit)) hits.push({ ...placeOf(track, calls, call), function: calls.func[call] });
    }
    for (const mark of this.marks.slice(0, limit)) hits.push(hitOf(mark));
    return hits.sort(inOrder).slice(0, limit);
  }

  hits(from: number, to: number, pixels: number): Hits {
    const size = (to - from) / pixels;
    const tracks: Hits['tracks'] = {};
    const add = (track: number, start: number, end: number): void => {
      const own = (tracks[track] ??= []);
      const last = own[own.length - 1];
      if (last && start - last[0] < size && end - last[0] < size) {
        last[1] = Math.max(last[1], end);
        last[2]++;
      } else {
        own.push([start, end, 1]);
      }
    };
    for (const [track, own] of this.calls) {
      const calls = this.data.calls.get(track);
      if (!calls) continue;
      for (const call of own) {
        if (calls.from[call] >= to) break;
        if (calls.to[call] > from || calls.from[call] >= from) add(track, calls.from[call], calls.to[call]);
      }
    }
    for (const mark of this.marks) {
      const end = mark.to ?? mark.at;
      if (mark.at < to && end >= from) add(mark.track, mark.at, end);
    }
    return { tracks, total: this.total };
  }

  next(from: Hit | null, backwards: boolean): Next {
    let best: Hit | null = null;
    let before = 0;
    const consider = (hit: Hit): void => {
      if (best === null || (backwards ? inOrder(hit, best) > 0 : inOrder(hit, best) < 0)) best = hit;
    };
    const lists: { n: number; at: (index: number) => Hit }[] = [{ n: this.marks.length, at: (index) => hitOf(this.marks[index]) }];
    for (const [track, own] of this.calls) {
      const calls = this.data.calls.get(track);
      if (calls) lists.push({ n: own.length, at: (index) => ({ ...placeOf(track, calls, own[index]), function: calls.func[own[index]] }) });
    }
    for (const list of lists) {
      let low = 0;
      let high = list.n;
      // The first hit after the cursor; backwards, the first that isn't before it.
      while (low < high && from) {
        const middle = (low + high) >> 1;
        const order = inOrder(list.at(middle), from);
        if (backwards ? order >= 0 : order > 0) high = middle;
        else low = middle + 1;
      }
      if (!from) low = backwards ? list.n : 0;
      before += low;
      const place = backwards ? low - 1 : low;
      if (place >= 0 && place < list.n) consider(list.at(place));
    }
    if (best === null && from && this.total > 0) return this.next(null, backwards);
    return { hit: best, index: best === null ? 0 : backwards ? before : before + 1, total: this.total };
  }
}

const hitOf = (mark: Mark): Hit => ({ track: mark.track, from: mark.at, to: mark.to ?? mark.at, depth: null, text: mark.text });

const inOrder = (a: Hit, b: Hit): number =>
  a.from - b.from || a.track - b.track || (a.depth ?? -1) - (b.depth ?? -1);
