// Two files, ranges or calls side by side: functions by difference, and call trees that are aligned.

import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { change, count, duration, moment, visible } from '../text';
import { useStore } from '../store';
import type { Store } from '../store';
import type { Compare, CompareNode } from '../types';
import { useAnswer } from './answer';
import { Difference } from './instances';
import { Name, Table, Waiting } from './pieces';

type Side = 'a' | 'b';

export function ComparePanel({ store }: { store: Store }): JSX.Element {
  useStore(store, ({ state, names, theme, trace }) => [state.a, state.b, state.range, state.selection, names.version, theme, trace]);
  const { a, b } = store.state;
  const { files } = store.trace;
  const [isTree, setTree] = useState(true);
  // With two files, they are what is compared first.
  const [left, right] = a === '' && b === '' && files.length > 1 ? [wholeFile(store, 0), wholeFile(store, 1)] : [a, b];
  const answer = useAnswer(left !== '' && right !== '' ? `${left} ${right}` : null, () => store.source.compare(left, right));
  return (
    <div class="column">
      <div class="toolbar">
        <SideChoice store={store} side="a" value={left} />
        <button type="button" class="small" aria-label="Swap A and B" title="Swap A and B" onClick={() => store.set({ a: right, b: left }, true)}>&#8644;</button>
        <SideChoice store={store} side="b" value={right} />
        <span class="choice" role="group" aria-label="Shown as">
          <button type="button" aria-pressed={isTree} onClick={() => setTree(true)}>Call trees</button>
          <button type="button" aria-pressed={!isTree} onClick={() => setTree(false)}>Functions</button>
        </span>
        {answer.value && <span class="keep">A {duration(answer.value.a.ns)}, B {duration(answer.value.b.ns)}: <b>{change(answer.value.b.ns - answer.value.a.ns)}</b></span>}
      </div>
      {left === '' || right === ''
        ? <p class="empty">Choose what to compare: select a range (Shift and drag) or a call, and take it as A; then another as B.</p>
        : <Waiting answer={answer}>{(compared) => (isTree ? <Tree store={store} compared={compared} /> : <Functions store={store} compared={compared} />)}</Waiting>}
    </div>
  );
}

function wholeFile(store: Store, file: number): string {
  return `range:${file}:0:${Math.ceil(store.trace.duration_ns) + 1}:`;
}

function fileOf(store: Store, track: number): number {
  return store.trace.processes.find(({ tracks }) => tracks.some(({ id }) => id === track))?.file ?? 0;
}

function SideChoice({ store, side, value }: { store: Store; side: Side; value: string }): JSX.Element {
  const { range, selection, view } = store.state;
  const { files, kept } = store.trace;
  const set = (text: string): void => store.set(side === 'a' ? { a: text } : { b: text }, true);
  const options: [string, string][] = files.map(({ name }, file) => [wholeFile(store, file), files.length > 1 ? `file ${visible(name.split('/').pop() ?? name)}` : 'the whole trace']);
  files.forEach(({ name }, file) => {
    const suffix = files.length > 1 ? ` of ${visible(name.split('/').pop() ?? name)}` : '';
    options.push([`range:${file}:${Math.max(0, Math.floor(view.from))}:${Math.ceil(view.to)}:`, `what is in view now${suffix}`]);
    if (range && (range.tracks.length === 0 || fileOf(store, range.tracks[0]) === file)) options.push([`range:${file}:${range.from}:${range.to}:${range.tracks.join(',')}`, `the range (${duration(range.to - range.from)})${suffix}`]);
  });
  if (selection) options.push([`call:${selection.track}:${selection.from}:${selection.depth}`, `the selected call (${duration(selection.to - selection.from)})`]);
  for (const one of kept.slice(0, 50)) if (one.track !== null) options.push([`range:${fileOf(store, one.track)}:${one.from}:${one.to}:${one.track}`, `kept call ${one.number} (${duration(one.duration_ns)})`]);
  if (value !== '' && !options.some(([text]) => text === value)) options.unshift([value, describe(value)]);
  return (
    <label class="side">
      <b class={`letter ${side}`}>{side.toUpperCase()}</b>{' '}
      <select value={value} onChange={(event) => set(event.currentTarget.value)}>
        {value === '' && <option value="">choose&hellip;</option>}
        {options.map(([text, title]) => <option key={text} value={text}>{title}</option>)}
      </select>
    </label>
  );
}

function describe(side: string): string {
  const [kind, , second, third] = side.split(':');
  if (kind === 'call') return `the call at ${moment(Number(second))}`;
  return `${moment(Number(second))} to ${moment(Number(third))} (${duration(Number(third) - Number(second))})`;
}

