// What keys do, and movement while they are held.

import { duration } from '../text';
import type { Store } from '../store';
import type { Place, SliceDetails } from '../types';
import type { Under, View } from '../timeline/view';

export interface Controls {
  /** Where the pointer is over the canvas: zooming keeps this place. */
  pointerX: number | null;
  zoom(factor: number, x: number): void;
  pan(share: number): void;
  choose(under: Under, at: number): void;
  stop(): void;
}

const SHORTEST_NS = 2;
const PAN = 0.12;
const ZOOM = 1.3;
/** Of the window, and as a power of e, in a second. */
const PAN_SPEED = 0.9;
const ZOOM_SPEED = 2.4;

/** A window that still shows a part of the trace. */
export function limited(store: Store, view: { from: number; to: number }): { from: number; to: number } {
  const { from: begin, to: end } = store.whole;
  const size = Math.max(SHORTEST_NS, Math.min(view.to - view.from, (end - begin) * 1.3));
  const middle = (view.from + view.to) / 2;
  const from = Math.max(begin - size * 0.5, Math.min(end - size * 0.5, middle - size / 2));
  return { from, to: from + size };
}

export const MOVES: Record<string, [kind: 'pan' | 'zoom', direction: number]> = {
  w: ['zoom', 1], s: ['zoom', -1], '+': ['zoom', 1], '=': ['zoom', 1], '-': ['zoom', -1], a: ['pan', -1], d: ['pan', 1], ArrowLeft: ['pan', -1], ArrowRight: ['pan', 1],
};

