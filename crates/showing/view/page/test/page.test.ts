// What of the page needs no browser: decoding, cells, layout, tiles, numbers, names, the address.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { readFileSync } from 'node:fs';
import { gunzipSync, gzipSync } from 'node:zlib';
import { BadData, Numbers, NumberWriter, decodeSlices, encodeSlices, fromBase64, gunzip } from '../src/decode';
import { cells, mergedMarks, mergedStates } from '../src/drawing/cells';
import { Calls, readData, writeData } from '../src/drawing/data';
import type { Data } from '../src/drawing/data';
import { Answers } from '../src/answers';
import { Local } from '../src/local';
import * as t from '../src/types';
import { fromFragment, initial, toFragment } from '../src/state';
import { brief, change, duration, exact, shortened, tickLabel, ticks, visible } from '../src/text';
import { hash, ofName } from '../src/colour';
import { statesInWords } from '../src/ui/call';
import { layout, seen } from '../src/timeline/layout';
import { Tiles, levelOf, tileSize } from '../src/timeline/tiles';
import { copyDown, paintLines } from '../src/timeline/paint';
import { LOOKS } from '../src/colour';
import { synthetic } from '../dev/synthetic';

const wish = { seed: 3, calls: 4000, threads: 3, deepest: 9 };

/** main 0..100 (f: 10..40 (g: 20..30), f: 50..90, of which f 60..70), and a call of no length. */
function small(): Calls {
  return new Calls(
    Float64Array.from([0, 10, 20, 50, 60, 95]), Float64Array.from([100, 40, 30, 90, 70, 95]),
    Uint32Array.from([0, 1, 2, 1, 1, 2]), Uint32Array.from([0, 1, 2, 1, 2, 1]), Uint8Array.from([0, 0, 4, 0, 0, 0]),
  );
}

const code = gunzipSync(readFileSync('dist/answers.wasm.gz'));

async function local(data: Data): Promise<Local> {
  return new Local(data, await Answers.of(code, writeData(data)));
}

function dataOf(calls: Calls): Data {
  const data = synthetic({ ...wish, threads: 1, calls: 10 });
  data.calls = new Map([[1, calls]]);
  data.marks = [];
  data.all_calls = [];
  return data;
}

const engineOf = (calls: Calls): Promise<Local> => local(dataOf(calls));

test('slices survive their binary form', () => {
  const calls = synthetic(wish).calls.get(1) as Calls;
  const before = cells(1, calls, 0, 1e6, 700, [2, 6]);
  assert.ok(before.n > 100);
  const [after] = decodeSlices(encodeSlices([before], 2));
  assert.deepEqual([...after.depth].map((depth) => depth + 2), [...before.depth]);
  for (const key of ['from', 'to', 'func', 'count', 'bits'] as const) assert.deepEqual([...after[key]], [...before[key]]);
});

test('an answer that is truncated anywhere is refused', () => {
  const whole = encodeSlices([cells(1, small(), 0, 100, 100, [0, 9]), cells(2, small(), 0, 100, 100, [0, 9])], 0);
  assert.equal(decodeSlices(whole).length, 2);
  for (let length = 0; length < whole.byteLength - 8; length++) assert.throws(() => decodeSlices(whole.slice(0, length)), (error) => error instanceof BadData || error instanceof RangeError);
});

test('numbers of any size survive', () => {
  const writer = new NumberWriter();
  const values = [0, 1, 127, 128, 300, 2 ** 31, 2 ** 32 + 5, 2 ** 52 + 1];
  for (const value of values) writer.write(value);
  for (const value of [0, -1, 1, -64, 2 ** 40, -(2 ** 40)]) writer.writeSigned(value);
  const reader = new Numbers(Uint8Array.from(writer.bytes), 0, writer.bytes.length);
  assert.deepEqual(values.map(() => reader.next()), values);
  assert.deepEqual([0, 1, 2, 3, 4, 5].map(() => reader.nextSigned()), [0, -1, 1, -64, 2 ** 40, -(2 ** 40)]);
  assert.ok(reader.isDone);
  assert.throws(() => reader.next(), BadData);
});

