// States, marks, counters and hits: the last answer, for a window three times as wide as what is seen.

import type { Window } from '../types';

const DEBOUNCE_MS = 70;

export class Windowed<T> {
  private answer: { value: T; key: string; from: number; to: number; nsPerPixel: number } | null = null;
  private running = '';
  private timer: ReturnType<typeof setTimeout> | undefined;
  private isStale = false;
  private version = 0;
  private failed = '';

  constructor(private readonly fetch: (window: Window) => Promise<T>, private readonly changed: () => void) {}

  refresh(): void {
    this.isStale = true;
    this.version++;
    this.failed = '';
  }

  /** What there is now. Asks for more if that isn't enough for the view. `kind` names what else the answer depends on. */
  get(kind: string, tracks: number[], view: { from: number; to: number }, pixels: number): T | null {
    const nsPerPixel = (view.to - view.from) / pixels;
    const key = `${kind} ${tracks.join(',')}`;
    const { answer } = this;
    const isEnough = answer !== null && !this.isStale && answer.key === key && answer.from <= view.from && answer.to >= view.to
      && nsPerPixel > answer.nsPerPixel / 1.5 && nsPerPixel < answer.nsPerPixel * 3;
    if (!isEnough) this.ask({ tracks, ...view, pixels }, key);
    return answer?.value ?? null;
  }

  private ask({ tracks, from, to, pixels }: Window, key: string): void {
    const size = to - from;
    const wanted = `${key} ${from} ${to}`;
    if (wanted === this.running || wanted === this.failed) return;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      if (this.running !== '') return;
      this.running = wanted;
      const { version } = this;
      const window = { tracks, from: Math.floor(from - size), to: Math.ceil(to + size), pixels: Math.ceil(3 * pixels) };
      this.fetch(window).then((value) => {
        this.isStale = version !== this.version;
        this.answer = { value, key, from: window.from, to: window.to, nsPerPixel: (window.to - window.from) / window.pixels };
      }, () => {
        this.failed = wanted;
      }).finally(() => {
        this.running = '';
        this.changed();
      });
    }, this.answer === null ? 0 : DEBOUNCE_MS);
  }
}
