// A made-up trace with everything that the page shows, the same for the same seed.

import { Calls } from '../src/drawing/data';
import type { CounterData, Data } from '../src/drawing/data';
import type { Func, Mark, Process, State, Track } from '../src/types';

function random(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state ^ (state >>> 15), 0x2c1b3c6d) + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

const HOSTILE = [
  '</script><script>document.title="gone"</script>',
  'left\u202eright\u0000\u001b[31m<b>bold</b>',
  'std::map<' + 'std::vector<int>, '.repeat(300) + '>::at',
];

const VERBS = ['parse', 'read', 'write', 'find', 'insert', 'balance', 'hash', 'compare', 'flush', 'lock', 'copy', 'expand', 'next', 'seek', 'commit'];
const NOUNS = ['page', 'row', 'node', 'token', 'cell', 'index', 'buffer', 'table', 'cursor', 'journal'];

export interface Wish {
  seed: number;
  /** Calls of each thread, about. */
  calls: number;
  threads: number;
  deepest: number;
}

export function synthetic(wish: Wish): Data {
  const chance = random(wish.seed);
  const functions: Func[] = [];
  const modules = ['server', 'libstorage.so', 'libparser.so', 'libc.so.6'];
  const add = (name: string): void => {
    const id = functions.length;
    const module = modules[id % modules.length];
    functions.push({ id, name, full: `${name}(int, char const*)`, module, file: `/src/${module}/${id % 7}.cpp`, line: 3 + (id % 40) });
  };
  for (const verb of VERBS) for (const noun of NOUNS) add(`${verb}_${noun}`);
  for (const name of HOSTILE) add(name);
  const duration = wish.calls * 400;
  const calls = new Map<number, Calls>();
  const marks: Mark[] = [];
  const states: Record<string, State[]> = {};
  const tracks: Track[] = [];
  for (let thread = 0; thread < wish.threads; thread++) {
    const id = thread + 1;
    const own = thread_(chance, wish, duration, functions.length);
    calls.set(id, own);
    tracks.push({
      id, tid: 4242 + thread, pid: 4242, name: thread === 0 ? 'main' : thread === 1 ? HOSTILE[1] : `worker ${thread}`,
      kind: thread === 3 ? 'fiber' : 'thread', depth: own.rows.length, from: own.from[0] ?? 0, to: own.to[own.rows[0][own.rows[0].length - 1]] ?? 0,
      events: own.length * 2, has_states: thread < 3, has_marks: true,
    });
    states[id] = [];
    for (let at = 0; at < duration;) {
      const end = Math.min(duration, at + Math.ceil(chance() ** 4 * duration / 20) + 100);
      states[id].push([at, end, chance() < 0.6 ? 0 : chance() < 0.5 ? 1 : 2]);
      at = end;
    }
    if (thread >= 3) delete states[id];
    for (let index = 0; index < 40; index++) {
      const at = Math.floor(chance() * duration);
      const kind = (['label', 'instant', 'span', 'log', 'throw', 'catch'] as const)[index % 6];
      marks.push({ track: id, at, to: kind === 'span' ? at + Math.floor(chance() * duration / 50) : null, kind, text: index === 3 ? HOSTILE[0] : `${kind} ${index} of request=${index * 7}`, count: 1 });
    }
  }
  const losses = [{ track: 1, from: Math.floor(duration * 0.42), to: Math.floor(duration * 0.45), events: 1234 }];
  marks.push({ track: 1, at: losses[0].from, to: losses[0].to, kind: 'loss', text: '1,234 events are lost', count: 1 });
  const output: Track = { id: 100, tid: 0, pid: 4242, name: 'output', kind: 'output', depth: 1, from: 0, to: duration, events: 50, has_states: false, has_marks: true };
  for (let index = 0; index < 50; index++) {
    marks.push({ track: 100, at: Math.floor(chance() * duration), kind: 'output', text: `line ${index}: served \u001b[32mrequest\u001b[0m`, count: 1 });
  }
  const counters: CounterData[] = ['queue length', 'bytes in use'].map((name, index) => ({ track: 101 + index, name, pid: 4242, points: [] }));
  const counterTracks = counters.map(({ name, track }): Track => (
    { id: track, tid: 0, pid: 4242, name, kind: 'counter', depth: 1, from: 0, to: duration, events: 500, has_states: false }));
  for (const counter of counters) {
    let value = 100;
    for (let at = 0; at < duration; at += Math.ceil(duration / 500)) counter.points.push([at, (value = Math.max(0, value + Math.floor(chance() * 21) - 10))]);
  }
  const second = thread_(chance, { ...wish, calls: Math.ceil(wish.calls / 4) }, duration, functions.length);
  calls.set(200, second);
  const processes: Process[] = [
    { pid: 4242, name: 'server --port 80', file: 0, tracks: [...tracks, output, ...counterTracks] },
    { pid: 4300, name: 'child', file: 0, tracks: [{ id: 200, tid: 4300, pid: 4300, name: 'child', kind: 'thread', depth: second.rows.length, from: 0, to: duration, events: second.length * 2, has_states: false, has_marks: false }] },
  ];
  const main = calls.get(1) as Calls;
  const roots = [...main.rows[0]].sort((a, b) => main.duration(b) - main.duration(a)).slice(0, 12);
  const events = [...calls.values()].reduce((sum, own) => sum + 2 * own.length, 0);
  const sources: Record<string, string> = {};
  for (const { file, name, line } of functions) {
    if (!file) continue;
    const lines = (sources[file] ??= Array.from({ length: 60 }, (_, index) => `  // line ${index + 1}`).join('\n')).split('\n');
    lines[(line ?? 1) - 1] = `int ${name.slice(0, 60)}(int n, const char *text) {`;
    sources[file] = lines.join('\n');
  }
  return {
    trace: {
      files: [{ name: 'synthetic.ect' }], program: 'server', begin_wall_ns: '1700000000123456789', duration_ns: duration, events, complete: true, read_events: events,
      processes, functions: functions.length,
      kept: roots.map((call, index) => ({
        number: index + 1, trigger: `${functions[main.func[call]].name} > 20us`, track: 1, depth: 0, from: main.from[call], to: main.to[call], duration_ns: main.duration(call),
        shape: [[main.func[call], main.duration(call)], ...(main.end[call] > call + 1 ? [[main.func[call + 1], main.duration(call + 1)]] : [])] as [number, number][],
      })),
      losses,
      modules: modules.map((name) => ({ name })),
      notes: ['1,234 events are lost: a larger --ring-size or --stream keeps more'],
    },
    functions, calls, sources, states, marks: marks.sort((a, b) => a.at - b.at), samples: [], counters,
    all_calls: [],
    labels: [...main.rows[0]].slice(0, 50).map((call, index) => [1, main.from[call], 0, 'request', String(index)]),
  };
}

