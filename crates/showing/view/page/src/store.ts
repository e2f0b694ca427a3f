// Holds the state, tells who looks at it, and keeps the page's address in step with it.

import { useEffect, useReducer, useRef } from 'preact/hooks';
import type { Live } from './live';
import type { Names } from './names';
import { fromFragment, soughtOf, toFragment } from './state';
import type { State } from './state';
import type { Hit, Hits, Kept, Next, Place, Search, Source, Trace, Track } from './types';

const ADDRESS_MS = 250;

export class Store {
  state: State;
  trace: Trace;
  names!: Names;
  /** Answers of the search. */
  found: Search | null = null;
  isSearching = false;
  searchError: string | null = null;
  next: Next | null = null;
  /** Hits in the whole trace, for the minimap. */
  hits: Hits | null = null;
  soughtFunctions: ReadonlySet<number> | null = null;
  /** Said to screen readers. */
  said = '';
  /** A connection that is gone, or what else there is to say to everybody. */
  trouble: string | null = null;
  helpIsOpen = false;
  /** Of a program that runs. */
  live: Live | null = null;
  private readonly listeners = new Set<() => void>();
  private timer: ReturnType<typeof setTimeout> | undefined;
  private searched = '';
  private searchNumber = 0;
  private readonly tracks = new Map<number, Track>();
  /** Number of the kept call that the address names, until it is shown. */
  private named: number | null = null;

  constructor(readonly source: Source, trace: Trace) {
    this.trace = trace;
    this.index();
    this.state = fromFragment(location.hash, trace.duration_ns);
    const named = /^#kept=(\d+)$/.exec(location.hash);
    if (named) this.named = Number(named[1]);
    const restore = (): void => {
      this.state = fromFragment(location.hash, this.trace.duration_ns);
      this.search();
      this.changed();
    };
    addEventListener('popstate', restore);
    addEventListener('hashchange', restore);
  }

  listen(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  changed(): void {
    for (const listener of this.listeners) listener();
  }

  /** Changes the state. `isStep`: one that the browser's back button undoes. */
  set(change: Partial<State>, isStep = false): void {
    if (isStep) this.writeAddress(false);
    this.state = { ...this.state, ...change };
    if (isStep) {
      this.writeAddress(true);
    } else {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.writeAddress(false), ADDRESS_MS);
    }
    this.search();
    this.changed();
  }

