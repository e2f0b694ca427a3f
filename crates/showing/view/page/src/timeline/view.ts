// The timeline's canvas: what is drawn in each frame, and what lies under the pointer.

import { LOOKS, css, ofName } from '../colour';
import { duration, plural, shortened, visible } from '../text';
import type { Store } from '../store';
import { soughtOf } from '../state';
import { SEVERAL } from '../types';
import type { Counter, Hits, Mark, Place, SampleRun, Slices, State, States } from '../types';
import { BLOCK, Tiles, levelOf } from './tiles';
import { COUNTER_HEIGHT, MARK_HEIGHT, STATE_HEIGHT, layout, seen } from './layout';
import type { Lane } from './layout';
import { box, copyDown, hatch, paintEdges, paintLines } from './paint';
import type { Canvas, Paints, Special } from './paint';
import { Windowed } from './windowed';

/** What is at a point: a call, a cell of several, a mark, samples, or a thread's state. */
export type Under =
  | { kind: 'call'; place: Place; func: number; count: number }
  | { kind: 'mark'; mark: Mark }
  | { kind: 'state'; state: State }
  | { kind: 'samples'; run: SampleRun }
  | { kind: 'lane' };

const TEXTS_A_FRAME = 1500;

export class View {
  readonly tiles: Tiles;
  private readonly states: Windowed<States>;
  private readonly marks: Windowed<Mark[]>;
  private readonly samples: Windowed<SampleRun[]>;
  private readonly counters: Windowed<Counter[]>;
  private readonly hits: Windowed<Hits>;
  private readonly context: CanvasRenderingContext2D;
  private image: ImageData | null = null;
  private lanes: Lane[] = [];
  height = 0;
  private laidOut: unknown[] = [];
  private scheduled = false;
  private moved = 0;
  private readonly widths = new Map<string, number>();
  private colours: Uint32Array = new Uint32Array(0);
  private coloursOf = '';
  scrollTop = 0;
  /** In CSS pixels. */
  width = 1;
  viewHeight = 1;
  /** Milliseconds of the last frames, for tests and for who wants to know. */
  readonly frames: number[] = [];

  constructor(private readonly canvas: HTMLCanvasElement, private readonly store: Store, private readonly drawn: (lanes: Lane[]) => void) {
    this.context = canvas.getContext('2d', { alpha: false }) as CanvasRenderingContext2D;
    const again = (): void => this.schedule();
    const { source } = store;
    this.tiles = new Tiles(source, again);
    this.states = new Windowed((window) => source.states(window), again);
    this.marks = new Windowed((window) => source.marks(window), again);
    this.samples = new Windowed((window) => source.samples(window), again);
    this.counters = new Windowed((window) => source.counters(window), again);
    this.hits = new Windowed(({ from, to, pixels }) => {
      const sought = soughtOf(store.state);
      return sought ? source.hits(sought, from, to, pixels) : Promise.resolve({ tracks: {} });
    }, again);
  }

  refresh(): void {
    this.tiles.refresh();
    for (const one of [this.states, this.marks, this.samples, this.counters, this.hits]) one.refresh();
    this.schedule();
  }

  /** A newer state of a running program; `numbers`: those of its tracks that have changed. */
  renew(numbers: ReadonlyMap<number, number>): void {
    this.tiles.renew(numbers);
    for (const one of [this.states, this.marks, this.samples, this.counters, this.hits]) one.refresh();
    this.schedule();
  }

  schedule(): void {
    if (this.scheduled) return;
    this.scheduled = true;
    requestAnimationFrame(() => {
      this.scheduled = false;
      const start = performance.now();
      this.draw();
      this.frames.push(performance.now() - start);
      if (this.frames.length > 240) this.frames.shift();
    });
  }

  /** The view moves: requests wait until it rests. */
  touch(): void {
    this.moved = performance.now();
    this.schedule();
  }

  get isIdle(): boolean {
    return !this.scheduled && !this.tiles.isWaiting;
  }

  lay(): Lane[] {
    const { trace, state: { collapsed } } = this.store;
    if (this.laidOut[0] !== trace || this.laidOut[1] !== collapsed) {
      this.laidOut = [trace, collapsed];
      ({ lanes: this.lanes, height: this.height } = layout(trace, collapsed));
    }
    return this.lanes;
  }

