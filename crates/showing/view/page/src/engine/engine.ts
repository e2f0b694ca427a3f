// Answers of a page that has its data in itself. The requests are those that the server answers.

import type { SliceDetails, SourceText, TextRows, Scope } from '../types';
import { AT_MOST, CUT_END, CUT_START, TAIL, UNCERTAIN, UNTRACED, UNWOUND } from '../types';
import { cells, mergedCounter, mergedMarks, mergedStates } from './cells';
import type { Calls, Data } from './data';
import { BadRequest, allCallsOf, compare, explain, find, flame, instances, parseSide, parts, placeOf, report } from './numbers';
import { Found } from './search';

export type Query = Record<string, string>;

export class Engine {
  private found: { key: string; found: Found } | undefined;

  constructor(readonly data: Data) {}

  answer(path: string, query: Query): unknown {
    const { data } = this;
    const number = (key: string): number => {
      const value = Number(query[key]);
      if (query[key] === undefined || !Number.isFinite(value)) throw new BadRequest(`${key} is not a number`);
      return value;
    };
    const tracks = (query.tracks ?? '').split(',').filter((id) => id !== '').map(Number);
    const window = (): [number, number, number] => [number('from'), number('to'), Math.max(1, Math.min(20000, number('pixels')))];
    const scope = (): Scope => {
      if (query.call !== undefined) return parseSide(data, `call:${query.call}`);
      return { from: query.from === undefined ? -Infinity : number('from'), to: query.to === undefined ? Infinity : number('to'), tracks };
    };
    switch (path) {
      case 'trace':
        return data.trace;
      case 'functions':
        return data.functions.slice(number('from'), number('to'));
      case 'slices': {
        const [from, to, pixels] = window();
        const depths = (query.depths ?? '0-4294967295').split('-').map(Number) as [number, number];
        return tracks.flatMap((id) => {
          const calls = data.calls.get(id);
          return calls ? [cells(id, calls, from, to, pixels, depths)] : [];
        });
      }
      case 'states': {
        const [from, to, pixels] = window();
        return Object.fromEntries(tracks.map((id) => [id, mergedStates(data.states[id] ?? [], from, to, pixels)]));
      }
      case 'marks':
        return mergedMarks(data.marks, new Set(tracks), ...window());
      case 'counters': {
        const [from, to, pixels] = window();
        return data.counters.map((counter) => mergedCounter(counter, from, to, pixels));
      }
      case 'overview':
        return this.overview(Math.max(1, Math.min(20000, number('pixels'))));
      case 'slice':
        return this.slice(number('track'), number('at'), number('depth'));
      case 'search':
        return this.sought(query).search(number('limit'));
      case 'hits':
        return this.sought(query).hits(...window());
      case 'next': {
        const depth = query.depth === undefined || query.depth === '' ? null : Number(query.depth);
        const cursor = query.from === undefined ? null : { track: number('track'), from: number('from'), to: 0, depth };
        return this.sought(query).next(cursor, query.dir === 'previous');
      }
      case 'report':
        return report(data, scope(), query.by ?? 'function');
      case 'flame':
        return flame(data, scope());
      case 'instances':
        return instances(data, number('function'), scope(), Number(query.limit ?? 100));
      case 'explain':
        return explain(data, number('track'), number('at'), number('depth'));
      case 'source':
        return this.source(number('function'));
      case 'compare':
        return compare(data, parseSide(data, query.a ?? ''), parseSide(data, query.b ?? ''));
      case 'text':
        return this.text(scope(), Number(query.limit ?? 200));
      default:
        throw new BadRequest(`there is nothing at ${path}`);
    }
  }

  private sought(query: Query): Found {
    const key = query.function === undefined ? `q${query.q}` : `f${query.function}`;
    if (this.found?.key !== key) {
      const what = query.function === undefined ? { q: query.q ?? '' } : { func: Number(query.function) };
      this.found = { key, found: new Found(this.data, what) };
    }
    return this.found.found;
  }

  private overview(pixels: number): number[] {
    const counts = new Array<number>(pixels).fill(0);
    const size = Math.max(1, this.data.trace.duration_ns) / pixels;
    for (const { from } of this.data.calls.values()) {
      for (const at of from) counts[Math.max(0, Math.min(pixels - 1, Math.floor(at / size)))]++;
    }
    return counts;
  }

