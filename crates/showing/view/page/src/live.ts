// A program that runs: asks for its newest state, and moves the view with it until it is frozen.

import type { Store } from './store';
import type { RunningFacts, Source, Trace, Track } from './types';
import type { View } from './timeline/view';

const POLL_MS = 120;
/** Between two looks when nothing new is wanted: they keep what is frozen. */
const HOLD_MS = 2000;
/** Of the view when the page is opened, once so much is known. */
const WIDTH_NS = 5e9;
/** Tables and hits are of the newest state so often. */
const TABLES_MS = 1000;

export class Live {
  facts: RunningFacts | null = null;
  isFrozen = false;
  /** Grows when tables are to be made again. */
  tick = 0;
  /** The range in view, for tables: as it was at the last tick. */
  ticked: { from: number; to: number };
  /** Whether what is frozen isn't kept any more. */
  private gone = false;
  private tickedAt = 0;
  /** The view moves from a state to the next one within this time. */
  private period = 300;
  private arrived = 0;
  private start = 0;
  private target = 0;
  private isMoving = false;

  constructor(private readonly store: Store, private readonly source: Source) {
    const { duration_ns: end } = store.trace;
    this.target = end;
    this.ticked = store.state.view;
    this.hasWidth = location.hash.includes('view=');
    if (!this.hasWidth) store.set({ view: { from: end - this.width(0), to: end } });
  }

  /** Until somebody zooms: as much as is kept, at most five seconds; without many small changes. */
  private width(now: number): number {
    const { from, to } = this.store.whole;
    const wanted = Math.min(WIDTH_NS, Math.max(1, to - from));
    return this.hasWidth || (now > wanted * 0.7 && now < wanted * 1.4) ? now : wanted;
  }

  /** Somebody chose how long the view is. */
  hasWidth: boolean;

  /** Messages for everybody. */
  get trouble(): string | null {
    if (this.gone) return 'What was frozen is not kept any more: this page was asleep, or too many others are frozen. Space goes on with the newest calls.';
    return this.facts?.failed ? `The newest calls can't be shown: ${this.facts.failed}` : null;
  }

  get isFollowing(): boolean {
    return !this.isFrozen && this.facts?.over == null;
  }

  /** Ends with the page. */
  async run(): Promise<void> {
    for (;;) {
      await this.look();
      const isQuick = !this.isFrozen && !this.isLast;
      await new Promise((resolve) => setTimeout(resolve, isQuick ? POLL_MS : HOLD_MS));
    }
  }

  /** Whether nothing newer will come. */
  private get isLast(): boolean {
    return this.facts?.over != null && this.facts.generation === this.store.trace.generation && this.sawOver;
  }

  private sawOver = false;

  private async look(): Promise<void> {
    const { running } = this.source;
    if (!running) return;
    let facts: RunningFacts;
    try {
      facts = await running(this.isFrozen);
    } catch {
      // `alive` says it.
      return;
    }
    // The state after the end has what was left.
    if (facts.over != null && this.facts?.over != null && facts.generation === this.facts.generation) this.sawOver = true;
    const hasChanged = JSON.stringify(facts) !== JSON.stringify(this.facts);
    this.facts = facts;
    this.gone = this.isFrozen && !facts.held;
    if (!this.isFrozen && facts.generation !== this.store.trace.generation) await this.load();
    else if (hasChanged) this.store.changed();
  }

  private async load(): Promise<void> {
    let trace: Trace;
    try {
      trace = await this.source.trace();
    } catch {
      return;
    }
    if (this.isFrozen) return;
    this.show(trace);
  }

