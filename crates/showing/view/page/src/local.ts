// Answers of a page that has its data in itself. The requests are those that the server answers.
// Drawing reads the columns; all numbers about calls come from everycall's own code (`answers.ts`).

import type { Answers, Query } from './answers';
import { cells, mergedCounter, mergedMarks, mergedSamples, mergedStates } from './drawing/cells';
import { BadRequest, placeOf } from './drawing/data';
import type { Data } from './drawing/data';
import { Found } from './drawing/search';
import type { Search, SourceText, TextRows } from './types';

/** A function, its calls, their time, and all of its calls since the process began. */
type Sums = [func: number, calls: number, total_ns: number, all_calls: number | null];

export class Local {
  private found: { key: string; found: Found } | undefined;
  private sums: Map<number, Sums> | undefined;

  constructor(readonly data: Data, private readonly answers: Answers) {}

  answer(path: string, query: Query): unknown {
    const { data } = this;
    const number = (key: string): number => {
      const value = Number(query[key]);
      if (query[key] === undefined || !Number.isFinite(value)) throw new BadRequest(`${key} is not a number`);
      return value;
    };
    const tracks = (query.tracks ?? '').split(',').filter((id) => id !== '').map(Number);
    const window = (): [number, number, number] => [number('from'), number('to'), Math.max(1, Math.min(20000, number('pixels')))];
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
      case 'samples':
        return mergedSamples(data.samples, new Set(tracks), ...window());
      case 'counters': {
        const [from, to, pixels] = window();
        return data.counters.map((counter) => mergedCounter(counter, from, to, pixels));
      }
      case 'overview':
        return this.overview(Math.max(1, Math.min(20000, number('pixels'))));
      case 'search':
        return this.search(query, number('limit'));
      case 'hits':
        return this.sought(query).hits(...window());
      case 'next': {
        const depth = query.depth === undefined || query.depth === '' ? null : Number(query.depth);
        const cursor = query.from === undefined ? null : { track: number('track'), from: number('from'), to: 0, depth };
        return this.sought(query).next(cursor, query.dir === 'previous');
      }
      case 'source':
        return this.source(query);
      case 'text':
        return this.text(query, tracks);
      default:
        return this.answers.ask(path, query);
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

  private search(query: Query, limit: number): Search {
    const found = this.sought(query);
    this.sums ??= new Map((this.answers.ask('sums', {}) as Sums[]).map((sums) => [sums[0], sums]));
    const functions = [...found.functions].map((id) => {
      const [, calls, total_ns, all_calls] = this.sums?.get(id) ?? [id, 0, 0, null];
      return { id, calls, total_ns, all_calls };
    });
    functions.sort((a, b) => b.total_ns - a.total_ns);
    return { functions, hits: found.first(limit), total: found.total };
  }

  private source(query: Query): SourceText {
    const func = this.data.functions[Number(query.function)];
    if (!func) throw new BadRequest('there is no such function');
    const text = func.file ? (this.data.sources[func.file] ?? null) : null;
    return {
      file: func.file ?? null,
      line: func.line ?? null,
      text,
      first_line: 1,
      why: text === null ? 'The source of this function is not in the page.' : undefined,
      callers: this.answers.ask('callers', query) as SourceText['callers'],
    };
  }

  /** The calls that begin in a range, or a call with those in it. */
  private text(query: Query, tracks: number[]): TextRows {
    const limit = Number(query.limit ?? 200);
    const rows: TextRows['rows'] = [];
    let total = 0;
    for (const [track, calls] of this.data.calls) {
      let [first, end] = [calls.firstCall(Number(query.from ?? -Infinity)), calls.firstCall(Number(query.to ?? Infinity))];
      if (query.call !== undefined) {
        const [of, at, depth] = query.call.split(':').map(Number);
        if (of !== track) continue;
        first = calls.find(at, depth);
        if (first < 0) throw new BadRequest('there is no call at this place');
        end = calls.end[first];
      } else if (tracks.length > 0 && !tracks.includes(track)) {
        continue;
      }
      total += end - first;
      for (let call = first; call < Math.min(end, first + limit); call++) {
        rows.push({ ...placeOf(track, calls, call), function: calls.func[call] });
      }
    }
    rows.sort((a, b) => a.from - b.from || a.track - b.track || a.depth - b.depth);
    return { rows: rows.slice(0, limit), total };
  }
}
