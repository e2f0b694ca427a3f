// Programs with a loop: the calls of one function, one bar for each, as long as it took.

import type { JSX } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { LOOKS, css } from '../colour';
import { brief, count, duration, moment, plural, visible } from '../text';
import { useStore } from '../store';
import type { Store } from '../store';
import type { Hit, Place } from '../types';
import { useAnswer, useSize } from './answer';

const HEIGHT = 54;
/** Frames that are drawn, the newest ones; a bar is at least two pixels wide. */
const FRAMES_MAX = 5000;
const WIDEST = 14;

interface Frames {
  func: number;
  /** In the order of time. */
  calls: Hit[];
  median: number;
  worst: number;
  total: number;
}

/** The functions of a name: exactly, or without parameters, or as a part. */
function chosen(store: Store, name: string, ids: number[]): number | undefined {
  const names = ids.map((id) => ({ id, whole: store.names.whole(id), short: brief(store.names.whole(id)) }));
  const found = names.find(({ whole }) => whole === name) ?? names.find(({ short }) => short === name) ?? names.find(({ short }) => short.endsWith(`::${name}`));
  return (found ?? names[0])?.id;
}

async function framesOf(store: Store, name: string): Promise<Frames | null> {
  const text = name.replace(/[.*+?^${}()|[\]\\/]/g, '\\$&');
  const { functions } = await store.source.search(`/${text}/`, 1);
  const func = chosen(store, name, functions.map(({ id }) => id));
  if (func === undefined) return null;
  const { hits, total } = await store.source.calls(func, 1_000_000);
  // A recursive call is a part of a frame, not one.
  const calls: Hit[] = [];
  const ends = new Map<number, number>();
  for (const hit of hits) {
    if (hit.depth === null || hit.from < (ends.get(hit.track) ?? -1)) continue;
    ends.set(hit.track, hit.to);
    calls.push(hit);
  }
  const newest = calls.slice(-FRAMES_MAX);
  const lengths = newest.map(({ from, to }) => to - from).sort((a, b) => a - b);
  return { func, calls: newest, median: lengths[lengths.length >> 1] ?? 0, worst: lengths[lengths.length - 1] ?? 0, total };
}

export function FrameBars({ store }: { store: Store }): JSX.Element | null {
  useStore(store, ({ state, trace, names, theme, live }) => [state.frame, state.selection, state.view, trace, names.version, theme, live?.tick]);
  const { frame, selection, view } = store.state;
  const key = frame === '' ? null : `${frame} ${store.trace.generation ?? ''} ${store.trace.read_events} ${store.names.version}`;
  const answer = useAnswer(key, () => framesOf(store, frame));
  const canvas = useRef<HTMLCanvasElement>(null);
  const [attach, { width }] = useSize();
  const frames = answer.value;
  const theme = store.theme;
  const calls = frames?.calls ?? [];
  // All of them, or as many of the newest as there is room for.
  const wide = Math.max(2, Math.min(WIDEST, Math.floor(width / Math.max(1, calls.length))));
  const shown = calls.slice(-Math.max(1, Math.floor(width / wide)));
  useEffect(() => {
    const context = canvas.current?.getContext('2d');
    if (!context || !canvas.current || width === 0) return;
    const ratio = Math.max(1, devicePixelRatio || 1);
    canvas.current.width = Math.round(width * ratio);
    canvas.current.height = Math.round(HEIGHT * ratio);
    context.scale(ratio, ratio);
    const look = LOOKS[theme];
    context.fillStyle = css(look.lane);
    context.fillRect(0, 0, width, HEIGHT);
    if (!frames || shown.length === 0) return;
    const most = Math.max(1, ...shown.map(({ from, to }) => to - from));
    const y = (ns: number): number => HEIGHT - 2 - (ns / most) * (HEIGHT - 8);
    shown.forEach((call, index) => {
      const ns = call.to - call.from;
      const isSelected = selection !== null && selection.track === call.track && selection.from === call.from && selection.depth === call.depth;
      const isInView = call.to >= view.from && call.from <= view.to;
      context.globalAlpha = isInView || isSelected ? 1 : 0.55;
      context.fillStyle = isSelected ? look.accent : css(ns > 2 * frames.median ? look.bad : look.several);
      context.fillRect(index * wide, y(ns), wide - (wide > 3 ? 1 : 0), HEIGHT - y(ns));
    });
    context.globalAlpha = 0.7;
    context.fillStyle = look.accent;
    context.fillRect(0, Math.round(y(frames.median)), width, 1);
    context.globalAlpha = 1;
  }, [frames, width, selection, view, theme]);
  if (frame === '') return null;
  const at = (event: MouseEvent): Hit | undefined => shown[Math.floor((event.clientX - (canvas.current?.getBoundingClientRect().left ?? 0)) / wide)];
  const go = (call: Hit | undefined): void => {
    if (call && call.depth !== null) store.select(call as Place, 'zoom');
  };
  const worst = (): void => go(calls.reduce<Hit | undefined>((best, call) => (best && best.to - best.from >= call.to - call.from ? best : call), undefined));
  return (
    <section class="frames" aria-label={`Frames: calls of ${visible(frame)}`}>
      <div class="facts">
        <b><bdi>{visible(frame)}</bdi></b>
        {frames && calls.length > 0 ? (
          <>
            <span title="Complete and open ones that are kept">{plural(frames.total, 'call')}</span>
            <span>median {duration(frames.median)}</span>
            <span class="buttons">
              <button type="button" class="small" title="Zoom to the longest call" onClick={worst}>Worst: {duration(frames.worst)}</button>
              <button type="button" class="small" title="Durations of all its calls, and the slowest ones" onClick={() => store.set({ func: frames.func, panel: 'instances', isPanelOpen: true }, true)}>Histogram</button>
              <button type="button" class="small" aria-label="Close the frames" title="Close" onClick={() => store.set({ frame: '' }, true)}>&times;</button>
            </span>
          </>
        ) : <span class="faint">{answer.error ?? (answer.isLoading ? '\u2026' : 'no call of it is there')}</span>}
      </div>
      <div class="bars" ref={attach} style={{ height: `${HEIGHT}px` }}>
        <canvas
          ref={canvas} role="img" aria-label={`${count(shown.length)} frames, median ${duration(frames?.median)}, worst ${duration(frames?.worst)}`}
          onClick={(event) => go(at(event))}
          onPointerMove={(event) => {
            const call = at(event);
            event.currentTarget.style.cursor = call ? 'pointer' : 'default';
            event.currentTarget.title = call ? `${duration(call.to - call.from)} from ${moment(call.from, 1000)}; click: zoom to it` : '';
          }}
        />
      </div>
    </section>
  );
}