test('the data of a page of its own survives', async () => {
  const data = synthetic(wish);
  const text = gzipSync(writeData(data)).toString('base64');
  const back = readData(await gunzip(fromBase64(text)));
  assert.deepEqual(back.functions, data.functions);
  for (const [track, calls] of data.calls) {
    const other = back.calls.get(track);
    for (const key of ['from', 'to', 'func', 'depth', 'bits', 'parent', 'end'] as const) assert.deepEqual(other?.[key], calls[key]);
  }
});

test('cells: no call is lost, none is counted twice, and there are at most two for a pixel', () => {
  const data = synthetic(wish);
  for (const calls of data.calls.values()) {
    for (const pixels of [7, 100, 1024]) {
      const all = cells(1, calls, 0, data.trace.duration_ns + 1, pixels, [0, 1000]);
      assert.equal(all.count.reduce((a, b) => a + b, 0), calls.length);
      assert.ok(all.n <= 2 * pixels * calls.rows.length + calls.rows.length);
    }
    const exactly = cells(1, calls, 1000, 3000, 1e6, [0, 1000]);
    const expected = [...calls.from].filter((from, call) => from < 3000 && (calls.to[call] > 1000 || from >= 1000)).length;
    assert.equal(exactly.n, expected);
    assert.ok(exactly.count.every((n) => n === 1));
  }
});

test('states and marks that share a pixel are merged, and counted', () => {
  assert.deepEqual(mergedStates([[0, 52, 0], [52, 53, 1], [53, 100, 2]], 0, 100, 10), [[0, 53, 0], [53, 100, 2]]);
  const wait: t.State = [0, 52, 2, null, 'futex'];
  assert.deepEqual(mergedStates([wait, [52, 53, 1, 7]], 0, 100, 10), [[0, 53, 2, null, 'futex']]);
  assert.deepEqual(mergedStates([[0, 2, 0], [2, 9, 2, null, 'read']], 0, 100, 10), [[0, 9, 2, null, 'read']]);
  const mark = (at: number): t.Mark => ({ track: 1, at, kind: 'instant', text: String(at), count: 1 });
  assert.deepEqual(mergedMarks([mark(1), mark(2), mark(50), { ...mark(51), track: 2 }], new Set([1]), 0, 100, 10).map(({ at, count }) => [at, count]), [[1, 2], [50, 1]]);
});

test('a call says in which system calls its thread waited, the longest first', async () => {
  const data = dataOf(small());
  data.states[1] = [[0, 12, 0], [12, 15, 2, null, 'read'], [15, 20, 1, 9], [20, 38, 2, null, 'futex'], [38, 50, 2]];
  const engine = await local(data);
  const { states } = engine.answer('slice', { track: '1', at: '12', depth: '1' }) as t.SliceDetails;
  assert.deepEqual(states, { running_ns: 2, runnable_ns: 5, blocked_ns: 23, unknown_ns: 0, blocked_in: [['futex', 18], ['read', 3]] });
  assert.equal(statesInWords(states as t.StateSums), 'running 2 ns, runnable 5 ns, blocked 23 ns (futex 18 ns, read 3 ns)');
});

test('a report counts recursion once, and own times add up', async () => {
  const { rows, calls } = (await engineOf(small())).answer('report', { by: 'function' }) as t.Report;
  const of = (id: number): t.ReportRow => rows.find((row) => row.function === id) as t.ReportRow;
  assert.equal(calls, 6);
  assert.deepEqual([of(0).total_ns, of(0).own_ns], [100, 30]);
  assert.deepEqual([of(1).calls, of(1).total_ns, of(1).own_ns], [3, 70, 60]);
  assert.deepEqual([of(2).calls, of(2).unwound, of(2).own_ns, of(2).p50_ns, of(2).max_ns], [2, 1, 10, 0, 10]);
  assert.equal(rows.reduce((sum, row) => sum + row.own_ns, 0), 100);
});

