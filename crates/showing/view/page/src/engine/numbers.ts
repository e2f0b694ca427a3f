// Numbers of a scope: table, flame graph, instances, comparisons. Calls count as `everycall report` counts them: each
// call that overlaps the scope, with its whole duration. The flame graph and comparisons of ranges have the part of
// the time that lies in the range.

import { AT_MOST, BY_TAIL, CUT_END, CUT_START, TAIL, UNTRACED, UNWOUND } from '../types';
import type {
  Compare, CompareNode, CompareRow, Explain, ExplainRow, Flame, FlameNode, Instances, Place, Report, ReportRow, Scope,
} from '../types';
import type { Calls, Data } from './data';

export class BadRequest extends Error {}

const UNTIMED = CUT_START | CUT_END | AT_MOST;
/** Parts of a flame graph below this share are left out. */
const PRUNED = 0.0005;

interface Part {
  track: number;
  calls: Calls;
  /** The calls of the scope are among these. */
  first: number;
  end: number;
  from: number;
  to: number;
}

export function parts(data: Data, scope: Scope): Part[] {
  if (scope.call) {
    const { track, at, depth } = scope.call;
    const [calls, call] = find(data, track, at, depth);
    return [{ track, calls, first: call, end: calls.end[call], from: -Infinity, to: Infinity }];
  }
  const all: Part[] = [];
  for (const [track, calls] of data.calls) {
    if (scope.tracks.length > 0 && !scope.tracks.includes(track)) continue;
    all.push({ track, calls, first: 0, end: calls.firstCall(scope.to), from: scope.from, to: scope.to });
  }
  return all;
}

export function find(data: Data, track: number, at: number, depth: number): [Calls, number] {
  const calls = data.calls.get(track);
  const call = calls ? calls.find(at, depth) : -1;
  if (!calls || call < 0) throw new BadRequest('there is no call at this place');
  return [calls, call];
}

/** Visits the calls of a part that overlap it. `isOutermost`: no call of the same function is around it. */
function walk(part: Part, functions: number, visit: (call: number, isOutermost: boolean) => void): void {
  const { calls, from } = part;
  const active = new Uint32Array(functions);
  const open: number[] = [];
  const top = part.first < calls.length ? calls.depth[part.first] : 0;
  for (let call = part.first; call < part.end; call++) {
    while (open.length > calls.depth[call] - top) active[calls.func[open.pop() as number]]--;
    if (calls.bits[call] & UNTRACED) continue;
    const func = calls.func[call];
    const around = active[func]++;
    open.push(call);
    if (calls.to[call] > from || calls.from[call] >= from) visit(call, around === 0);
  }
}

/** Own time of each call of a part, by its index there. */
function ownTimes(part: Part): Float64Array {
  const { calls, first, end, from, to } = part;
  const own = new Float64Array(Math.max(0, end - first));
  for (let call = first; call < end; call++) {
    // The time is the caller's own.
    if (calls.bits[call] & UNTRACED) continue;
    const time = clipped(calls, call, from, to);
    own[call - first] += time;
    const parent = calls.parent[call];
    if (parent >= first) own[parent - first] -= time;
  }
  return own;
}

const clipped = (calls: Calls, call: number, from: number, to: number): number =>
  Math.max(0, Math.min(calls.to[call], to) - Math.max(calls.from[call], from));

const whole = (part: Part): Part => ({ ...part, from: -Infinity, to: Infinity, end: part.calls.length });

/**
 * All calls of a scope, by function and track: those that were counted beside the events, which know neither times nor
 * what is around a call.
 */
export function allCalls(data: Data, scope: Scope): Data['all_calls'] {
  if (scope.call || Number.isFinite(scope.from) || Number.isFinite(scope.to)) return [];
  return data.all_calls.filter(([, track]) => scope.tracks.length === 0 || (track !== null && scope.tracks.includes(track)));
}

/** The sum of a function in what `allCalls` gives; null: it wasn't counted. */
export function allCallsOf(all: Data['all_calls'], func: number): number | null {
  return all.reduce((sum, [of, , calls]) => sum + (of === func ? calls : 0), 0) || null;
}