function Functions({ store, compared }: { store: Store; compared: Compare }): JSX.Element {
  const most = Math.max(1, ...compared.functions.map((row) => Math.abs(row.b_own_ns - row.a_own_ns)));
  return (
    <Table
      label="Functions by difference" rows={compared.functions} sort={['difference', true]} open={(row) => store.set({ func: row.function, panel: 'instances' }, true)}
      columns={[
        { key: 'difference', head: 'Own time, B \u2212 A', width: '160px', value: (row) => Math.abs(row.b_own_ns - row.a_own_ns), show: (row) => <Difference ns={row.b_own_ns - row.a_own_ns} most={most} /> },
        { key: 'a', head: 'Own A', width: '86px', value: (row) => row.a_own_ns, show: (row) => duration(row.a_own_ns) },
        { key: 'b', head: 'Own B', width: '86px', value: (row) => row.b_own_ns, show: (row) => duration(row.b_own_ns) },
        { key: 'aTotal', head: 'Total A', width: '86px', value: (row) => row.a_total_ns, show: (row) => duration(row.a_total_ns) },
        { key: 'bTotal', head: 'Total B', width: '86px', value: (row) => row.b_total_ns, show: (row) => duration(row.b_total_ns) },
        { key: 'aCalls', head: 'Calls A', width: '80px', value: (row) => row.a_calls, show: (row) => count(row.a_calls) },
        { key: 'bCalls', head: 'Calls B', width: '80px', value: (row) => row.b_calls, show: (row) => count(row.b_calls) },
        { key: 'name', head: 'Function', isText: true, width: 'minmax(160px, 1fr)', value: (row) => store.names.short(row.function), show: (row) => <><New a={row.a_calls} b={row.b_calls} /><Name store={store} id={row.function} /></> },
      ]}
    />
  );
}

function New({ a, b }: { a: number; b: number }): JSX.Element | null {
  if (a === 0) return <span class="tag more">only in B</span>;
  if (b === 0) return <span class="tag less">only in A</span>;
  return null;
}

interface Line {
  node: CompareNode;
  depth: number;
  path: string;
}

/** The lines of a tree whose open nodes are known; where the largest differences lead is open from the beginning. */
function linesOf(root: CompareNode, open: ReadonlyMap<string, boolean>): Line[] {
  const lines: Line[] = [];
  const stack: (Line & { isOnPath: boolean })[] = root.children.map((node, index): Line & { isOnPath: boolean } => ({ node, depth: 0, path: `/${node.function}`, isOnPath: index === 0 })).reverse();
  for (let line = stack.pop(); line; line = stack.pop()) {
    lines.push(line);
    const { node, depth, path, isOnPath } = line;
    if (!(open.get(path) ?? (isOnPath && depth < 12))) continue;
    for (let index = node.children.length - 1; index >= 0; index--) {
      const child = node.children[index];
      stack.push({ node: child, depth: depth + 1, path: `${path}/${child.function}`, isOnPath: isOnPath && index === 0 });
    }
  }
  return lines;
}

function Tree({ store, compared }: { store: Store; compared: Compare }): JSX.Element {
  const [open, setOpen] = useState<ReadonlyMap<string, boolean>>(new Map());
  const lines = linesOf(compared.root, open);
  const isOpen = (index: number): boolean => lines[index + 1] !== undefined && lines[index + 1].depth > lines[index].depth;
  const places = new Map(lines.map((line, index) => [line, index]));
  const most = Math.max(1, ...compared.root.children.map(({ a_ns: a, b_ns: b }) => Math.abs(b - a)));
  const longest = Math.max(1, compared.root.a_ns, compared.root.b_ns);
  const toggle = (line: Line): void => setOpen(new Map(open).set(line.path, !isOpen(places.get(line) ?? 0)));
  if (lines.length === 0) return <p class="empty">There are no calls on either side.</p>;
  return (
    <Table
      label="Aligned call trees" rows={lines} open={toggle}
      columns={[
        { key: 'difference', head: 'B \u2212 A', width: '160px', value: ({ node }) => Math.abs(node.b_ns - node.a_ns), show: ({ node }) => <Difference ns={node.b_ns - node.a_ns} most={most} /> },
        {
          key: 'both', head: 'A above B', width: '110px', value: ({ node }) => node.b_ns,
          show: ({ node }) => <span class="both" aria-hidden="true"><i class="a" style={{ width: `${(100 * node.a_ns) / longest}%` }} /><i class="b" style={{ width: `${(100 * node.b_ns) / longest}%` }} /></span>,
        },
        { key: 'a', head: 'A', width: '80px', value: ({ node }) => node.a_ns, show: ({ node }) => (node.a_calls ? duration(node.a_ns) : '') },
        { key: 'b', head: 'B', width: '80px', value: ({ node }) => node.b_ns, show: ({ node }) => (node.b_calls ? duration(node.b_ns) : '') },
        { key: 'aCalls', head: 'Calls A', width: '74px', value: ({ node }) => node.a_calls, show: ({ node }) => count(node.a_calls) },
        { key: 'bCalls', head: 'Calls B', width: '74px', value: ({ node }) => node.b_calls, show: ({ node }) => count(node.b_calls) },
        {
          key: 'name', head: 'Call path', isText: true, width: 'minmax(220px, 1fr)', value: ({ node }) => store.names.short(node.function),
          show: (line) => {
            const { node, depth } = line;
            const unfolded = isOpen(places.get(line) ?? 0);
            return (
              <span style={{ paddingLeft: `${Math.min(depth, 40) * 12}px` }}>
                <span class="fold" aria-label={node.children.length === 0 ? undefined : unfolded ? 'open' : 'closed'}>{node.children.length === 0 ? '\u00a0\u00a0' : unfolded ? '\u25be ' : '\u25b8 '}</span>
                <New a={node.a_calls} b={node.b_calls} /><Name store={store} id={node.function} />
              </span>
            );
          },
        },
      ]}
    />
  );
}