  get nsPerPixel(): number {
    const { from, to } = this.store.state.view;
    return (to - from) / this.width;
  }

  timeAt(x: number): number {
    return this.store.state.view.from + x * this.nsPerPixel;
  }

  xOf(at: number): number {
    return (at - this.store.state.view.from) / this.nsPerPixel;
  }

  laneAt(y: number): Lane | null {
    const at = y + this.scrollTop;
    return seen(this.lay(), at, at + 1)[0] ?? null;
  }

  private blocks(lane: Lane, top: number, bottom: number): [number, number] {
    const first = lane.y + (lane.slices ?? 0);
    const depth = lane.track?.depth ?? 0;
    const from = Math.max(0, Math.floor((top - first) / lane.row));
    const to = Math.min(depth - 1, Math.floor((bottom - first) / lane.row), lane.isCollapsed ? BLOCK - 1 : Infinity);
    return [Math.floor(from / BLOCK), Math.floor(to / BLOCK)];
  }

  private prepare(): Paints {
    const { store } = this;
    const look = LOOKS[store.theme];
    const key = `${store.theme} ${store.state.colour}`;
    if (key !== this.coloursOf || this.colours.length !== store.trace.functions) {
      this.coloursOf = key;
      this.colours = new Uint32Array(store.trace.functions);
    }
    const { colours } = this;
    const colour = (id: number): number => {
      const ready = colours[id];
      if (ready) return ready;
      const func = store.names.get(id);
      if (!func) return look.several;
      return (colours[id] = ofName(store.state.colour === 'module' ? `module ${func.module}` : func.name, store.theme));
    };
    return { look, colour, sought: store.soughtFunctions && store.state.query !== '' ? store.soughtFunctions : null };
  }

  private draw(): void {
    const { canvas, context, store } = this;
    const ratio = Math.max(1, Math.min(3, devicePixelRatio || 1));
    const lanes = this.lay();
    this.reveal();
    const [width, height] = [Math.max(1, Math.round(this.width * ratio)), Math.max(1, Math.round(this.viewHeight * ratio))];
    if (canvas.width !== width || canvas.height !== height) [canvas.width, canvas.height] = [width, height];
    if (!this.image || this.image.width !== width || this.image.height !== height) this.image = new ImageData(width, height);
    const target: Canvas = { pixels: new Uint32Array(this.image.data.buffer), width, height };
    const paints = this.prepare();
    const { look } = paints;
    target.pixels.fill(look.background);
    const { view } = store.state;
    const nsPerPixel = (view.to - view.from) / width;
    const scale = { from: view.from, nsPerPixel };
    const level = levelOf(nsPerPixel);
    const shown = seen(lanes, this.scrollTop, this.scrollTop + this.viewHeight);
    const specials: Special[] = [];
    const end = store.trace.duration_ns;
    this.tiles.begin();
    for (const lane of shown) {
      if (!lane.track) {
        box(target, 0, width, Math.round((lane.y - this.scrollTop) * ratio), Math.round(lane.height * ratio), look.lane);
        continue;
      }
      if (lane.slices === null) continue;
      const top = (lane.y - this.scrollTop + lane.slices) * ratio;
      const rowHeight = lane.row * ratio;
      const gap = lane.row >= 6 ? 1 : 0;
      const row = (depth: number): { y: number; height: number } | null => {
        const y = Math.round(top + depth * rowHeight);
        const tall = Math.max(1, Math.round(top + (depth + 1) * rowHeight) - y - gap);
        if (y + tall <= 0 || y >= height) return null;
        if (lane.isCollapsed && depth * lane.row > lane.height - 4) return null;
        return { y, height: tall };
      };
      const [firstBlock, lastBlock] = this.blocks(lane, this.scrollTop, this.scrollTop + this.viewHeight);
      for (let block = firstBlock; block <= lastBlock; block++) {
        const pieces = this.tiles.pieces(lane.track.id, level, block, Math.max(0, view.from), Math.min(end + 1, view.to));
        for (const { tile, from, to } of pieces) {
          if (!tile.slices) continue;
          const clip: [number, number] = [Math.round((from - view.from) / nsPerPixel), Math.round((to - view.from) / nsPerPixel)];
          paintLines(target, tile.slices, scale, clip, row, paints, specials);
        }
      }
      const depths = lane.track.depth;
      for (let depth = Math.max(0, Math.floor(-top / rowHeight) - 1); depth < depths; depth++) {
        const place = row(depth);
        if (place) copyDown(target, place, 0, width);
        else if (top + depth * rowHeight > height || lane.isCollapsed) break;
      }
    }
    for (const special of specials) paintEdges(target, special, paints);
    this.paintStates(target, shown, ratio, scale, paints);
    this.paintLosses(target, shown, ratio, scale, paints);
    context.putImageData(this.image, 0, 0);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.drawTexts(specials, ratio, paints);
    this.drawSamples(shown, paints);
    this.drawCounters(shown, paints);
    this.drawMarks(shown, paints);
    this.drawHits(shown, paints);
    this.drawLines(shown, paints);
    context.setTransform(1, 0, 0, 1, 0, 0);
    this.tiles.end(performance.now() - this.moved < 60);
    this.drawn(shown);
  }