export function report(data: Data, scope: Scope, by: string): Report {
  interface Sum { key: string; func: number; calls: number; all: number; unwound: number; truncated: number; total: number; own: number; times: number[] }
  const sums = new Map<string | number, Sum>();
  let count = 0;
  const processes = new Map(data.trace.processes.flatMap((process) => process.tracks.map((track) => [track.id, { process, track }])));
  /** The group of a function's calls in a track. */
  const group = (func: number, track: number | null): string | number => {
    const place = track === null ? undefined : processes.get(track);
    if (by === 'module') return data.functions[func]?.module ?? '?';
    if (by === 'thread' && place) {
      const { process: { pid }, track: { name, tid } } = place;
      return pid === tid ? `${name} ${tid}` : `${name} ${tid} of ${pid}`;
    }
    if (by === 'thread') return String(track ?? '?');
    if (by === 'process') return place ? `${place.process.name} ${place.process.pid}` : '?';
    if (by === 'file') return data.functions[func]?.file ?? '(source file not known)';
    return func;
  };
  const sumOf = (key: string | number, func: number): Sum => {
    let sum = sums.get(key);
    if (!sum) {
      sum = { key: String(key), func, calls: 0, all: 0, unwound: 0, truncated: 0, total: 0, own: 0, times: [] };
      sums.set(key, sum);
    }
    return sum;
  };
  if (by !== 'path') for (const [func, track, calls] of allCalls(data, scope)) sumOf(group(func, track), func).all += calls;
  for (const part of parts(data, scope)) {
    const { calls } = part;
    const own = ownTimes(scope.call ? part : whole(part));
    const first = scope.call ? part.first : 0;
    const inside = new Map<string | number, number[]>();
    walk(part, data.functions.length, (call, isOutermost) => {
      const func = calls.func[call];
      const key = by === 'path' ? path(data, calls, call) : group(func, part.track);
      const sum = sumOf(key, func);
      const bits = calls.bits[call];
      count++;
      sum.calls++;
      if (bits & UNWOUND) sum.unwound++;
      if (bits & (CUT_START | CUT_END)) sum.truncated++;
      sum.own += own[call - first];
      if (!(bits & UNTIMED)) sum.times.push(calls.duration(call));
      // Within another call of the same group, a call adds nothing to the total.
      let isFirst = isOutermost;
      if (by !== 'function' && by !== 'path') {
        const ends = inside.get(key) ?? [];
        while (ends.length > 0 && ends[ends.length - 1] <= call) ends.pop();
        isFirst = ends.length === 0;
        ends.push(calls.end[call]);
        inside.set(key, ends);
      }
      if (isFirst) sum.total += calls.duration(call);
    });
  }
  const rows: ReportRow[] = [...sums.values()].map((sum) => {
    const times = Float64Array.from(sum.times).sort();
    const func = by === 'function' ? data.functions[sum.func] : undefined;
    return {
      name: func ? func.full : sum.key,
      function: func ? sum.func : null,
      module: func?.module ?? null,
      file: func?.file ?? null,
      line: func?.line ?? null,
      calls: sum.calls,
      all_calls: sum.all || null,
      unwound: sum.unwound,
      truncated: sum.truncated,
      total_ns: sum.total,
      own_ns: sum.own,
      timed_calls: times.length,
      average_ns: times.length ? times.reduce((a, b) => a + b, 0) / times.length : null,
      min_ns: times[0] ?? null,
      p50_ns: rank(times, 0.5),
      p90_ns: rank(times, 0.9),
      p99_ns: rank(times, 0.99),
      max_ns: times[times.length - 1] ?? null,
    };
  });
  rows.sort((a, b) => b.own_ns - a.own_ns);
  return { by, calls: count, rows };
}

/** Nearest rank. */
const rank = (sorted: Float64Array, share: number): number | null =>
  sorted.length === 0 ? null : sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)];