test('all calls are counted where times and paths do not matter', async () => {
  const data = dataOf(small());
  data.all_calls = [[1, 1, 40], [1, null, 2], [2, 1, 7], [3, 1, 5]];
  const engine = await local(data);
  const report = (query: Record<string, string>): (number | null | undefined)[][] =>
    (engine.answer('report', query) as t.Report).rows.map((row) => [row.function, row.calls, row.all_calls]).sort((a, b) => Number(a[0]) - Number(b[0]));
  // Function 3 is not in the ring any more, function 0 was not counted.
  assert.deepEqual(report({ by: 'function' }), [[0, 1, null], [1, 3, 42], [2, 2, 7], [3, 0, 5]]);
  assert.deepEqual(report({ by: 'function', tracks: '1' }), [[0, 1, null], [1, 3, 40], [2, 2, 7], [3, 0, 5]]);
  assert.deepEqual(report({ by: 'function', from: '0', to: '1000' }).map((row) => row[2]), [null, null, null]);
  assert.ok((engine.answer('report', { by: 'path' }) as t.Report).rows.every((row) => row.all_calls === null));
  const threads = (engine.answer('report', { by: 'thread' }) as t.Report).rows;
  assert.deepEqual(threads.map((row) => row.all_calls).sort(), [2, 52]);
  assert.equal((engine.answer('slice', { track: '1', at: '12', depth: '1' }) as t.SliceDetails).all_calls, 42);
  const found = engine.answer('instances', { function: '1' }) as t.Instances;
  assert.deepEqual([found.calls, found.all_calls], [3, 42]);
  const { functions } = engine.answer('search', { q: engine.data.functions[1].full, limit: '9' }) as t.Search;
  assert.equal(functions.find(({ id }) => id === 1)?.all_calls, 42);
});

test('a call has its caller, what it called, and its own time', async () => {
  const details = (await engineOf(small())).answer('slice', { track: '1', at: '55', depth: '1' }) as t.SliceDetails;
  assert.deepEqual([details.from, details.to, details.own_ns, details.caller?.function, details.path], [50, 90, 30, 0, [0, 1]]);
  assert.deepEqual(details.children.map((child) => [child.function, child.calls, child.total_ns, child.from]), [[1, 1, 10, 60]]);
  assert.equal(((await engineOf(small())).answer('slice', { track: '1', at: '95', depth: '1' }) as t.SliceDetails).function, 2);
  const engine = await engineOf(small());
  assert.throws(() => engine.answer('slice', { track: '1', at: '45', depth: '1' }));
});

test('next and previous visit each hit once, in order, and begin anew', async () => {
  const data = synthetic(wish);
  const engine = await local(data);
  const { total } = engine.answer('search', { q: 'parse_p', limit: '10' }) as t.Search;
  assert.ok(total > 20);
  let cursor: Record<string, string> = {};
  const seenHits: string[] = [];
  for (let step = 1; step <= total; step++) {
    const { hit, index } = engine.answer('next', { q: 'parse_p', dir: 'next', ...cursor }) as t.Next;
    assert.equal(index, step);
    cursor = { from: String(hit?.from), track: String(hit?.track), depth: String(hit?.depth) };
    seenHits.push(JSON.stringify(cursor));
  }
  assert.equal(new Set(seenHits).size, total);
  assert.equal((engine.answer('next', { q: 'parse_p', dir: 'next', ...cursor }) as t.Next).index, 1);
  const back = engine.answer('next', { q: 'parse_p', dir: 'previous', ...cursor }) as t.Next;
  assert.equal(back.index, total - 1);
  assert.throws(() => engine.answer('search', { q: '/(/', limit: '10' }));
});

test('instances: the histogram has all calls, and the slowest come first', async () => {
  const data = synthetic(wish);
  const engine = await local(data);
  const func = (data.calls.get(1) as Calls).func[0];
  const found = engine.answer('instances', { function: String(func), limit: '5' }) as t.Instances;
  assert.equal(found.histogram.reduce((sum, { calls }) => sum + calls, 0), found.count);
  const times = found.slowest.map(({ from, to }) => to - from);
  assert.deepEqual(times, [...times].sort((a, b) => b - a));
  assert.equal(times[0], found.max);
  for (const { from_ns: from, to_ns: to, longest } of found.histogram) {
    const time = (longest?.to ?? 0) - (longest?.from ?? 0);
    assert.ok(time >= from * 0.999 && time < to * 1.001, `${time} is in ${from} to ${to}`);
  }
});

