// The timeline: heads of tracks, ruler and canvas, and what pointer and keys do there.

import type { HTMLAttributes, JSX } from 'preact';
import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import { LOOKS } from '../colour';
import { count, duration, moment, plural, shortened, tickLabel, ticks, visible } from '../text';
import { useStore } from '../store';
import type { Store } from '../store';
import { View } from '../timeline/view';
import type { Under } from '../timeline/view';
import type { Lane } from '../timeline/layout';
import { useSize } from './answer';
import { controls, limited } from './controls';
import type { Controls } from './controls';

export const GUTTER = 184;
const RULER = 24;

export function Timeline({ store }: { store: Store }): JSX.Element {
  const scroll = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const view = useRef<View | null>(null);
  const keys = useRef<Controls | null>(null);
  const [lanes, setLanes] = useState<{ lanes: Lane[]; top: number; height: number }>({ lanes: [], top: 0, height: 0 });
  const [tip, setTip] = useState<{ x: number; y: number; under: Under } | null>(null);
  const [attach, size] = useSize();
  const width = Math.max(50, size.width - GUTTER);
  const scrolled = useCallback((element: HTMLDivElement | null) => {
    scroll.current = element;
    attach(element);
  }, []);

  useEffect(() => {
    if (!canvas.current || !scroll.current) return undefined;
    const element = scroll.current;
    const made = new View(canvas.current, store, (shown) => {
      setLanes((before) => (
        before.top === made.scrollTop && before.height === made.height && before.lanes.length === shown.length && before.lanes.every((lane, index) => lane === shown[index])
          ? before
          : { lanes: shown, top: made.scrollTop, height: made.height }));
    });
    made.scrollTo = (top) => {
      // The content may just have become taller.
      (element.querySelector('.spacer') as HTMLElement).style.height = `${made.height}px`;
      element.scrollTop = top;
      made.scrollTop = element.scrollTop;
    };
    view.current = made;
    keys.current = controls(store, made);
    (window as unknown as { everycall: object }).everycall = { store, view: made };
    const stop = store.listen(() => made.schedule());
    made.lay();
    made.schedule();
    return () => {
      stop();
      keys.current?.stop();
    };
  }, []);

  useEffect(() => {
    if (!view.current || !scroll.current) return;
    view.current.width = width;
    view.current.viewHeight = Math.max(1, size.height);
    view.current.schedule();
    // Overview and timeline end at the same place.
    document.documentElement.style.setProperty('--bar-width', `${scroll.current.offsetWidth - scroll.current.clientWidth}px`);
  }, [width, size.height]);

  // What the keys and the wheel do must not scroll or zoom the page.
  useEffect(() => {
    const element = scroll.current;
    if (!element) return undefined;
    const wheel = (event: WheelEvent): void => {
      const x = event.clientX - element.getBoundingClientRect().left - GUTTER;
      const lines = event.deltaMode === 1 ? 16 : 1;
      if (event.ctrlKey || event.metaKey) {
        event.preventDefault();
        keys.current?.zoom(Math.exp(Math.max(-60, Math.min(60, event.deltaY * lines)) * 0.006), Math.max(0, x));
      } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        event.preventDefault();
        keys.current?.pan(((event.deltaX || event.deltaY) * lines) / width);
      }
    };
    element.addEventListener('wheel', wheel, { passive: false });
    return () => element.removeEventListener('wheel', wheel);
  }, [width]);

  const pointer = usePointer(store, view, keys, scroll, setTip);
  const spacer = lanes.height || view.current?.height || 0;
  return (
    <section class="timeline" aria-label="Timeline" id="timeline">
      <Ruler store={store} width={width} />
      <div
        class="scroll" ref={scrolled}
        onScroll={(event) => {
          if (!view.current) return;
          view.current.scrollTop = event.currentTarget.scrollTop;
          view.current.touch();
          setTip(null);
        }}
      >
        <div class="stage" style={{ height: `${size.height}px`, marginBottom: `${-size.height}px` }}>
          <Gutter store={store} lanes={lanes.lanes} top={lanes.top} />
          <canvas
            ref={canvas} tabIndex={0} role="application" aria-roledescription="timeline" aria-label="Calls over time. W and S zoom, A and D move, Enter selects, the question mark shows all keys."
            style={{ left: `${GUTTER}px`, width: `${width}px`, height: `${size.height}px` }} {...pointer}
          />
        </div>
        <div class="spacer" style={{ height: `${spacer}px` }} />
      </div>
      {tip && <Tip store={store} {...tip} />}
    </section>
  );
}

