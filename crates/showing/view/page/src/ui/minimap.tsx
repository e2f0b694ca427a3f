// The whole trace in one strip: how many events there are, where the window is, and where the hits are.

import type { JSX } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { LOOKS, css } from '../colour';
import { duration } from '../text';
import type { Store } from '../store';
import { useStore } from '../store';
import { useAnswer, useSize } from './answer';

const HEIGHT = 38;
const PIXELS = 1200;
const EDGE = 5;

export function Minimap({ store }: { store: Store }): JSX.Element {
  useStore(store, ({ state, trace, hits, theme }) => [state.view, state.range, trace, hits, theme]);
  const { trace, state: { view, range }, hits } = store;
  const overview = useAnswer(`${trace.read_events} ${trace.duration_ns}`, () => store.source.overview(PIXELS));
  const canvas = useRef<HTMLCanvasElement>(null);
  const [attach, { width }] = useSize();
  const { from: begin, to: last } = store.whole;
  const end = last - begin;
  const theme = store.theme;
  const drag = useRef<{ kind: 'move' | 'left' | 'right'; at: number; from: number; to: number } | null>(null);
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
    const counts = overview.value ?? [];
    const most = Math.max(1, ...counts);
    context.fillStyle = css(look.several);
    counts.forEach((n, index) => {
      if (n === 0) return;
      // The root: few events are seen beside many.
      const tall = Math.max(1, Math.sqrt(n / most) * (HEIGHT - 10));
      const x = (index * width) / counts.length;
      context.fillRect(x, HEIGHT - 4 - tall, Math.max(0.7, width / counts.length), tall);
    });
    context.fillStyle = css(look.bad);
    for (const loss of trace.losses) context.fillRect(((Math.max(begin, loss.from) - begin) / end) * width, HEIGHT - 3, Math.max(2, ((loss.to - Math.max(begin, loss.from)) / end) * width), 3);
    if (!trace.complete && trace.file_bytes) {
      const read = (trace.read_bytes ?? 0) / trace.file_bytes;
      context.fillStyle = look.accent;
      context.fillRect(0, HEIGHT - 2, width * read, 2);
    }
    context.fillStyle = css(look.hit);
    for (const own of Object.values(hits?.tracks ?? {})) {
      for (const [from, to] of own) context.fillRect(((from - begin) / end) * width - 0.5, 0, Math.max(1.5, ((to - from) / end) * width), 6);
    }
    if (range) {
      context.globalAlpha = 0.25;
      context.fillStyle = look.accent;
      context.fillRect(((range.from - begin) / end) * width, 0, Math.max(1, ((range.to - range.from) / end) * width), HEIGHT);
      context.globalAlpha = 1;
    }
    const [x0, x1] = [((view.from - begin) / end) * width, ((view.to - begin) / end) * width];
    context.globalAlpha = 0.5;
    context.fillStyle = css(look.background);
    context.fillRect(0, 0, x0, HEIGHT);
    context.fillRect(x1, 0, width - x1, HEIGHT);
    context.globalAlpha = 1;
    context.strokeStyle = look.accent;
    context.lineWidth = 2;
    context.strokeRect(Math.max(1, x0), 1, Math.max(3, Math.min(width - 1, x1) - Math.max(1, x0)), HEIGHT - 2);
  }, [overview.value, width, view, range, hits, theme, trace]);

  const place = (event: PointerEvent): number => event.clientX - (canvas.current?.getBoundingClientRect().left ?? 0);
  const kindAt = (x: number): 'move' | 'left' | 'right' | 'outside' => {
    const [x0, x1] = [((view.from - begin) / end) * width, ((view.to - begin) / end) * width];
    if (x1 - x0 > 3 * EDGE && Math.abs(x - x0) < EDGE) return 'left';
    if (x1 - x0 > 3 * EDGE && Math.abs(x - x1) < EDGE) return 'right';
    return x > x0 - EDGE && x < x1 + EDGE ? 'move' : 'outside';
  };
  const down = (event: PointerEvent): void => {
    if (event.button !== 0) return;
    store.live?.freeze();
    const x = place(event);
    let kind = kindAt(x);
    let { from, to } = view;
    if (kind === 'outside') {
      const size = to - from;
      [from, to] = [begin + (x / width) * end - size / 2, begin + (x / width) * end + size / 2];
      store.set({ view: { from, to } });
      kind = 'move';
    }
    drag.current = { kind, at: x, from, to };
    (event.currentTarget as HTMLElement).setPointerCapture(event.pointerId);
  };
  const move = (event: PointerEvent): void => {
    const x = place(event);
    const held = drag.current;
    if (!held) {
      const kind = kindAt(x);
      (event.currentTarget as HTMLElement).style.cursor = kind === 'left' || kind === 'right' ? 'ew-resize' : kind === 'move' ? 'grab' : 'pointer';
      return;
    }
    const by = ((x - held.at) / width) * end;
    const least = end / 1e12;
    if (held.kind === 'move') store.set({ view: { from: held.from + by, to: held.to + by } });
    else if (held.kind === 'left') store.set({ view: { from: Math.min(held.from + by, held.to - least - 1), to: held.to } });
    else store.set({ view: { from: held.from, to: Math.max(held.to + by, held.from + least + 1) } });
  };
  return (
    <div class="minimap" ref={attach} style={{ height: `${HEIGHT}px` }}>
      <canvas
        ref={canvas} role="img" aria-label={`Overview of ${duration(end)}; the window is from ${duration(view.from - begin)} to ${duration(view.to - begin)}`}
        onPointerDown={down} onPointerMove={move} onPointerUp={() => { drag.current = null; }} onPointerCancel={() => { drag.current = null; }}
      />
    </div>
  );
}