function path(data: Data, calls: Calls, call: number): string {
  const chain: number[] = [];
  for (let at = call; at >= 0; at = calls.parent[at]) chain.push(calls.func[at]);
  const seen: number[] = [];
  for (const func of chain.reverse()) {
    const before = seen.indexOf(func);
    if (before >= 0) seen.length = before;
    seen.push(func);
  }
  return seen.map((func) => data.functions[func]?.full ?? '?').join(' > ');
}

interface Node extends FlameNode {
  children: Node[];
  /** Children by function, where there are many. */
  byFunction: Map<number, Node> | null;
}

const MANY = 12;
/** Deeper calls are own time of the call at this depth: nobody reads a graph that goes deeper. */
const DEEPEST = 1000;

const node = (func: number): Node => ({ function: func, total_ns: 0, own_ns: 0, calls: 0, children: [], byFunction: null });

function childOf(parent: Node | undefined, func: number): Node | undefined {
  if (!parent) return undefined;
  if (parent.byFunction) return parent.byFunction.get(func);
  for (const child of parent.children) if (child.function === func) return child;
  return undefined;
}

function childMade(parent: Node, func: number): Node {
  const child = node(func);
  parent.children.push(child);
  if (parent.byFunction) parent.byFunction.set(func, child);
  else if (parent.children.length > MANY) parent.byFunction = new Map(parent.children.map((one) => [one.function, one]));
  return child;
}

function tree(data: Data, scope: Scope): Node {
  const root = node(-1);
  for (const part of parts(data, scope)) {
    const { calls, from, to } = part;
    const own = ownTimes(part);
    const open: Node[] = [root];
    const top = part.first < calls.length ? calls.depth[part.first] : 0;
    for (let call = part.first; call < part.end; call++) {
      const level = calls.depth[call] - top;
      // Of calls that end before the range, nothing is looked at.
      if (calls.to[call] <= from && calls.from[call] < from) {
        call = calls.end[call] - 1;
        continue;
      }
      if (calls.bits[call] & UNTRACED) continue;
      if (level >= DEEPEST) {
        open[DEEPEST].own_ns += own[call - part.first];
        continue;
      }
      open.length = level + 1;
      const parent = open[level];
      const func = calls.func[call];
      const child = childOf(parent, func) ?? childMade(parent, func);
      child.calls++;
      const time = clipped(calls, call, from, to);
      child.total_ns += time;
      child.own_ns += own[call - part.first];
      open[level + 1] = child;
      if (level === 0) root.total_ns += time;
    }
  }
  root.calls = root.children.reduce((sum, child) => sum + child.calls, 0);
  return root;
}

export function flame(data: Data, scope: Scope): Flame {
  const root = tree(data, scope);
  let prunedCalls = 0;
  let prunedTime = 0;
  const least = root.total_ns * PRUNED;
  const prune = (from: Node): FlameNode => {
    const kept = from.children.filter((child) => child.total_ns >= least);
    for (const child of from.children) {
      if (child.total_ns >= least) continue;
      prunedTime += child.total_ns;
      prunedCalls += child.calls;
    }
    kept.sort((a, b) => b.total_ns - a.total_ns);
    return {
      function: from.function,
      total_ns: from.total_ns,
      own_ns: from.own_ns,
      calls: from.calls,
      children: kept.map((child) => prune(child)),
    };
  };
  return { root: prune(root), pruned_calls: prunedCalls, pruned_ns: prunedTime };
}

interface Found extends Place {
  duration: number;
}

