// The calls of `everycall export -f csv` as data of the page.

import { readFileSync } from 'node:fs';
import { Calls } from '../src/drawing/data';
import type { Data } from '../src/drawing/data';
import type { Func, Mark, Process } from '../src/types';

function* records(text: string): Generator<string[]> {
  let fields: string[] = [];
  let at = 0;
  while (at < text.length) {
    let field = '';
    if (text[at] === '"') {
      for (at++; at < text.length; at++) {
        if (text[at] !== '"') field += text[at];
        else if (text[at + 1] === '"') field += text[++at];
        else break;
      }
      at++;
    } else {
      const start = at;
      while (at < text.length && text[at] !== ',' && text[at] !== '\n') at++;
      field = text.slice(start, at);
    }
    fields.push(field);
    if (text[at] !== ',') {
      yield fields;
      fields = [];
    }
    at++;
  }
}

export function fromCsv(text: string): Data {
  interface Row { from: number; to: number; func: number; depth: number; bits: number }
  const rows = new Map<string, { pid: number; tid: number; name: string; calls: Row[]; id: number }>();
  const functions: Func[] = [];
  const ids = new Map<string, number>();
  const marks: Mark[] = [];
  let duration = 0;
  for (const [kind, pid, tid, thread, depth, start, length, name, module, file, line, value, remarks] of records(text)) {
    if (kind === 'kind') continue;
    const key = `${pid} ${tid} ${thread}`;
    const track = rows.get(key) ?? { pid: Number(pid), tid: Number(tid), name: thread, calls: [], id: rows.size + 1 };
    rows.set(key, track);
    const from = Number(start);
    if (kind !== 'call') {
      marks.push({ track: track.id, at: from, kind: kind as Mark['kind'], text: name || value, count: 1 });
      continue;
    }
    const full = `${module} ${name}`;
    const func = ids.get(full) ?? functions.length;
    if (func === functions.length) {
      ids.set(full, func);
      functions.push({ id: func, name: name.replace(/\(anonymous namespace\)::/g, '').replace(/\((?:[^()]|\([^()]*\))*\)( const)?$/, ''), full: name, module, file: file || null, line: Number(line) || null });
    }
    const to = from + Number(length);
    duration = Math.max(duration, to);
    const bits = (remarks ?? '').includes('unwound') ? 4 : 0;
    track.calls.push({ from, to, func, depth: Number(depth), bits });
  }
  const calls = new Map<number, Calls>();
  const processes: Process[] = [];
  for (const track of rows.values()) {
    track.calls.sort((a, b) => a.from - b.from || a.depth - b.depth);
    const first = Math.min(...track.calls.slice(0, 1).map(({ depth }) => depth));
    const column = (key: keyof Row): number[] => track.calls.map((row) => row[key] - (key === 'depth' ? first : 0));
    const own = new Calls(Float64Array.from(column('from')), Float64Array.from(column('to')), Uint32Array.from(column('func')), Uint32Array.from(column('depth')), Uint8Array.from(column('bits')));
    calls.set(track.id, own);
    let process = processes.find(({ pid }) => pid === track.pid);
    if (!process) processes.push(process = { pid: track.pid, name: track.name, file: 0, tracks: [] });
    process.tracks.push({ id: track.id, tid: track.tid, pid: track.pid, name: track.name, kind: 'thread', depth: own.rows.length, from: 0, to: duration, events: 2 * own.length, has_states: false, has_marks: true });
  }
  const sources: Record<string, string> = {};
  for (const { file } of functions) {
    try {
      if (file && !(file in sources)) sources[file] = readFileSync(file, 'utf8');
    } catch { /* not on this machine */ }
  }
  const events = [...calls.values()].reduce((sum, own) => sum + 2 * own.length, 0);
  return {
    trace: {
      files: [{ name: 'trace.csv' }], program: processes[0]?.name ?? '?', duration_ns: duration, events, complete: true, read_events: events,
      processes, functions: functions.length, kept: [], losses: [], modules: [], notes: [],
    },
    functions, calls, sources, states: {}, marks, samples: [], counters: [], labels: [], all_calls: [],
  };
}