type Ref<T> = { current: T };
type Handlers = Pick<HTMLAttributes<HTMLCanvasElement>, 'onPointerDown' | 'onPointerMove' | 'onPointerUp' | 'onPointerCancel' | 'onPointerLeave' | 'onDblClick'>;

function usePointer(
  store: Store, view: Ref<View | null>, keys: Ref<Controls | null>, scroll: Ref<HTMLDivElement | null>, setTip: (tip: { x: number; y: number; under: Under } | null) => void,
): Handlers {
  const held = useRef<{ x: number; y: number; from: number; to: number; top: number; isRange: boolean; at: number; hasMoved: boolean; track: number | null } | null>(null);
  const at = (event: MouseEvent): [number, number] => {
    const rectangle = (event.currentTarget as HTMLElement).getBoundingClientRect();
    return [event.clientX - rectangle.left, event.clientY - rectangle.top];
  };
  return {
    onPointerDown: (event) => {
      if (event.button !== 0 || !view.current) return;
      const [x, y] = at(event);
      const { from, to } = store.state.view;
      held.current = { x, y, from, to, top: scroll.current?.scrollTop ?? 0, isRange: event.shiftKey, at: view.current.timeAt(x), hasMoved: false, track: view.current.laneAt(y)?.track?.id ?? null };
      event.currentTarget.setPointerCapture(event.pointerId);
      event.currentTarget.focus({ preventScroll: true });
    },
    onPointerMove: (event) => {
      const drawn = view.current;
      if (!drawn) return;
      const [x, y] = at(event);
      if (keys.current) keys.current.pointerX = x;
      const drag = held.current;
      if (!drag) {
        const under = drawn.under(x, y);
        event.currentTarget.style.cursor = under?.kind === 'call' || under?.kind === 'mark' ? 'pointer' : 'default';
        setTip(under && under.kind !== 'lane' ? { x: event.clientX, y: event.clientY, under } : null);
        return;
      }
      if (!drag.hasMoved && Math.abs(x - drag.x) < 4 && Math.abs(y - drag.y) < 4) return;
      drag.hasMoved = true;
      store.live?.freeze();
      setTip(null);
      drawn.touch();
      if (drag.isRange) {
        const now = drawn.timeAt(x);
        const [from, to] = [Math.round(Math.min(drag.at, now)), Math.round(Math.max(drag.at, now))];
        if (to > from) store.set({ range: { from, to, tracks: [] }, scope: 'range' });
        return;
      }
      event.currentTarget.style.cursor = 'grabbing';
      const by = ((x - drag.x) / drawn.width) * (drag.to - drag.from);
      store.set({ view: limited(store, { from: drag.from - by, to: drag.to - by }) });
      if (scroll.current) scroll.current.scrollTop = drag.top - (y - drag.y);
    },
    onPointerUp: (event) => {
      const drag = held.current;
      held.current = null;
      const drawn = view.current;
      if (!drag || !drawn) return;
      event.currentTarget.style.cursor = 'default';
      if (drag.hasMoved) {
        if (drag.isRange && store.state.range) {
          store.set({}, true);
          store.say(`range of ${duration(store.state.range.to - store.state.range.from)} selected`);
        }
        return;
      }
      const [x, y] = at(event);
      const under = drawn.under(x, y);
      if (under) keys.current?.choose(under, drawn.timeAt(x));
    },
    onPointerCancel: () => { held.current = null; },
    onPointerLeave: () => {
      setTip(null);
      if (keys.current) keys.current.pointerX = null;
    },
    onDblClick: (event) => {
      const [x, y] = at(event);
      const under = view.current?.under(x, y);
      if (under?.kind === 'call') store.live?.freeze();
      if (under?.kind === 'call') store.set({ view: store.around(under.place.from, under.place.to, false).view }, true);
    },
  };
}