  private reveal(): void {
    const { reveal } = this.store;
    if (!reveal) return;
    const lane = this.lay().find(({ track }) => track?.id === reveal.track);
    this.store.reveal = null;
    if (!lane) return;
    const top = lane.y + (lane.slices ?? 0) + (lane.isCollapsed ? 0 : reveal.depth * lane.row);
    if (top < this.scrollTop + 8 || top + lane.row > this.scrollTop + this.viewHeight - 8) {
      // With as many callers above as fit in a third of the view.
      this.scrollTo(Math.max(0, Math.min(lane.y, top), top - this.viewHeight * 0.45));
    }
  }

  /** Set by the component that has the scrolled element. */
  scrollTo: (top: number) => void = () => undefined;

  private lastStates: States | null = null;

  private paintStates(target: Canvas, shown: Lane[], ratio: number, scale: { from: number; nsPerPixel: number }, { look }: Paints): void {
    const having = shown.filter(({ states }) => states !== null);
    if (having.length === 0) return;
    const states = this.lastStates = this.states.get('', having.map(({ track }) => track?.id ?? -1), this.store.state.view, this.width);
    for (const lane of having) {
      const y = Math.round((lane.y - this.scrollTop + (lane.states ?? 0)) * ratio);
      for (const [from, to, state] of states?.[lane.track?.id ?? -1] ?? []) {
        const x0 = Math.round((from - scale.from) / scale.nsPerPixel);
        const x1 = Math.max(x0 + 1, Math.round((to - scale.from) / scale.nsPerPixel));
        box(target, x0, x1, y, Math.round(STATE_HEIGHT * ratio), look.states[state] ?? look.states[3]);
      }
    }
  }

  /** Where events are missing, or the file hasn't been read yet. */
  private paintLosses(target: Canvas, shown: Lane[], ratio: number, scale: { from: number; nsPerPixel: number }, { look }: Paints): void {
    const { trace } = this.store;
    const x = (at: number): number => Math.round((at - scale.from) / scale.nsPerPixel);
    for (const lane of shown) {
      if (!lane.track || lane.track.kind === 'counter') continue;
      const y = Math.round((lane.y - this.scrollTop) * ratio);
      const tall = Math.round(lane.height * ratio);
      for (const loss of trace.losses) {
        if (loss.track !== lane.track.id) continue;
        const x0 = x(loss.from);
        hatch(target, x0, Math.max(x0 + 2, x(loss.to)), y, tall, look.bad, 9, 2);
      }
      for (const mark of this.lastMarks) {
        if (mark.track === lane.track.id && mark.kind === 'off') hatch(target, x(mark.at), Math.max(x(mark.at) + 2, x(mark.to ?? mark.at)), y, tall, look.several, 7, 2);
      }
      const { complete, read_ns: read, from, to } = lane.track;
      if (!trace.complete && complete !== true && lane.slices !== null) {
        hatch(target, x(Math.max(from, read ?? to)), x(read === undefined ? trace.duration_ns : to), y, tall, look.waiting, 12, 6, look.background);
      }
    }
  }