test('a comparison of a thing with itself has no differences, and says what is new', async () => {
  const engine = await engineOf(small());
  const same = engine.answer('compare', { a: 'call:1:50:1', b: 'call:1:50:1' }) as t.Compare;
  assert.ok(same.functions.every((row) => row.a_own_ns === row.b_own_ns));
  const other = engine.answer('compare', { a: 'call:1:50:1', b: 'call:1:10:1' }) as t.Compare;
  const [f] = other.root.children;
  assert.deepEqual([f.a_ns, f.b_ns], [40, 30]);
  assert.deepEqual(f.children.map((child) => [child.function, child.a_calls, child.b_calls]), [[2, 0, 1]]);
  assert.throws(() => engine.answer('compare', { a: 'everything', b: '' }));
});

test('explain: the differences are those of the whole call', async () => {
  const data = synthetic(wish);
  const engine = await local(data);
  const calls = data.calls.get(1) as Calls;
  const explained = engine.answer('explain', { track: '1', at: String(calls.from[0]), depth: '0' }) as t.Explain;
  const sum = explained.rows.reduce((total, row) => total + row.here_ns - row.median_ns, 0);
  assert.equal(sum, explained.here_ns - explained.median_ns);
});

/** As in the analysis's own test: 1 jumps to 2, which calls 1 and jumps to 3; returns; jumps to untraced code (5). */
function jumping(): Calls {
  const rows: [from: number, to: number, func: number, depth: number, bits: number][] = [
    [0, 700, 0, 0, 0], [10, 20, 1, 1, t.TAIL], [12, 15, 4, 2, 0], [20, 40, 2, 1, t.TAIL | t.BY_TAIL], [25, 30, 1, 2, 0],
    [40, 400, 3, 1, t.BY_TAIL], [500, 510, 1, 1, 0], [600, 603, 1, 1, t.TAIL], [603, 650, 5, 1, t.AT_MOST | t.UNTRACED],
  ];
  const column = (of: number): number[] => rows.map((row) => row[of]);
  return new Calls(
    Float64Array.from(column(0)), Float64Array.from(column(1)), Uint32Array.from(column(2)), Uint32Array.from(column(3)), Uint8Array.from(column(4)),
  );
}

test('what a call did is its own also behind its tail call, as the server says it', async () => {
  const engine = await engineOf(jumping());
  const explain = (at: number): t.Explain => engine.answer('explain', { track: '1', at: String(at), depth: '1' }) as t.Explain;
  const slow = explain(10);
  assert.deepEqual([slow.here_ns, slow.median_ns], [390, 50]);
  const of = (kind: string, func: number | null): number[] => {
    const row = slow.rows.find((one) => one.kind === kind && one.function === func) as t.ExplainRow;
    return [row.here_ns, row.here_calls, row.median_ns];
  };
  assert.deepEqual([of('call', 4), of('call', 2), of('call', 3)], [[3, 1, 0], [20, 1, 0], [360, 1, 0]]);
  assert.deepEqual([of('own', null), of('tail', null)], [[7, 0, 3], [0, 0, 47]]);
  assert.equal(explain(600).here_ns, 50);
  // Within a call that goes on.
  assert.throws(() => engine.answer('explain', { track: '1', at: '25', depth: '2' }), /part of another call/);
  // Untraced code is no call, and its time is that of the call around it.
  const { rows, calls } = engine.answer('report', { by: 'function' }) as t.Report;
  assert.deepEqual([calls, rows.find((row) => row.function === 0)?.own_ns], [8, 700 - 10 - 20 - 360 - 10 - 3]);
  assert.equal(rows.find((row) => row.function === 5), undefined);
  // The target's end isn't known: the call has no duration.
  const cut = jumping();
  cut.bits[5] |= t.CUT_END;
  const unknown = (await engineOf(cut));
  assert.throws(() => unknown.answer('explain', { track: '1', at: '10', depth: '1' }), /part of another call/);
});

test('what could not be seen in a name is marked', () => {
  assert.equal(visible('a\u202eb\u0000\u001b[31m\u200b\ufeff'), 'a<U+202E>b<U+0000><U+001B>[31m<U+200B><U+FEFF>');
  assert.equal(visible('</script> \u00e4\u4e2d\u{1f600}'), '</script> \u00e4\u4e2d\u{1f600}');
  assert.equal(visible('\ud800x\udc00'), '<U+D800>x<U+DC00>');
  assert.equal(shortened('x'.repeat(1000), 11), 'xxxxxxx\u2026xxx');
});