function thread_(chance: () => number, wish: Wish, duration: number, functions: number): Calls {
  const from: number[] = [];
  const to: number[] = [];
  const func: number[] = [];
  const depth: number[] = [];
  const bits: number[] = [];
  const step = (duration / wish.calls) * 0.5;
  let now = Math.floor(chance() * 100);
  const call = (level: number, around: number): void => {
    const index = from.length;
    const mine = (around * 7 + Math.floor(chance() * 3) + level) % functions;
    from.push(now);
    to.push(0);
    func.push(mine);
    depth.push(level);
    bits.push(chance() < 0.01 ? 4 : chance() < 0.01 ? 16 : chance() < 0.01 ? 8 : 0);
    now += Math.floor(chance() * step) + 1;
    const children = level + 1 < wish.deepest ? Math.floor(chance() ** 2 * 5) : 0;
    for (let child = 0; child < children && from.length < wish.calls; child++) call(level + 1, mine + child);
    now += Math.floor(chance() * step) + (chance() < 0.003 ? Math.floor(step * 200) : 0) + 1;
    to[index] = now;
  };
  while (from.length < wish.calls && now < duration) {
    call(0, Math.floor(chance() * 3));
    now += Math.floor(chance() * step * 2);
  }
  return new Calls(Float64Array.from(from), Float64Array.from(to), Uint32Array.from(func), Uint32Array.from(depth), Uint8Array.from(bits));
}