  private textWidth(text: string): number {
    const known = this.widths.get(text);
    if (known !== undefined) return known;
    if (this.widths.size > 50000) this.widths.clear();
    const width = this.context.measureText(text).width;
    this.widths.set(text, width);
    return width;
  }

  private fitted(text: string, room: number): string {
    const width = this.textWidth(text);
    if (width <= room) return text;
    const letters = Math.floor((room - 8) / (width / text.length));
    return letters < 2 ? '' : `${text.slice(0, letters)}\u2026`;
  }

  private drawTexts(specials: Special[], ratio: number, { look, sought }: Paints): void {
    const { context, store } = this;
    context.font = look.font;
    context.textBaseline = 'middle';
    let texts = 0;
    for (const { slices, index, x0, x1, y, height, hasText } of specials) {
      if (!hasText) continue;
      if (++texts > TEXTS_A_FRAME) break;
      const func = slices.func[index];
      const name = func === SEVERAL ? '' : store.names.short(func);
      const left = Math.max(0, x0 / ratio) + 4;
      const room = Math.min(this.width, x1 / ratio) - left - 3;
      const text = this.fitted(name, room);
      if (text === '') continue;
      const middle = (y + height / 2) / ratio + 0.5;
      context.fillStyle = sought && !sought.has(func) ? look.faint : look.text;
      context.fillText(text, left, middle);
      if (text !== name) continue;
      const time = duration(slices.to[index] - slices.from[index]);
      const used = this.textWidth(name);
      if (room - used > 60) {
        context.globalAlpha = 0.65;
        context.fillText(time, left + used + 8, middle);
        context.globalAlpha = 1;
      }
    }
  }

  private drawCounters(shown: Lane[], { look }: Paints): void {
    const having = shown.filter(({ track }) => track?.kind === 'counter');
    if (having.length === 0) return;
    const { context, store } = this;
    const counters = this.counters.get('', having.map(({ track }) => track?.id ?? -1), store.state.view, this.width);
    context.font = look.font;
    for (const lane of having) {
      const { track } = lane;
      const counter = counters?.find((one) => one.track === track?.id || (one.track === undefined && one.name === track?.name && one.pid === lane.process.pid));
      if (!counter || counter.points.length === 0) continue;
      const tall = (lane.isCollapsed ? lane.height : COUNTER_HEIGHT) - 6;
      const bottom = lane.y - this.scrollTop + 3 + tall;
      let [least, most] = [0, 0];
      for (const [, low, high] of counter.points) [least, most] = [Math.min(least, low), Math.max(most, high)];
      const y = (value: number): number => bottom - ((value - least) / Math.max(1e-300, most - least)) * (tall - 1);
      context.beginPath();
      let lastX = 0;
      let lastValue: number | null = null;
      for (const [at, low, high, value] of counter.points) {
        const x = Math.max(-10, Math.min(this.width + 10, this.xOf(at)));
        if (lastValue === null) context.moveTo(x, y(value));
        else context.lineTo(x, y(lastValue));
        if (low !== high) {
          context.lineTo(x, y(low));
          context.lineTo(x, y(high));
        }
        context.lineTo(x, y(value));
        [lastX, lastValue] = [x, value];
      }
      const endX = Math.min(this.width, this.xOf(store.trace.duration_ns));
      if (lastValue !== null) context.lineTo(Math.max(lastX, endX), y(lastValue));
      context.strokeStyle = look.accent;
      context.lineWidth = 1.25;
      context.stroke();
      context.lineTo(Math.max(lastX, endX), y(least));
      context.lineTo(Math.max(-10, this.xOf(counter.points[0][0])), y(least));
      context.globalAlpha = 0.16;
      context.fillStyle = look.accent;
      context.fill();
      context.globalAlpha = 1;
      if (lane.isCollapsed) continue;
      context.fillStyle = look.faint;
      context.textBaseline = 'top';
      context.fillText(most.toLocaleString('en'), 4, bottom - tall);
    }
  }

  private lastMarks: Mark[] = [];