test('durations and moments', () => {
  const texts: [number, string][] = [[0, '0 ns'], [999, '999 ns'], [1234, '1.23 \u00b5s'], [12_345, '12.3 \u00b5s'], [123_456, '123 \u00b5s'], [999_990, '1.00 ms'], [7.42e6, '7.42 ms'], [90e9, '90.0 s'], [7200e9, '2.00 h']];
  for (const [ns, text] of texts) assert.equal(duration(ns), text);
  assert.equal(duration(null), '\u2013');
  assert.equal(exact(1234567), '1\u202f234\u202f567 ns');
  assert.equal(change(-1500), '\u22121.50 \u00b5s');
});

test('ticks are round, not too many, and cover the window', () => {
  for (const [from, to] of [[0, 20e6], [1.234567e9, 1.234568e9], [3, 9], [0.25, 2.5], [5e12, 5e12 + 40]]) {
    const scale = ticks(from, to, 8);
    assert.ok(scale.first <= from && (to - from) / scale.step <= 8.01, `${from} ${to} ${scale.step}`);
    const labels = [1, 2, 3].map((n) => tickLabel(scale.first + n * scale.step, scale));
    assert.equal(new Set(labels).size, 3, labels.join(' '));
    assert.ok(labels.every((label) => label.length < 14), labels.join(' '));
  }
});

test('the address of the page keeps the view', () => {
  const state = {
    ...initial(5000), view: { from: 12.5, to: 99 }, collapsed: new Set(['t3', 'p0.1.0']), selection: { track: 2, from: 10, to: 20, depth: 3 },
    range: { from: 5, to: 7, tracks: [1, 2] }, query: 'a&b=#\u202e', func: 7, panel: 'flame' as const, theme: 'dark' as const, scope: 'range' as const, a: 'range:0:1:2:3,4', b: 'call:1:2:3',
  };
  assert.deepEqual(fromFragment(`#${toFragment(state, 5000)}`, 5000), state);
  assert.equal(toFragment(initial(5000), 5000), '');
  assert.deepEqual(fromFragment('#view=9~x&call=1~2&panel=<b>&a=javascript:1&range=7~5&height=-1&theme=pink', 5000), { ...initial(5000), panelHeight: 120 });
});

test('lanes follow each other, and those in view are found', () => {
  const { trace } = synthetic(wish);
  const { lanes, height } = layout(trace, new Set());
  lanes.reduce((y, lane) => {
    assert.equal(lane.y, y);
    return y + lane.height;
  }, 0);
  assert.deepEqual(seen(lanes, 0, height), lanes);
  for (let y = 0; y < height; y += 13) assert.deepEqual(seen(lanes, y, y + 1), lanes.filter((lane) => lane.y < y + 1 && lane.y + lane.height > y));
  const folded = layout(trace, new Set([lanes[0].key, 't1']));
  assert.ok(folded.height < height);
});

test('tiles: what is missing is asked for once, and coarser ones stand in for it', async () => {
  const calls = synthetic(wish).calls.get(1) as Calls;
  const asked: string[] = [];
  const source = {
    slices: async ({ tracks, from, to, pixels }: t.Window, depths: [number, number]) => {
      asked.push(`${from} ${to}`);
      return tracks.map((track) => cells(track, calls, from, to, pixels, depths));
    },
  } as unknown as t.Source;
  const tiles = new Tiles(source, () => undefined);
  const frame = (level: number, to: number): ReturnType<Tiles['pieces']> => {
    tiles.begin();
    const pieces = tiles.pieces(1, level, 0, 0, to);
    tiles.end(false);
    return pieces;
  };
  const settled = async (): Promise<void> => {
    while (tiles.isWaiting) await new Promise((resolve) => setTimeout(resolve, 1));
  };
  assert.deepEqual(frame(10, tileSize(10)), []);
  await settled();
  assert.equal(frame(10, tileSize(10)).length, 1);
  const finer = frame(8, tileSize(10));
  assert.ok(finer.length === 4 && finer.every(({ tile }) => tile.level === 10));
  await settled();
  assert.ok(frame(8, tileSize(10)).every(({ tile }) => tile.level === 8));
  await settled();
  assert.equal(asked.length, 5);
  assert.equal(new Set(asked).size, 5);
  tiles.refresh();
  frame(8, tileSize(10));
  await settled();
  assert.equal(asked.length, 5);
});