  private show(trace: Trace): void {
    const { store } = this;
    const now = performance.now();
    if (this.arrived > 0) this.period = Math.min(2000, 0.7 * this.period + 0.3 * (now - this.arrived));
    this.arrived = now;
    const wasWhole = store.isWhole;
    const numbers = renumbered(store.trace, trace);
    this.source.generation = trace.generation ?? null;
    store.names.grow(trace.functions);
    if (now - this.tickedAt >= TABLES_MS) {
      this.tickedAt = now;
      this.tick++;
      this.ticked = store.state.view;
      store.searchAgain();
    }
    const { view } = (window as unknown as { everycall?: { view: View } }).everycall ?? {};
    store.setState(trace, numbers);
    view?.renew(numbers);
    this.start = store.state.view.to;
    this.target = trace.duration_ns;
    if (wasWhole) store.set({ view: store.whole });
    else if (!this.isMoving) this.move();
  }

  /** Moves the view to the newest events, smoothly where what is seen is long enough for that. */
  private move(): void {
    const { store } = this;
    const step = (): void => {
      this.isMoving = false;
      if (this.isFrozen) return;
      const { from, to } = store.state.view;
      const size = this.width(to - from);
      const distance = this.target - this.start;
      const share = distance > size / 3 || distance < 0 ? 1 : Math.min(1, (performance.now() - this.arrived) / this.period);
      const end = Math.max(1, this.start + distance * share);
      if (end !== to || size !== to - from) store.set({ view: { from: end - size, to: end } });
      if (share < 1) again();
    };
    const again = (): void => {
      this.isMoving = true;
      requestAnimationFrame(step);
    };
    again();
  }

  /** Whoever looks at something wants it to stay. */
  freeze(): void {
    if (this.isFrozen) return;
    this.isFrozen = true;
    this.tick++;
    this.ticked = this.store.state.view;
    this.store.say('frozen');
    // The state that is looked at has to stay.
    void this.look();
  }

  thaw(): void {
    if (!this.isFrozen) return;
    this.isFrozen = false;
    this.gone = false;
    const { view } = this.store.state;
    const end = this.store.trace.duration_ns;
    this.store.set({ selection: null, mark: null, range: null, scope: 'trace', view: { from: end - (view.to - view.from), to: end } });
    this.store.say('live');
    void this.look();
  }

  /** Functions that were switched off here; whether others were, isn't known. */
  readonly off = new Set<number>();
  /** Functions that are recorded since the last switch, or why nothing was switched. */
  switched: { said?: string; error?: string } | null = null;

  /** Records the calls of a function from now on, or no longer. */
  async switch(func: number, isOn: boolean): Promise<void> {
    try {
      this.switched = { said: await this.source.switch?.(func, isOn) };
      if (isOn) this.off.delete(func);
      else this.off.add(func);
    } catch (error) {
      this.switched = { error: error instanceof Error ? error.message : String(error) };
    }
    this.store.say(this.switched.said ?? this.switched.error ?? '');
  }

  /** The file that was kept last, or why there is none. */
  kept: { file?: string; error?: string } | null = null;

  /** Writes what is frozen, or the range that is selected, to a file. */
  async keep(): Promise<void> {
    this.freeze();
    try {
      this.kept = { file: await this.source.keep?.(this.store.state.range) };
    } catch (error) {
      this.kept = { error: error instanceof Error ? error.message : String(error) };
    }
    this.store.say(this.kept.file ? `kept in ${this.kept.file}` : (this.kept.error ?? ''));
  }

  toggle(): void {
    if (this.isFrozen) this.thaw();
    else this.freeze();
  }
}

const keyOf = (pid: number | undefined, { kind, tid, name }: Track): string => `${pid} ${kind} ${kind === 'counter' || kind === 'output' ? name : tid}`;

/** The new numbers of tracks whose numbers have changed, by their old ones; -1: they are gone. */
export function renumbered(before: Trace, now: Trace): Map<number, number> {
  const found = new Map<string, number>();
  for (const { pid, tracks } of now.processes) for (const track of tracks) found.set(keyOf(pid, track), track.id);
  const changed = new Map<number, number>();
  for (const { pid, tracks } of before.processes) {
    for (const track of tracks) {
      const id = found.get(keyOf(pid, track)) ?? -1;
      if (id !== track.id) changed.set(track.id, id);
    }
  }
  return changed;
}