  private drawMarks(shown: Lane[], { look }: Paints): void {
    const having = shown.filter(({ marks }) => marks !== null);
    if (having.length === 0) {
      this.lastMarks = [];
      return;
    }
    const { context, store } = this;
    this.lastMarks = this.marks.get('', having.map(({ track }) => track?.id ?? -1), store.state.view, this.width) ?? [];
    context.font = look.font;
    context.textBaseline = 'middle';
    const selected = store.state.mark;
    for (const lane of having) {
      const own = this.lastMarks.filter(({ track, kind }) => track === lane.track?.id && kind !== 'loss' && kind !== 'off');
      const top = lane.y - this.scrollTop + (lane.marks ?? 0);
      const middle = top + MARK_HEIGHT / 2;
      own.forEach((mark, index) => {
        const x = this.xOf(mark.at);
        const endX = this.xOf(mark.to ?? mark.at);
        if (endX < -4 || x > this.width) return;
        let nextX = this.width;
        for (let other = index + 1; other < own.length; other++) if (own[other].at > mark.at) {
          nextX = this.xOf(own[other].at);
          break;
        }
        const colour = mark.kind === 'throw' ? css(look.bad) : mark.kind === 'catch' ? css(look.states[0]) : mark.kind === 'label' ? look.accent : look.faint;
        context.fillStyle = colour;
        if (mark.kind === 'span' && endX - x >= 2) {
          context.globalAlpha = 0.25;
          context.fillRect(x, top, endX - x, MARK_HEIGHT - 1);
          context.globalAlpha = 1;
          context.fillRect(x, top + MARK_HEIGHT - 2, endX - x, 1);
        } else {
          symbol(context, mark.kind, x, middle);
        }
        if (selected && selected.track === mark.track && selected.at === mark.at) {
          context.strokeStyle = look.strong;
          context.lineWidth = 2;
          context.strokeRect(x - 6, top, 12, MARK_HEIGHT - 1);
        }
        const said = mark.count > 1 ? `\u00d7${mark.count}` : shortened(visible(shortened(mark.text, 200)), 120);
        const left = Math.max(0, x) + 7;
        const text = this.fitted(said, Math.min(nextX, this.width) - left - 8);
        context.fillStyle = look.text;
        if (text.length > 1) context.fillText(text, left, middle + 0.5);
      });
    }
  }

  private lastSamples: SampleRun[] = [];

  /** Samples below the calls that they belong to: paler than calls, with an edge of dots, as they are moments. */
  private drawSamples(shown: Lane[], { look }: Paints): void {
    const having = shown.filter(({ track, slices }) => track?.has_samples && slices !== null);
    this.lastSamples = [];
    if (having.length === 0) return;
    const { context, store } = this;
    this.lastSamples = this.samples.get('', having.map(({ track }) => track?.id ?? -1), store.state.view, this.width) ?? [];
    context.font = look.font;
    context.textBaseline = 'middle';
    const lanes = new Map(having.map((lane) => [lane.track?.id, lane]));
    let texts = 0;
    for (const run of this.lastSamples) {
      const lane = lanes.get(run.track);
      if (!lane || lane.isCollapsed) continue;
      const y = lane.y - this.scrollTop + (lane.slices ?? 0) + run.depth * lane.row;
      if (y + lane.row < 0 || y > this.viewHeight) continue;
      const x0 = Math.max(-2, this.xOf(run.at));
      const x1 = Math.min(this.width + 2, Math.max(x0 + 1.5, this.xOf(run.to)));
      if (x1 < 0 || x0 > this.width) continue;
      const tall = lane.row - 2;
      context.fillStyle = css(ofName(run.text, store.theme));
      context.globalAlpha = 0.4;
      context.fillRect(x0, y, x1 - x0, tall);
      context.globalAlpha = 1;
      for (let x = x0; x < x1; x += 4) context.fillRect(x, y + tall - 1.5, 1.5, 1.5);
      if (x1 - x0 < 26 || ++texts > TEXTS_A_FRAME) continue;
      const left = Math.max(0, x0) + 4;
      const said = `${visible(shortened(run.text, 200))}, ${plural(run.count, 'sample')}`;
      const text = this.fitted(said, x1 - left - 3);
      context.fillStyle = look.text;
      if (text !== '') context.fillText(text, left, y + tall / 2 + 0.5);
    }
  }

  private samplesAt(lane: Lane, x: number, depth: number): SampleRun | null {
    if (lane.isCollapsed) return null;
    const at = this.timeAt(x);
    const reach = 2 * this.nsPerPixel;
    return this.lastSamples.find((run) => run.track === lane.track?.id && run.depth === depth && run.at - reach <= at && at <= run.to + reach) ?? null;
  }