export function instances(data: Data, func: number, scope: Scope, limit: number): Instances {
  const timed: Found[] = [];
  let untimed = 0;
  for (const part of parts(data, scope)) {
    const { calls } = part;
    for (let call = part.first; call < part.end; call++) {
      if (calls.func[call] !== func) continue;
      if (calls.to[call] <= part.from && calls.from[call] < part.from) continue;
      if (calls.bits[call] & UNTIMED) untimed++;
      else timed.push({ ...placeOf(part.track, calls, call), duration: calls.duration(call) });
    }
  }
  timed.sort((a, b) => a.duration - b.duration);
  const place = ({ track, from, to, depth }: Found): Place => ({ track, from, to, depth });
  const histogram: Instances['histogram'] = [];
  const bucket = (ns: number): number => (ns < 1 ? -1 : Math.floor(4 * Math.log2(ns) + 1e-9));
  const edge = (index: number): number => (index < 0 ? 0 : 2 ** (index / 4));
  let last = -2;
  for (const call of timed) {
    const index = bucket(call.duration);
    if (index !== last) histogram.push({ from_ns: edge(index), to_ns: edge(index + 1), calls: 0, longest: null });
    last = index;
    const row = histogram[histogram.length - 1];
    row.calls++;
    row.longest = place(call);
  }
  const at = (share: number): Found | undefined => timed[Math.max(0, Math.ceil(share * timed.length) - 1)];
  const median = at(0.5);
  const count = timed.length + untimed;
  return {
    slowest: timed.slice(-limit).reverse().map(place),
    histogram,
    count: timed.length,
    calls: count,
    all_calls: allCallsOf(allCalls(data, scope), func),
    untimed,
    p50: median?.duration ?? null,
    p99: at(0.99)?.duration ?? null,
    max: timed[timed.length - 1]?.duration ?? null,
    median: median ? place(median) : null,
  };
}

export const placeOf = (track: number, calls: Calls, call: number): Place => ({
  track,
  from: calls.from[call],
  to: calls.to[call],
  depth: calls.depth[call],
});

/** What calls did. Times are sums of all of them. */
interface Doings {
  calls: number;
  duration: number;
  own: number;
  /** Behind tail calls, in code that isn't traced, at most. */
  tails: number;
  called: Map<number, { calls: number; ns: number }>;
}

/** An outermost call of a function, with its time behind a tail call. */
interface Outermost {
  track: number;
  calls: Calls;
  call: number;
  duration: number;
}

/** Where the time of a call lies that ended in a tail call: in the functions that it led to, and in code that isn't traced. */
interface Tail {
  /** One after the last slice of it. */
  end: number;
  behind: number;
  untraced: number;
  called: [func: number, ns: number][];
}

/** Follows the tail call that ended a call; null: when its target ended isn't known. */
function follow(calls: Calls, call: number): Tail | null {
  const tail: Tail = { end: calls.end[call], behind: 0, untraced: 0, called: [] };
  let attributed = 0;
  for (;;) {
    const next = tail.end;
    // Within another call, or not led to.
    if (next >= calls.length || calls.depth[next] !== calls.depth[call]) return tail;
    const bits = calls.bits[next];
    if ((bits & (UNTRACED | BY_TAIL)) === 0) return tail;
    tail.end = calls.end[next];
    const isTruncated = (bits & (CUT_END | AT_MOST)) !== 0 && (bits & UNTRACED) === 0;
    if (isTruncated) return null;
    tail.behind = calls.to[next] - calls.to[call];
    const rest = tail.behind - attributed;
    if (bits & UNTRACED) {
      tail.untraced = rest;
      return tail;
    }
    if ((bits & TAIL) === 0) {
      tail.called.push([calls.func[next], rest]);
      return tail;
    }
    // It has jumped on.
    attributed += calls.duration(next);
    tail.called.push([calls.func[next], calls.duration(next)]);
  }
}

/** Visits the outermost calls of a function whose durations are known. */
function outermost(data: Data, func: number, visit: (call: Outermost, tail: Tail | null) => void): void {
  for (const [track, calls] of data.calls) {
    for (let call = 0; call < calls.length;) {
      if (calls.func[call] !== func || calls.bits[call] & UNTRACED) {
        call++;
        continue;
      }
      const bits = calls.bits[call];
      let end = calls.end[call];
      if ((bits & UNTIMED) === 0) {
        const tail = bits & TAIL ? follow(calls, call) : null;
        const isKnown = !(bits & TAIL) || tail !== null;
        if (isKnown) visit({ track, calls, call, duration: calls.duration(call) + (tail?.behind ?? 0) }, tail);
        if (tail) end = tail.end;
      }
      call = end;
    }
  }
}