export function controls(store: Store, view: View): Controls {
  const pressed = new Set<string>();
  let last = 0;
  const made: Controls = {
    pointerX: null,
    zoom(factor, x) {
      const { from, to } = store.state.view;
      const size = Math.max(SHORTEST_NS, (to - from) * factor);
      if (store.live?.isFollowing) {
        // The newest events stay at the right.
        const { from: begin, to: end } = store.whole;
        store.live.hasWidth = true;
        store.set({ view: { from: to - Math.min(size, (end - begin) * 1.3), to } });
        return;
      }
      const share = Math.max(0, Math.min(1, x / view.width));
      const at = from + share * (to - from);
      view.touch();
      store.set({ view: limited(store, { from: at - share * size, to: at + (1 - share) * size }) });
    },
    pan(share) {
      store.live?.freeze();
      const { from, to } = store.state.view;
      const by = share * (to - from);
      view.touch();
      store.set({ view: limited(store, { from: from + by, to: to + by }) });
    },
    choose(under, at) {
      if (under.kind !== 'lane') store.live?.freeze();
      if (under.kind === 'mark') {
        store.set({ mark: { track: under.mark.track, at: under.mark.at }, selection: null, panel: 'call', isPanelOpen: true }, true);
        return;
      }
      if (under.kind === 'lane' || under.kind === 'state') {
        store.set({ selection: null, mark: null });
        return;
      }
      if (under.kind === 'samples') {
        // The call that they belong to.
        const { track, at, depth } = under.run;
        if (depth > 0) store.source.slice(track, at, depth - 1).then(select, () => undefined);
        return;
      }
      const { place, count } = under;
      if (count === 1) {
        select(place);
        return;
      }
      // Of several calls in a pixel, the one that is there, or else the first.
      const { track, depth, from } = place;
      store.source.slice(track, Math.round(at), depth).catch(() => store.source.slice(track, from, depth)).then(select, () => undefined);
    },
    stop() {
      removeEventListener('keydown', down);
      removeEventListener('keyup', up);
      removeEventListener('blur', release);
    },
  };
  const select = (place: Place): void => {
    store.select({ track: place.track, from: place.from, to: place.to, depth: place.depth }, 'stay');
    if (store.state.panel === 'kept' || store.state.panel === 'about') store.set({ panel: 'call' });
  };
  const selectInView = (place: Place | null): void => {
    if (place) store.select(place, 'into view');
  };
  const centre = (): number => made.pointerX ?? (() => {
    // Without a pointer, the selection keeps its place.
    const { selection } = store.state;
    if (!selection) return view.width / 2;
    const x = view.xOf((selection.from + selection.to) / 2);
    return x > 0 && x < view.width ? x : view.width / 2;
  })();
  const act = (key: string, share: number): void => {
    const [kind, direction] = MOVES[key];
    if (kind === 'pan') made.pan(direction * share * PAN_SPEED);
    else made.zoom(Math.exp(-direction * share * ZOOM_SPEED), centre());
  };
  const animate = (now: number): void => {
    if (pressed.size === 0) return;
    const seconds = Math.min(0.1, (now - last) / 1000);
    last = now;
    for (const key of pressed) act(key, seconds);
    requestAnimationFrame(animate);
  };
  const nameOf = (event: KeyboardEvent): string => (event.key.length === 1 ? event.key.toLowerCase() : event.key);
  const down = (event: KeyboardEvent): void => {
    const target = event.target as HTMLElement;
    const isTyping = target.closest('input, textarea, select, [contenteditable]') !== null;
    const key = nameOf(event);
    if (key === 'Escape' && !store.helpIsOpen) {
      if (isTyping) {
        // Browsers would empty the box, and the search would go on.
        event.preventDefault();
        target.blur();
      } else store.set({ selection: null, mark: null, range: null, scope: 'trace' }, true);
      return;
    }
    if (isTyping || event.ctrlKey || event.metaKey || event.altKey || store.helpIsOpen) return;
    // In the panel, keys that move are those of tables and graphs.
    const isInPanel = target.closest('.panel, [role=tablist]') !== null;
    if (isInPanel && /^(Arrow|Home|End|Page|Enter| )/.test(key)) return;
    const selection = store.state.selection;
    if (event.shiftKey && selection && key.startsWith('Arrow')) {
      event.preventDefault();
      void walk(key, selection);
      return;
    }
    if (key in MOVES) {
      event.preventDefault();
      if (event.repeat || pressed.has(key)) return;
      const [kind, direction] = MOVES[key];
      if (kind === 'pan') made.pan(direction * PAN);
      else made.zoom(direction > 0 ? 1 / ZOOM : ZOOM, centre());
      const isFirst = pressed.size === 0;
      // What is held for longer than a tap goes on moving.
      setTimeout(() => {
        if (!held.has(key)) return;
        pressed.add(key);
        if (isFirst || pressed.size === 1) {
          last = performance.now();
          requestAnimationFrame(animate);
        }
      }, 160);
      held.add(key);
      return;
    }
    other(key, event);
  };
  const held = new Set<string>();
  const other = (key: string, event: KeyboardEvent): void => {
    const { state, trace, whole } = store;
    const isCanvas = (event.target as HTMLElement).tagName === 'CANVAS';
    const actions: Record<string, () => void> = {
      ArrowUp: () => view.scrollTo(Math.max(0, view.scrollTop - 54)),
      ArrowDown: () => view.scrollTo(view.scrollTop + 54),
      PageUp: () => view.scrollTo(Math.max(0, view.scrollTop - view.viewHeight * 0.8)),
      PageDown: () => view.scrollTo(view.scrollTop + view.viewHeight * 0.8),
      Home: () => made.pan((whole.from - state.view.from) / (state.view.to - state.view.from)),
      End: () => made.pan((whole.to - state.view.to) / (state.view.to - state.view.from)),
      0: () => store.set({ view: whole }, true),
      f: () => {
        const target = state.selection ?? state.range;
        if (target) store.set({ view: store.around(target.from, target.to, false).view }, true);
      },
      m: () => {
        const { selection } = state;
        if (!selection) return;
        store.set({ range: { from: selection.from, to: Math.max(selection.to, selection.from + 1), tracks: event.shiftKey ? [selection.track] : [] }, scope: 'range' }, true);
        store.say(`range of ${duration(selection.to - selection.from)} selected`);
      },
      n: () => void store.step(event.shiftKey),
      ' ': () => store.live?.toggle(),
      k: () => void store.live?.keep(),
      '/': () => document.querySelector<HTMLInputElement>('#search')?.focus(),
      '?': () => {
        store.helpIsOpen = true;
        store.changed();
      },
      c: () => store.set({ colour: state.colour === 'function' ? 'module' : 'function' }, true),
      t: () => store.set({ theme: store.theme === 'dark' ? 'light' : 'dark' }),
      p: () => store.set({ isPanelOpen: !state.isPanelOpen }),
      e: () => {
        // All tracks, or none of them.
        const all = trace.processes.flatMap(({ tracks }) => tracks.filter(({ kind }) => kind !== 'output').map(({ id }) => `t${id}`));
        const isAny = all.some((id) => !state.collapsed.has(id));
        const others = [...state.collapsed].filter((id) => !id.startsWith('t'));
        store.set({ collapsed: new Set(isAny ? [...others, ...all] : others) }, true);
      },
      Enter: () => {
        if (isCanvas && !state.selection) selectInView(view.firstSeen());
      },
    };
    const action = actions[key];
    const isButton = (event.target as HTMLElement).closest('button, summary, [role=button]') !== null;
    if (!action || (key === 'Enter' && !isCanvas) || (key === ' ' && (!store.live || isButton))) return;
    event.preventDefault();
    action();
  };
  const walk = async (key: string, selection: Place): Promise<void> => {
    if (key === 'ArrowLeft' || key === 'ArrowRight') {
      selectInView(view.neighbour(selection, key === 'ArrowRight'));
      return;
    }
    let details: SliceDetails;
    try {
      details = await store.source.slice(selection.track, selection.from, selection.depth);
    } catch {
      return;
    }
    if (key === 'ArrowUp' && details.caller) selectInView({ ...details.caller, track: selection.track });
    const child = details.children[0];
    if (key === 'ArrowDown' && child?.from !== undefined && child.to !== undefined) {
      selectInView({ track: selection.track, from: child.from, to: child.to, depth: child.depth ?? selection.depth + 1 });
    }
  };
  const up = (event: KeyboardEvent): void => {
    held.delete(nameOf(event));
    pressed.delete(nameOf(event));
  };
  const release = (): void => {
    held.clear();
    pressed.clear();
  };
  addEventListener('keydown', down);
  addEventListener('keyup', up);
  addEventListener('blur', release);
  return made;
}