  private drawHits(shown: Lane[], { look }: Paints): void {
    const sought = soughtOf(this.store.state);
    if (!sought) return;
    const hits = this.hits.get(JSON.stringify(sought), [], this.store.state.view, this.width);
    const { context } = this;
    context.fillStyle = css(look.hit);
    for (const lane of shown) {
      if (!lane.track) continue;
      const y = lane.y - this.scrollTop;
      for (const [from, to] of hits?.tracks[lane.track.id] ?? []) {
        const x = this.xOf(from);
        const wide = Math.max(2, this.xOf(to) - x);
        if (x < this.width && x + wide > 0) context.fillRect(Math.max(-2, x), y, Math.min(wide, this.width + 4), 2.5);
      }
    }
  }

  /** Lines between lanes, the range, the selection, the trace's ends. */
  private drawLines(shown: Lane[], { look }: Paints): void {
    const { context, store } = this;
    const { selection, range } = store.state;
    context.fillStyle = look.line;
    for (const lane of shown) context.fillRect(0, Math.round(lane.y + lane.height - this.scrollTop) - 1, this.width, 1);
    if (range) {
      const [x0, x1] = [Math.max(-2, this.xOf(range.from)), Math.min(this.width + 2, this.xOf(range.to))];
      for (const lane of shown) {
        if (lane.track && range.tracks.length > 0 && !range.tracks.includes(lane.track.id)) continue;
        context.globalAlpha = 0.14;
        context.fillStyle = look.accent;
        context.fillRect(x0, lane.y - this.scrollTop, x1 - x0, lane.height);
        context.globalAlpha = 1;
      }
      context.fillStyle = look.accent;
      context.fillRect(x0 - 0.5, 0, 1, this.viewHeight);
      context.fillRect(x1 - 0.5, 0, 1, this.viewHeight);
    }
    const { whole } = store;
    for (const at of [whole.from, whole.to]) {
      const x = this.xOf(at);
      context.globalAlpha = 0.06;
      context.fillStyle = look.strong;
      if (at === whole.from && x > 0) context.fillRect(0, 0, x, this.viewHeight);
      if (at === whole.to && x < this.width) context.fillRect(x, 0, this.width - x, this.viewHeight);
      context.globalAlpha = 1;
    }
    const lane = selection && shown.find(({ track }) => track?.id === selection.track);
    if (selection && lane && lane.slices !== null) {
      const y = lane.y - this.scrollTop + lane.slices + selection.depth * lane.row;
      const x0 = Math.max(-4, this.xOf(selection.from));
      const x1 = Math.max(x0 + 2, Math.min(this.width + 4, this.xOf(selection.to)));
      context.strokeStyle = look.strong;
      context.lineWidth = 2;
      if (!lane.isCollapsed || y < lane.y + lane.height - this.scrollTop) context.strokeRect(x0 - 1, y - 1, x1 - x0 + 2, lane.row + 1);
    }
  }

  under(x: number, y: number): Under | null {
    const lane = this.laneAt(y);
    if (!lane?.track) return null;
    const at = y + this.scrollTop - lane.y;
    if (lane.marks !== null && at >= lane.marks && at < lane.marks + MARK_HEIGHT) {
      let best: Mark | null = null;
      for (const mark of this.lastMarks) {
        if (mark.track !== lane.track.id || mark.kind === 'loss' || mark.kind === 'off') continue;
        const distance = x - this.xOf(mark.at);
        const room = mark.to ? Math.max(8, this.xOf(mark.to) - this.xOf(mark.at)) : 8 + Math.min(120, this.widths.get(mark.text) ?? 40);
        if (distance >= -7 && distance <= room) best = mark;
      }
      return best ? { kind: 'mark', mark: best } : { kind: 'lane' };
    }
    if (lane.states !== null && at >= lane.states && at < lane.states + STATE_HEIGHT) {
      const moment = this.timeAt(x);
      const state = this.lastStates?.[lane.track.id]?.find(([from, to]) => from <= moment && moment < to);
      return state ? { kind: 'state', state } : { kind: 'lane' };
    }
    if (lane.slices === null || at < lane.slices) return { kind: 'lane' };
    const depth = Math.floor((at - lane.slices) / lane.row);
    const found = this.callAt(lane.track.id, x, depth);
    const run = found ? null : this.samplesAt(lane, x, depth);
    return found ?? (run ? { kind: 'samples', run } : { kind: 'lane' });
  }