const nothing = (): Doings => ({ calls: 0, duration: 0, own: 0, tails: 0, called: new Map() });

function addTo(sum: Doings, { calls, call, duration }: Outermost, tail: Tail | null): void {
  const add = (func: number, ns: number): void => {
    const row = sum.called.get(func) ?? { calls: 0, ns: 0 };
    row.calls++;
    row.ns += ns;
    sum.called.set(func, row);
  };
  sum.calls++;
  sum.duration += duration;
  let own = calls.duration(call);
  for (let child = call + 1; child < calls.end[call]; child = calls.end[child]) {
    if (calls.bits[child] & UNTRACED) continue;
    own -= calls.duration(child);
    add(calls.func[child], calls.duration(child));
  }
  sum.own += own;
  sum.tails += tail?.untraced ?? 0;
  for (const [func, ns] of tail?.called ?? []) add(func, ns);
}

/** Values that are kept as they are, and parts of a power of two for more: as the server's percentiles have them. */
const FEW = 32;
const PER_OCTAVE = 64;

/** The value that stands for one in a distribution of many. */
function middle(value: number): number {
  if (value < 2 * PER_OCTAVE) return value;
  const size = 2 ** (Math.floor(Math.log2(value)) - 6);
  return Math.floor(value / size) * size + Math.floor(size / 2);
}

/** A percentile, by nearest rank, as the server gives it. `sorted` isn't empty. */
function percentile(sorted: Float64Array, share: number): number {
  const value = rank(sorted, share) ?? 0;
  return sorted.length <= FEW ? value : Math.max(sorted[0], Math.min(sorted[sorted.length - 1], middle(value)));
}

/** What a call did that calls around the median of its function didn't, as the server says it. */
export function explain(data: Data, track: number, at: number, depth: number): Explain {
  const [calls, call] = find(data, track, at, depth);
  const func = calls.func[call];
  if (calls.bits[call] & UNTIMED) {
    throw new BadRequest("this call wasn't recorded from its entry to its exit, so its time can't be compared");
  }
  const times: number[] = [];
  outermost(data, func, ({ duration }) => times.push(duration));
  const sorted = Float64Array.from(times).sort();
  const [here, usual] = [nothing(), nothing()];
  if (sorted.length > 0) {
    const [low, high] = [percentile(sorted, 0.45), percentile(sorted, 0.55)];
    const [from, to] = [low - Math.floor(low / 64), high + Math.floor(high / 64)];
    outermost(data, func, (one, tail) => {
      if (one.calls === calls && one.call === call) addTo(here, one, tail);
      if (one.duration >= from && one.duration <= to) addTo(usual, one, tail);
    });
  }
  if (here.calls === 0) {
    throw new BadRequest('this call is a part of another call of its function; select the outermost one');
  }
  const per = (of: Doings, sum: number): number => sum / Math.max(1, of.calls);
  const usualTime = per(usual, usual.duration);
  const answer: Explain = {
    function: func, here: placeOf(track, calls, call), median: null, here_ns: per(here, here.duration), median_ns: usualTime, rows: [],
  };
  if (sorted.length < 2) return answer;
  let best = Infinity;
  for (const [id, all] of data.calls) {
    for (let other = 0; other < all.length; other++) {
      const off = Math.abs(all.duration(other) - Math.floor(usualTime));
      if (all.func[other] !== func || off >= best) continue;
      best = off;
      answer.median = placeOf(id, all, other);
    }
  }
  const row = (of: number | null, kind: ExplainRow['kind'], value: (doings: Doings) => [number, number]): ExplainRow => {
    const [[a, aCalls], [b, bCalls]] = [value(here), value(usual)];
    return {
      function: of, kind, here_ns: per(here, a), median_ns: per(usual, b), here_calls: per(here, aCalls), median_calls: per(usual, bCalls),
    };
  };
  const rows = [row(null, 'own', ({ own }) => [own, 0])];
  if (here.tails + usual.tails > 0) rows.push(row(null, 'tail', ({ tails }) => [tails, 0]));
  for (const of of new Set([...here.called.keys(), ...usual.called.keys()])) {
    rows.push(row(of, 'call', ({ called }) => [called.get(of)?.ns ?? 0, called.get(of)?.calls ?? 0]));
  }
  const change = (one: ExplainRow): number => Math.abs(one.here_ns - one.median_ns);
  answer.rows = rows.sort((a, b) => change(b) - change(a));
  return answer;
}