  private writeAddress(isStep: boolean): void {
    clearTimeout(this.timer);
    const fragment = toFragment(this.state, this.trace.duration_ns);
    if (fragment === location.hash.replace(/^#/, '')) return;
    const address = `${location.pathname}${location.search}#${fragment}`;
    try {
      if (isStep) history.pushState(null, '', address);
      else history.replaceState(null, '', address);
    } catch {
      // Browsers limit how often it may be written: the next change writes it.
    }
  }

  /** All that there is to see. */
  get whole(): State['view'] {
    const from = this.trace.begin_ns ?? 0;
    return { from, to: Math.max(from + 1, this.trace.duration_ns) };
  }

  get isWhole(): boolean {
    const { view } = this.state;
    return view.from === this.whole.from && view.to === this.whole.to;
  }

  /** A newer state of a running program; `numbers`: those of its tracks that have changed. */
  setState(trace: Trace, numbers: ReadonlyMap<number, number>): void {
    this.trace = trace;
    this.tracks.clear();
    this.index();
    if (numbers.size > 0) {
      const collapsed = [...this.state.collapsed].map((key) => (key.startsWith('t') ? `t${numbers.get(Number(key.slice(1))) ?? key.slice(1)}` : key));
      this.state = { ...this.state, collapsed: new Set(collapsed), selection: null, mark: null, range: null };
    }
    this.changed();
  }

  setTrace(trace: Trace): void {
    const { isWhole } = this;
    this.trace = trace;
    this.index();
    if (isWhole) this.state = { ...this.state, view: this.whole };
    this.changed();
    this.showNamed();
  }

  private index(): void {
    for (const { tracks } of this.trace.processes) for (const track of tracks) this.tracks.set(track.id, track);
  }

  track(id: number): Track | undefined {
    return this.tracks.get(id);
  }

  say(text: string): void {
    this.said = text;
    this.changed();
  }

  /** Searches once more: there is more to be found. */
  searchAgain(): void {
    if (soughtOf(this.state) === null || this.isSearching) return;
    const { next } = this;
    this.searched = '';
    this.search();
    this.next = next;
  }

  /** Searches, if what is sought has changed. */
  search(): void {
    const sought = soughtOf(this.state);
    const key = JSON.stringify(sought);
    if (key === this.searched) return;
    this.searched = key;
    const number = ++this.searchNumber;
    this.next = null;
    this.searchError = null;
    if (sought === null) {
      Object.assign(this, { found: null, hits: null, soughtFunctions: null, isSearching: false });
      return;
    }
    this.isSearching = true;
    const { from: begin, to: end } = this.whole;
    const functions = 'q' in sought
      ? this.source.search(sought.q, 1000).then((found) => {
        if (number !== this.searchNumber) return;
        this.found = found;
        this.soughtFunctions = new Set(found.functions.map(({ id }) => id));
        this.said = found.total === 0 ? 'no hits' : `${found.total} hits`;
      })
      : Promise.resolve().then(() => {
        this.found = null;
        this.soughtFunctions = new Set([sought.func]);
      });
    Promise.all([functions, this.source.hits(sought, begin, end, 1200).then((hits) => {
      if (number === this.searchNumber) this.hits = hits;
    })]).catch((error: unknown) => {
      if (number !== this.searchNumber) return;
      Object.assign(this, { found: null, hits: null, soughtFunctions: null });
      this.searchError = error instanceof Error ? error.message : String(error);
    }).finally(() => {
      if (number !== this.searchNumber) return;
      this.isSearching = false;
      this.changed();
    });
  }

  /** Goes to the next hit, or the one before. */
  async step(isBackwards: boolean): Promise<void> {
    const sought = soughtOf(this.state);
    if (!sought) return;
    this.live?.freeze();
    const { selection } = this.state;
    const from: Hit | null = this.next?.hit ?? (selection ? { ...selection } : null);
    try {
      this.next = await this.source.next(sought, from, isBackwards);
    } catch (error) {
      this.searchError = error instanceof Error ? error.message : String(error);
      this.changed();
      return;
    }
    const { hit, index, total } = this.next;
    if (!hit) return;
    if (hit.depth === null) this.set({ mark: { track: hit.track, at: hit.from }, selection: null, ...this.around(hit.from, hit.to, true) });
    else this.select(hit as Place, 'into view');
    this.say(`hit ${index} of ${total}`);
  }

  /** A window around a stretch of time: at least so long that its surroundings are seen. */
  around(from: number, to: number, keepsScale: boolean): { view: State['view']; collapsed: State['collapsed'] } {
    const { view, collapsed } = this.state;
    const size = view.to - view.from;
    const length = Math.max(to - from, 1);
    if (keepsScale && from >= view.from && to <= view.to && length * 300 > size) return { view, collapsed };
    if (keepsScale && length < size * 0.8 && length * 300 > size) {
      const middle = (from + to) / 2;
      return { view: { from: middle - size / 2, to: middle + size / 2 }, collapsed };
    }
    // With its surroundings, or as large as it fits.
    const rim = Math.max(length * (keepsScale ? 4 : 0.15), 5);
    return { view: { from: from - rim, to: to + rim }, collapsed };
  }

  /** Selects a call; `how` it comes into view. */
  select(place: Place, how: 'stay' | 'into view' | 'zoom'): void {
    this.live?.freeze();
    const { track, from, to, depth } = place;
    const change: Partial<State> = { selection: { track, from, to, depth }, mark: null };
    if (how !== 'stay') {
      change.view = this.around(from, to, how === 'into view').view;
      const collapsed = new Set(this.state.collapsed);
      collapsed.delete(`t${track}`);
      this.trace.processes.forEach((process, index) => {
        if (process.tracks.some(({ id }) => id === track)) collapsed.delete(`p${process.file ?? 0}.${process.pid}.${index}`);
      });
      change.collapsed = collapsed;
      this.reveal = { track, depth };
    }
    this.set(change, true);
  }

  /** Goes to a kept call, or to the moment of a snapshot. */
  showKept({ track, depth, from, to }: Kept): void {
    if (track !== null && depth !== null) this.select({ track, depth, from, to }, 'zoom');
    else this.set({ view: this.around(from, to, false).view, range: { from, to: Math.max(to, from + 1), tracks: [] }, scope: 'range' }, true);
  }

  /** Goes to the kept call that the address names, once it has been read. */
  showNamed(): void {
    const kept = this.trace.kept.find(({ number }) => number === this.named);
    if (!kept || (kept.depth === null && !this.trace.complete)) return;
    this.named = null;
    this.showKept(kept);
  }

  /** What the timeline scrolls to in its next frame. */
  reveal: { track: number; depth: number } | null = null;

  get theme(): 'dark' | 'light' {
    const { theme } = this.state;
    if (theme !== 'auto') return theme;
    return matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light';
  }
}

/** Draws a component again when one of the values that it looks at has changed. */
export function useStore(store: Store, pick: (store: Store) => unknown[]): State {
  const [, again] = useReducer((n: number) => n + 1, 0);
  const last = useRef<unknown[]>([]);
  const now = useRef(pick);
  now.current = pick;
  last.current = pick(store);
  useEffect(() => store.listen(() => {
    const values = now.current(store);
    if (values.length !== last.current.length || values.some((value, index) => value !== last.current[index])) again(0);
  }), [store]);
  return store.state;
}