function Gutter({ store, lanes, top }: { store: Store; lanes: Lane[]; top: number }): JSX.Element {
  useStore(store, ({ state, trace }) => [state.collapsed, state.range, trace]);
  const toggle = (key: string): void => {
    const collapsed = new Set(store.state.collapsed);
    if (!collapsed.delete(key)) collapsed.add(key);
    store.set({ collapsed }, true);
  };
  return (
    <div class="gutter" style={{ width: `${GUTTER}px` }} role="group" aria-label="Tracks">
      {lanes.map((lane) => {
        const { key, y, height, track, process, isCollapsed } = lane;
        const shift = Math.max(0, Math.min(top - y, height - 22));
        const canFold = track?.kind !== 'output';
        const name = track ? visible(shortened(track.name, 300)) : visible(shortened(process.name || 'process', 300));
        const kind = track?.kind === 'fiber' || track?.kind === 'task' ? `${track.kind} ` : '';
        const detail = track ? (track.tid ? `${kind}${track.tid}` : track.kind) : `pid ${process.pid}`;
        const files = store.trace.files.length > 1 && !track ? ` \u00b7 ${visible(store.trace.files[process.file ?? 0]?.name.split('/').pop() ?? '')}` : '';
        return (
          <div key={key} class={track ? 'lane' : 'lane process'} style={{ top: `${y - top}px`, height: `${height}px` }}>
            <button
              type="button" style={{ top: `${shift}px` }} aria-expanded={canFold ? !isCollapsed : undefined} disabled={!canFold}
              title={`${name} (${detail})${track && track.kind !== 'counter' ? `, ${plural(track.events, 'event')}` : ''}`} onClick={() => toggle(key)}
            >
              <span class="fold" aria-hidden="true">{canFold ? (isCollapsed ? '\u25b8' : '\u25be') : '\u00a0'}</span>
              <span class="title"><bdi>{name}</bdi></span>
              <span class="detail">{detail}{files}</span>
            </button>
          </div>
        );
      })}
    </div>
  );
}

function Ruler({ store, width }: { store: Store; width: number }): JSX.Element {
  useStore(store, ({ state, theme }) => [state.view, state.range, theme]);
  const canvas = useRef<HTMLCanvasElement>(null);
  const { view, range } = store.state;
  const scale = ticks(view.from, view.to, width / 130);
  const theme = store.theme;
  useEffect(() => {
    const context = canvas.current?.getContext('2d');
    if (!context || !canvas.current) return;
    const ratio = Math.max(1, devicePixelRatio || 1);
    canvas.current.width = Math.round(width * ratio);
    canvas.current.height = Math.round(RULER * ratio);
    context.scale(ratio, ratio);
    const look = LOOKS[theme];
    context.clearRect(0, 0, width, RULER);
    context.font = look.font;
    context.textBaseline = 'middle';
    const perNs = width / (view.to - view.from);
    for (let at = scale.first; at <= view.to + scale.step; at += scale.step) {
      const x = (at - view.from) * perNs;
      context.fillStyle = look.faint;
      context.fillRect(Math.round(x), 4, 1, RULER - 4);
      for (let part = 1; part < scale.parts; part++) context.fillRect(Math.round(x + (part * scale.step * perNs) / scale.parts), RULER - 5, 1, 5);
      // One that would be cut tells less than none.
      const label = tickLabel(at, scale);
      if (x + 4 + context.measureText(label).width <= width) context.fillText(label, x + 4, 11);
    }
    if (range) {
      const [x0, x1] = [(range.from - view.from) * perNs, (range.to - view.from) * perNs];
      context.fillStyle = look.accent;
      context.globalAlpha = 0.2;
      context.fillRect(x0, 0, x1 - x0, RULER);
      context.globalAlpha = 1;
      context.fillRect(x0, RULER - 3, x1 - x0, 3);
      const text = duration(range.to - range.from);
      const middle = Math.max(30, Math.min(width - 30, (Math.max(0, x0) + Math.min(width, x1)) / 2));
      context.font = `bold ${look.font}`;
      const wide = context.measureText(text).width + 10;
      if (x1 > 0 && x0 < width) {
        context.fillRect(middle - wide / 2, 3, wide, 16);
        context.fillStyle = theme === 'dark' ? '#10131a' : '#fff';
        context.fillText(text, middle - wide / 2 + 5, 11.5);
      }
    }
  }, [view, range, width, theme]);
  const held = useRef<number | null>(null);
  const at = (event: PointerEvent): number => view.from + ((event.clientX - (canvas.current?.getBoundingClientRect().left ?? 0)) / width) * (view.to - view.from);
  return (
    <div class="ruler" style={{ height: `${RULER}px` }}>
      <div class="base" style={{ width: `${GUTTER}px` }} title="The labels of the axis count from here">{scale.base === null ? '' : `${moment(scale.base, scale.step * 1000)} +`}</div>
      <canvas
        ref={canvas} style={{ width: `${width}px`, height: `${RULER}px` }} aria-hidden="true" title="Drag to select a range"
        onPointerDown={(event) => {
          if (event.button !== 0) return;
          store.live?.freeze();
          held.current = at(event);
          event.currentTarget.setPointerCapture(event.pointerId);
        }}
        onPointerMove={(event) => {
          if (held.current === null) return;
          const now = at(event);
          const [from, to] = [Math.round(Math.min(held.current, now)), Math.round(Math.max(held.current, now))];
          if ((to - from) / (view.to - view.from) > 3 / width) store.set({ range: { from, to, tracks: [] }, scope: 'range' });
        }}
        onPointerUp={(event) => {
          const began = held.current;
          held.current = null;
          if (began === null) return;
          if ((Math.abs(at(event) - began) / (view.to - view.from)) * width < 4) store.set({ range: null, scope: store.state.scope === 'range' ? 'trace' : store.state.scope });
          else store.set({}, true);
        }}
      />
    </div>
  );
}