/** `range:FILE:FROM:TO:TRACKS` or `call:TRACK:AT:DEPTH`. */
export function parseSide(data: Data, text: string): Scope {
  const [kind, ...fields] = text.split(':');
  const numbers = fields.slice(0, 3).map(Number);
  if (numbers.length === 3 && numbers.every(Number.isFinite)) {
    if (kind === 'call') return { from: 0, to: 0, tracks: [], call: { track: numbers[0], at: numbers[1], depth: numbers[2] } };
    if (kind === 'range') {
      let tracks = (fields[3] ?? '').split(',').filter((id) => id !== '').map(Number);
      if (tracks.length === 0) {
        tracks = data.trace.processes.filter(({ file }) => (file ?? 0) === numbers[0]).flatMap((process) => process.tracks.map(({ id }) => id));
      }
      return { from: numbers[1], to: numbers[2], tracks };
    }
  }
  throw new BadRequest(`${text} is not a side of a comparison`);
}

export function compare(data: Data, a: Scope, b: Scope): Compare {
  const [left, right] = [tree(data, a), tree(data, b)];
  const rows = new Map<number, CompareRow>();
  const add = (side: 'a' | 'b', from: Node, around: Set<number>): void => {
    for (const child of from.children) {
      let row = rows.get(child.function);
      if (!row) {
        row = { function: child.function, a_calls: 0, b_calls: 0, a_own_ns: 0, b_own_ns: 0, a_total_ns: 0, b_total_ns: 0 };
        rows.set(child.function, row);
      }
      row[`${side}_calls`] += child.calls;
      row[`${side}_own_ns`] += child.own_ns;
      const isFirst = !around.has(child.function);
      if (isFirst) row[`${side}_total_ns`] += child.total_ns;
      around.add(child.function);
      add(side, child, around);
      if (isFirst) around.delete(child.function);
    }
  };
  add('a', left, new Set());
  add('b', right, new Set());
  // Paths that are small on both sides are in the table of functions.
  const least = Math.max(left.total_ns, right.total_ns) * PRUNED;
  const isSmall = (one: Node | undefined, two: Node | undefined): boolean => (one?.total_ns ?? 0) < least && (two?.total_ns ?? 0) < least;
  const align = (one: Node | undefined, two: Node | undefined, func: number): CompareNode => {
    const children: CompareNode[] = [];
    for (const child of one?.children ?? []) {
      const other = childOf(two, child.function);
      if (!isSmall(child, other)) children.push(align(child, other, child.function));
    }
    for (const child of two?.children ?? []) {
      if (!isSmall(undefined, child) && !childOf(one, child.function)) children.push(align(undefined, child, child.function));
    }
    children.sort((x, y) => Math.abs(y.b_ns - y.a_ns) - Math.abs(x.b_ns - x.a_ns));
    return {
      function: func,
      a_ns: one?.total_ns ?? 0,
      b_ns: two?.total_ns ?? 0,
      a_own_ns: one?.own_ns ?? 0,
      b_own_ns: two?.own_ns ?? 0,
      a_calls: one?.calls ?? 0,
      b_calls: two?.calls ?? 0,
      children,
    };
  };
  const difference = (row: CompareRow): number => Math.abs(row.b_own_ns - row.a_own_ns);
  return {
    a: { ns: left.total_ns, calls: sum(rows, 'a_calls') },
    b: { ns: right.total_ns, calls: sum(rows, 'b_calls') },
    functions: [...rows.values()].sort((x, y) => difference(y) - difference(x)),
    root: align(left, right, -1),
  };
}

const sum = (rows: Map<number, CompareRow>, key: 'a_calls' | 'b_calls'): number =>
  [...rows.values()].reduce((total, row) => total + row[key], 0);