test('the level of tiles has about the size of a pixel', () => {
  for (let perPixel = 1; perPixel < 1e12; perPixel *= 1.37) {
    const ratio = 2 ** levelOf(perPixel) / perPixel;
    assert.ok(ratio > 0.7 && ratio < 1.42, `${perPixel} ${ratio}`);
  }
  assert.equal(levelOf(0.001), 0);
});

test('rows are painted where their calls are', () => {
  const canvas = { pixels: new Uint32Array(100 * 20).fill(1), width: 100, height: 20 };
  const paints = { look: LOOKS.light, colour: (func: number) => 0x1000 + func, sought: null };
  const row = (depth: number): { y: number; height: number } => ({ y: depth * 5, height: 4 });
  paintLines(canvas, cells(1, small(), 0, 100, 100, [0, 9]), { from: 0, nsPerPixel: 1 }, [0, 100], row, paints, []);
  for (const depth of [0, 1, 2]) copyDown(canvas, row(depth), 0, 100);
  const at = (x: number, y: number): number => canvas.pixels[y * 100 + x];
  assert.deepEqual([at(5, 0), at(99, 3), at(5, 4)], [0x1000, 0x1000, 1]);
  assert.deepEqual([at(9, 6), at(25, 6), at(25, 12), at(45, 6), at(65, 8), at(65, 13), at(95, 7), at(96, 7)], [1, 0x1001, 0x1002, 1, 0x1001, 0x1001, 0x1002, 1]);
});

test('a frame of 72,000 cells is painted in time', () => {
  const n = 1200 * 60;
  const slices: t.Slices = {
    track: 1, incomplete: false, n, from: new Float64Array(n), to: new Float64Array(n), func: new Uint32Array(n), count: new Uint32Array(n).fill(2), depth: new Uint32Array(n), bits: new Uint8Array(n),
  };
  for (let index = 0; index < n; index++) {
    slices.depth[index] = Math.floor(index / 1200);
    slices.from[index] = index % 1200;
    slices.to[index] = slices.from[index] + 0.8;
    slices.func[index] = index % 97;
  }
  const canvas = { pixels: new Uint32Array(1200 * 1080), width: 1200, height: 1080 };
  let painted = 0;
  const colour = (func: number): number => {
    painted++;
    return func + 1;
  };
  paintLines(canvas, slices, { from: 0, nsPerPixel: 1 }, [0, 1200], (depth) => ({ y: depth * 18, height: 17 }), { look: LOOKS.dark, colour, sought: null }, []);
  for (let depth = 0; depth < 60; depth++) copyDown(canvas, { y: depth * 18, height: 17 }, 0, 1200);
  assert.equal(painted, n);
  assert.ok(canvas.pixels.subarray(0, 1200 * 17).every((pixel) => pixel !== 0));
});

test('a name has one colour, whatever trace it is in', () => {
  assert.equal(hash('main'), hash('main'));
  assert.equal(ofName('main', 'dark'), ofName('main', 'dark'));
  assert.ok(new Set(Array.from({ length: 200 }, (_, index) => ofName(`function ${index}`, 'light'))).size > 50);
});

test('a name is drawn without its parameters', () => {
  const names: [string, string][] = [
    ['main', 'main'], ['f(int, char const*)', 'f'], ['(anonymous namespace)::Queue::push(std::function<void (int)>) const', 'Queue::push'],
    ['S::operator()(int)', 'S::operator()'], ['S::operator()', 'S::operator()'], ['f(int) [resume]', 'f [resume]'], ['(', '('], [')', ')'], ['', ''], ['main::{lambda(int)#1}::operator()(int) const', 'main::{lambda(int)#1}::operator()'],
  ];
  for (const [whole, short] of names) assert.equal(brief(whole), short);
});
