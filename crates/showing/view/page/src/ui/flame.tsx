// Flame graph of the scope: callers above, what they called below, wide as the time it took.

import type { JSX } from 'preact';
import { useEffect, useMemo, useState } from 'preact/hooks';
import { css, ofName } from '../colour';
import { count, duration, plural } from '../text';
import { useStore } from '../store';
import type { Store } from '../store';
import type { FlameNode } from '../types';
import { useAnswer, useSize } from './answer';
import { useScope } from './panels';
import { Waiting } from './pieces';

const ROW = 19;

interface Box {
  node: FlameNode;
  parent: Box | null;
  x: number;
  width: number;
  depth: number;
}

export function FlamePanel({ store }: { store: Store }): JSX.Element {
  const [scope, key] = useScope(store);
  const answer = useAnswer(key, () => store.source.flame(scope));
  return <Waiting answer={answer}>{(flame) => <Graph store={store} root={flame.root} prunedCalls={flame.pruned_calls ?? 0} prunedNs={flame.pruned_ns ?? 0} />}</Waiting>;
}

/** The nodes from the root to a box. */
function pathTo(box: Box): FlameNode[] {
  const path: FlameNode[] = [];
  for (let at: Box | null = box; at; at = at.parent) path.push(at.node);
  return path.reverse();
}

/** Boxes of all nodes that are at least a pixel wide. */
export function boxes(path: FlameNode[], width: number): Box[] {
  const out: Box[] = [];
  const zoomed = path[path.length - 1];
  let above: Box | null = null;
  path.slice(0, -1).forEach((node, depth) => out.push((above = { node, parent: above, x: 0, width, depth })));
  const perNs = width / Math.max(1, zoomed.total_ns);
  const open: Box[] = [{ node: zoomed, parent: above, x: 0, width, depth: path.length - 1 }];
  for (let box = open.pop(); box; box = open.pop()) {
    out.push(box);
    const { node, x, depth } = box;
    let at = x;
    for (const child of node.children) {
      const wide = child.total_ns * perNs;
      if (wide >= 1) open.push({ node: child, parent: box, x: at, width: wide, depth: depth + 1 });
      at += wide;
    }
  }
  return out;
}

function Graph({ store, root, prunedCalls, prunedNs }: { store: Store; root: FlameNode; prunedCalls: number; prunedNs: number }): JSX.Element {
  useStore(store, ({ state, names, theme }) => [state.colour, names.version, theme]);
  const [path, setPath] = useState<FlameNode[]>([root]);
  const [attach, { width }] = useSize();
  const [shown, setShown] = useState<FlameNode | null>(null);
  useEffect(() => setPath([root]), [root]);
  const laid = useMemo(() => (width > 0 ? boxes(path, width) : []), [path, width]);
  const deepest = laid.reduce((most, { depth }) => Math.max(most, depth), 0);
  const about = shown ?? path[path.length - 1];
  if (root.total_ns === 0) return <p class="empty">No calls there.</p>;
  return (
    <div class="column">
      <div class="toolbar">
        <b class="ellipsis">{about.function < 0 ? 'All' : store.names.short(about.function)}</b>
        <span class="keep">{duration(about.total_ns)} ({((100 * about.total_ns) / root.total_ns).toFixed(1)} %), own {duration(about.own_ns)}{about.calls > 0 ? `, ${plural(about.calls, 'call')}` : ''}</span>
        {about.function >= 0 && <button type="button" onClick={() => store.set({ func: about.function, panel: 'instances' }, true)}>Its calls</button>}
        {path.length > 1 && <button type="button" onClick={() => setPath([root])}>Zoom out</button>}
        {prunedCalls > 0 && <span class="faint keep">Not drawn: paths below 0.05 %, {plural(prunedCalls, 'call')}, {duration(prunedNs)}</span>}
      </div>
      <div class="flame" ref={attach} role="tree" aria-label="Flame graph">
        <div style={{ height: `${(deepest + 1) * ROW}px` }} onMouseLeave={() => setShown(null)}>
          {laid.map((box, index) => {
            const { node, x, width: wide, depth } = box;
            const func = node.function < 0 ? undefined : store.names.get(node.function);
            const colour = func ? css(ofName(store.state.colour === 'module' ? `module ${func.module}` : func.name, store.theme)) : undefined;
            const text = node.function < 0 ? 'all' : store.names.short(node.function);
            return (
              <div
                key={`${depth} ${x} ${node.function}`} role="treeitem" aria-level={depth + 1} tabIndex={index === 0 ? 0 : -1} aria-label={`${text}, ${duration(node.total_ns)}, ${count(node.calls)} calls`}
                style={{ left: `${x}px`, width: `${Math.max(1, wide - 1)}px`, top: `${depth * ROW}px`, background: colour }}
                class={node === zoomedOf(path) ? 'zoomed' : depth < path.length - 1 ? 'above' : ''}
                onClick={() => { setPath(pathTo(box)); setShown(null); }} onMouseEnter={() => setShown(node)} onFocus={() => setShown(node)} onKeyDown={(event) => arrows(event, () => setPath(pathTo(box)))}
              >
                {wide > 24 ? text : ''}
              </div>
            );
          })}
        </div>
      </div>
    </div>
  );
}

const zoomedOf = (path: FlameNode[]): FlameNode => path[path.length - 1];

/** Moves the focus between boxes: up and down by level, left and right within it. */
function arrows(event: KeyboardEvent, zoom: () => void): void {
  const here = event.currentTarget as HTMLElement;
  if (event.key === 'Enter' || event.key === ' ') {
    event.preventDefault();
    zoom();
    return;
  }
  const step = { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1] }[event.key];
  if (!step) return;
  event.preventDefault();
  const level = Number(here.getAttribute('aria-level')) + step[0];
  const left = here.offsetLeft;
  const end = left + here.offsetWidth;
  let best: HTMLElement | null = null;
  for (const other of here.parentElement?.children ?? []) {
    if (!(other instanceof HTMLElement) || Number(other.getAttribute('aria-level')) !== level || other === here) continue;
    const x = other.offsetLeft;
    if (step[0] > 0 ? x >= left - 1 && x < end && (!best || other.offsetWidth > best.offsetWidth)
      : step[0] < 0 ? x <= left + 1 && x + other.offsetWidth >= left
        : step[1] > 0 ? x > left && (!best || x < best.offsetLeft) : x < left && (!best || x > best.offsetLeft)) best = other;
  }
  best?.focus();
}
