// Functions by id, fetched in pieces when they are first needed.

import type { Func, Source } from './types';
import { brief, shortened, visible } from './text';

const PIECE = 2000;
/** Longest name that is measured and drawn. */
const DRAWN = 240;

export class Names {
  private readonly functions: (Func | undefined)[] = [];
  private readonly drawn: (string | undefined)[] = [];
  /** By piece: how many functions there were when it was asked for. */
  private readonly asked = new Map<number, number>();
  /** Grows with what is known. */
  version = 0;

  constructor(private readonly source: Source, public size: number, private readonly changed: () => void) {}

  /** More functions are known. */
  grow(size: number): void {
    this.size = Math.max(this.size, size);
  }

  get(id: number): Func | undefined {
    const func = this.functions[id];
    if (!func && id >= 0 && id < this.size) this.ask(Math.floor(id / PIECE));
    return func;
  }

  /** The name as it is drawn in a slice: without parameters. */
  short(id: number): string {
    const ready = this.drawn[id];
    if (ready !== undefined) return ready;
    const func = this.get(id);
    if (!func) return id < this.size ? '' : '?';
    return (this.drawn[id] = shortened(visible(shortened(brief(func.name), DRAWN)), DRAWN));
  }

  /** All of the name, as reports have it, made visible. */
  whole(id: number): string {
    const func = this.get(id);
    return func ? visible(func.full) : id < this.size ? '' : '?';
  }

  private ask(piece: number): void {
    const size = Math.min(this.size, (piece + 1) * PIECE);
    if ((this.asked.get(piece) ?? 0) >= size) return;
    this.asked.set(piece, size);
    this.source.functions(piece * PIECE, size).then((got) => {
      for (const func of got) this.functions[func.id] = func;
      this.version++;
      this.changed();
    }, () => this.asked.delete(piece));
  }
}