  private slice(track: number, at: number, depth: number): SliceDetails {
    const { data } = this;
    const [calls, call] = find(data, track, at, depth);
    const path: number[] = [];
    for (let around = call; around >= 0; around = calls.parent[around]) path.push(calls.func[around]);
    const children = new Map<number, SliceDetails['children'][number] & { longest: number }>();
    let own = calls.duration(call);
    for (let child = call + 1; child < calls.end[call]; child = calls.end[child]) {
      if (calls.bits[child] & UNTRACED) continue;
      const time = calls.duration(child);
      own -= time;
      const row = children.get(calls.func[child]) ?? { function: calls.func[child], calls: 0, total_ns: 0, longest: -1 };
      row.calls++;
      row.total_ns += time;
      if (time > row.longest) Object.assign(row, placeOf(track, calls, child), { longest: time });
      children.set(calls.func[child], row);
    }
    const bits = calls.bits[call];
    const parent = calls.parent[call];
    return {
      ...placeOf(track, calls, call),
      function: calls.func[call],
      own_ns: own,
      all_calls: allCallsOf(data.all_calls, calls.func[call]),
      cut_start: (bits & CUT_START) !== 0,
      cut_end: (bits & CUT_END) !== 0,
      unwound: (bits & UNWOUND) !== 0,
      tail: (bits & TAIL) !== 0,
      at_most: (bits & AT_MOST) !== 0,
      caller_uncertain: (bits & UNCERTAIN) !== 0,
      labels: data.labels
        .filter(([id, from, level]) => id === track && from === calls.from[call] && level === calls.depth[call])
        .map(([, , , key, value]) => [key, value]),
      caller: parent < 0 ? null : { ...placeOf(track, calls, parent), function: calls.func[parent] },
      path: path.reverse(),
      children: [...children.values()].sort((a, b) => b.total_ns - a.total_ns).slice(0, 200),
      states: this.statesOf(track, calls, call),
    };
  }

  private statesOf(track: number, calls: Calls, call: number): SliceDetails['states'] {
    const states = this.data.states[track];
    if (!states) return null;
    const sums = [0, 0, 0, 0];
    const waits = new Map<string, number>();
    for (const [from, to, state, , name] of states) {
      const time = Math.max(0, Math.min(to, calls.to[call]) - Math.max(from, calls.from[call]));
      sums[state] += time;
      if (name !== undefined && time > 0) waits.set(name, (waits.get(name) ?? 0) + time);
    }
    const blocked_in = [...waits].sort((a, b) => b[1] - a[1]);
    return { running_ns: sums[0], runnable_ns: sums[1], blocked_ns: sums[2], unknown_ns: sums[3], blocked_in };
  }

  private source(id: number): SourceText {
    const { data } = this;
    const func = data.functions[id];
    if (!func) throw new BadRequest('there is no such function');
    const callers = new Map<number, SourceText['callers'][number] & { longest: number }>();
    for (const [track, calls] of data.calls) {
      for (let call = 0; call < calls.length; call++) {
        const parent = calls.parent[call];
        if (calls.func[call] !== id || parent < 0) continue;
        const by = calls.func[parent];
        const row = callers.get(by) ?? { function: by, calls: 0, file: data.functions[by]?.file, line: data.functions[by]?.line, longest: -1 };
        row.calls++;
        if (calls.duration(call) > row.longest) Object.assign(row, placeOf(track, calls, call), { longest: calls.duration(call) });
        callers.set(by, row);
      }
    }
    const text = func.file ? (data.sources[func.file] ?? null) : null;
    return {
      file: func.file ?? null,
      line: func.line ?? null,
      text,
      first_line: 1,
      why: text === null ? 'The source of this function is not in the page.' : undefined,
      callers: [...callers.values()].sort((a, b) => b.calls - a.calls),
    };
  }

  private text(scope: Scope, limit: number): TextRows {
    const rows: TextRows['rows'] = [];
    let total = 0;
    for (const part of parts(this.data, scope)) {
      const { calls } = part;
      const first = scope.call ? part.first : calls.firstCall(part.from);
      total += part.end - first;
      for (let call = first; call < Math.min(part.end, first + limit); call++) {
        rows.push({ ...placeOf(part.track, calls, call), function: calls.func[call] });
      }
    }
    rows.sort((a, b) => a.from - b.from || a.track - b.track || a.depth - b.depth);
    return { rows: rows.slice(0, limit), total };
  }
}
