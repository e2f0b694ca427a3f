// Where the page has its data from: a server, or itself. Both answer the same requests.

import type { Query } from './answers';
import { decodeSlices } from './decode';
import type * as t from './types';

/** Sends a request and gives the answer: slices as columns, anything else as JSON has it. */
export type Ask = (path: string, query: Query) => Promise<unknown>;

export function makeSource(ask: Ask, isLocal: boolean): t.Source {
  const get = <T>(path: string, query: Query = {}): Promise<T> => ask(path, query) as Promise<T>;
  const window = ({ tracks, from, to, pixels }: t.Window): Query =>
    ({ tracks: tracks.join(','), from: String(from), to: String(to), pixels: String(pixels) });
  const scope = ({ from, to, tracks, call }: t.Scope): Query => {
    if (call) return { call: `${call.track}:${call.at}:${call.depth}` };
    return { ...(Number.isFinite(from) ? { from: String(Math.floor(from)), to: String(Math.ceil(to)) } : {}), ...(tracks.length > 0 ? { tracks: tracks.join(',') } : {}) };
  };
  const sought = (what: t.Sought): Query => ('q' in what ? { q: what.q } : { function: String(what.func) });
  const place = (track: number, at: number, depth: number): Query => ({ track: String(track), at: String(at), depth: String(depth) });
  return {
    isLocal,
    generation: null,
    trace: () => get('trace'),
    functions: (from, to) => get('functions', { from: String(from), to: String(to) }),
    slices: (of, [first, end]) => get('slices', { ...window(of), depths: `${first}-${end}` }),
    states: (of) => get('states', window(of)),
    marks: (of) => get('marks', window(of)),
    samples: (of) => get('samples', window(of)),
    counters: (of) => get('counters', window(of)),
    overview: (pixels) => get('overview', { pixels: String(pixels) }),
    slice: (track, at, depth) => get('slice', place(track, at, depth)),
    search: (q, limit) => get('search', { q, limit: String(limit) }),
    calls: (func, limit) => get('search', { function: String(func), limit: String(limit) }),
    hits: (what, from, to, pixels) => get('hits', { ...sought(what), from: String(from), to: String(to), pixels: String(pixels) }),
    next: (what, from, backwards) => get('next', {
      ...sought(what),
      ...(from ? { from: String(from.from), track: String(from.track), depth: from.depth === null ? '' : String(from.depth) } : {}),
      dir: backwards ? 'previous' : 'next',
    }),
    report: (of, by) => get('report', { ...scope(of), by }),
    flame: (of) => get('flame', scope(of)),
    instances: (func, of, limit) => get('instances', { ...scope(of), function: String(func), limit: String(limit) }),
    explain: (track, at, depth) => get('explain', place(track, at, depth)),
    source: (func) => get('source', { function: String(func) }),
    compare: (a, b) => get('compare', { a, b }),
    text: (of, limit) => get('text', { ...scope(of), limit: String(limit) }),
  };
}

/** The server that gave out the page. */
export function remote(): t.Source {
  const source = makeSource(async (path, query) => {
    // The contents are always those of the newest state.
    const isOfState = source.generation !== null && path !== 'trace';
    const asked = new URLSearchParams(isOfState ? { ...query, generation: String(source.generation) } : query);
    const response = await fetch(`./${path}?${asked}`);
    if (!response.ok) {
      const said = (await response.json().catch(() => null)) as { error?: string } | null;
      throw new Error(said?.error ?? `The server answered with status ${response.status}.`);
    }
    if (path !== 'slices') return response.json() as Promise<unknown>;
    const depths = Number(query.depths.split('-')[0]);
    const all = decodeSlices(await response.arrayBuffer());
    // Depths count from the first that was asked for.
    if (depths > 0) for (const slices of all) slices.depth = Uint32Array.from(slices.depth, (depth) => depth + depths);
    return all;
  }, false);
  source.running = async (isFrozen) => {
    const query = new URLSearchParams({ generation: String(source.generation ?? 0), ...(isFrozen ? { frozen: '1' } : {}) });
    const response = await fetch(`./running?${query}`);
    if (!response.ok) throw new Error(`The server answered with status ${response.status}.`);
    return (await response.json()) as t.RunningFacts;
  };
  const told = async (path: string, query: Record<string, string>, key: string): Promise<string> => {
    const response = await fetch(`./${path}?${new URLSearchParams(query)}`);
    const said = (await response.json()) as Record<string, string>;
    if (said[key] === undefined) throw new Error(said.error ?? `The server answered with status ${response.status}.`);
    return said[key];
  };
  source.switch = (func, isOn) => told('switch', { function: String(func), on: isOn ? '1' : '0' }, 'said');
  source.keep = (range) => {
    const of: Record<string, string> = range ? { from: String(Math.floor(range.from)), to: String(Math.ceil(range.to)) } : {};
    return told('keep', { generation: String(source.generation ?? 0), ...of }, 'file');
  };
  return source;
}

/** The data in this page, answered by a worker with this code. */
export async function local(data: string, code: string, workerUrl: string): Promise<t.Source> {
  const worker = new Worker(workerUrl);
  const waiting = new Map<number, { resolve: (answer: unknown) => void; reject: (error: Error) => void }>();
  let last = 0;
  const send = (message: object): Promise<unknown> =>
    new Promise((resolve, reject) => {
      const id = last++;
      waiting.set(id, { resolve, reject });
      worker.postMessage({ id, ...message });
    });
  worker.onmessage = ({ data: answer }: MessageEvent<{ id: number; answer?: unknown; error?: string }>) => {
    const one = waiting.get(answer.id);
    waiting.delete(answer.id);
    if (answer.error === undefined) one?.resolve(answer.answer);
    else one?.reject(new Error(answer.error));
  };
  worker.onerror = (event) => {
    for (const { reject } of waiting.values()) reject(new Error(event.message || 'The worker of the page ended.'));
    waiting.clear();
  };
  await send({ load: data, code });
  return makeSource((path, query) => send({ path, query }), true);
}