  /** The slice at a point, or the nearest within two pixels. */
  private callAt(track: number, x: number, depth: number): Under | null {
    const level = levelOf(this.nsPerPixel / Math.max(1, Math.min(3, devicePixelRatio || 1)));
    const at = this.timeAt(x);
    const reach = 2 * this.nsPerPixel;
    let best: Under | null = null;
    let nearest = Infinity;
    for (const { tile } of this.tiles.pieces(track, level, Math.floor(depth / BLOCK), Math.max(0, at - reach), at + reach)) {
      if (!tile.slices) continue;
      each(tile.slices, depth, (slices, index) => {
        const [from, to] = [slices.from[index], slices.to[index]];
        const distance = at < from ? from - at : at > to ? at - to : 0;
        // Of two that touch, the shorter is the harder to meet.
        const rank = distance + (to - from) * 1e-9;
        if (distance > reach || rank >= nearest) return;
        nearest = rank;
        best = { kind: 'call', place: { track, from, to, depth }, func: slices.func[index], count: slices.count[index] };
      });
    }
    return best;
  }

  /** The call before or after one in its row, of those that are drawn one by one. */
  neighbour(place: Place, isNext: boolean): Place | null {
    const level = levelOf(this.nsPerPixel / Math.max(1, Math.min(3, devicePixelRatio || 1)));
    const { view } = this.store.state;
    let best: Place | null = null;
    for (const { tile } of this.tiles.pieces(place.track, level, Math.floor(place.depth / BLOCK), Math.max(0, view.from), view.to)) {
      if (!tile.slices) continue;
      each(tile.slices, place.depth, (slices, index) => {
        if (slices.count[index] > 1) return;
        const [from, to] = [slices.from[index], slices.to[index]];
        if (isNext ? from >= place.to && from > place.from && (!best || from < best.from) : to <= place.from && from < place.from && (!best || from > best.from)) {
          best = { track: place.track, from, to, depth: place.depth };
        }
      });
    }
    return best;
  }

  /** The first call that is drawn, for who selects by keyboard. */
  firstSeen(): Place | null {
    const { view } = this.store.state;
    for (const lane of seen(this.lay(), this.scrollTop, this.scrollTop + this.viewHeight)) {
      if (!lane.track || lane.slices === null) continue;
      const place = this.neighbour({ track: lane.track.id, from: view.from - 1, to: view.from - 1, depth: 0 }, true) ?? null;
      if (place) return place;
      const under = this.callAt(lane.track.id, this.width / 2, 0);
      if (under?.kind === 'call' && under.count === 1) return under.place;
    }
    return null;
  }
}

function each(slices: Slices, depth: number, visit: (slices: Slices, index: number) => void): void {
  for (let index = 0; index < slices.n; index++) if (slices.depth[index] === depth) visit(slices, index);
}

function symbol(context: CanvasRenderingContext2D, kind: Mark['kind'], x: number, y: number): void {
  context.beginPath();
  if (kind === 'throw') {
    context.moveTo(x - 5, y - 5);
    context.lineTo(x + 5, y - 5);
    context.lineTo(x, y + 5);
  } else if (kind === 'catch') {
    context.moveTo(x - 5, y + 5);
    context.lineTo(x + 5, y + 5);
    context.lineTo(x, y - 5);
  } else if (kind === 'instant' || kind === 'span') {
    context.moveTo(x, y - 5);
    context.lineTo(x + 4.5, y);
    context.lineTo(x, y + 5);
    context.lineTo(x - 4.5, y);
  } else if (kind === 'module') {
    context.rect(x - 4, y - 4, 8, 8);
  } else {
    // Labels, log and output lines: a flag, whose pole is the moment.
    context.rect(x - 0.5, y - 6, 1.5, 12);
    context.moveTo(x, y - 6);
    context.lineTo(x + 5.5, y - 3);
    context.lineTo(x, y);
  }
  context.closePath();
  context.fill();
}