const STATES = ['running', 'runnable', 'blocked', 'state unknown'];

function Tip({ store, x, y, under }: { store: Store; x: number; y: number; under: Under }): JSX.Element {
  const style = { left: `${Math.min(x + 12, innerWidth - 330)}px`, top: y > innerHeight - 120 ? `${y - 70}px` : `${y + 16}px` };
  if (under.kind === 'call') {
    const { place, func, count: calls } = under;
    return (
      <div class="tip" style={style} aria-hidden="true">
        {calls > 1 ? <b>{plural(calls, 'call')}, closer than a pixel; the longest is of</b> : null}
        <div><bdi>{shortened(store.names.short(func), 160)}</bdi></div>
        {calls === 1 ? <div class="faint">{duration(place.to - place.from)} from {moment(place.from)}</div> : null}
      </div>
    );
  }
  if (under.kind === 'state') {
    const [from, to, state, waker, call] = under.state;
    return (
      <div class="tip" style={style} aria-hidden="true">
        <b>{STATES[state]}{call === undefined ? '' : ` in ${call}`}</b>
        {waker ? <div>woken by thread {waker}</div> : null}
        <div class="faint">{duration(to - from)} from {moment(from)}</div>
      </div>
    );
  }
  if (under.kind === 'samples') {
    const { run } = under;
    return (
      <div class="tip" style={style} aria-hidden="true">
        <b>{plural(run.count, 'sample')}: <bdi>{visible(shortened(run.text, 200))}</bdi></b>
        <div class="faint">{run.to > run.at ? `${duration(run.to - run.at)} from ` : ''}{moment(run.at)}</div>
      </div>
    );
  }
  if (under.kind !== 'mark') return <div />;
  const { mark } = under;
  return (
    <div class="tip" style={style} aria-hidden="true">
      <b>{mark.kind}{mark.count > 1 ? ` \u00d7 ${count(mark.count)}` : ''}</b>
      <div><bdi>{visible(shortened(mark.text, 400))}</bdi></div>
      <div class="faint">{mark.to ? `${duration(mark.to - mark.at)} from ` : ''}{moment(mark.at)}</div>
    </div>
  );
}
