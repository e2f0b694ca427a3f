// Functions by id, fetched in pieces when they are first needed.

import type { Func, Source } from './types';
import { brief, shortened, visible } from './text';

const PIECE = 2000;
/** Longest name that is measured and drawn. */
const DRAWN = 240;

export class Names {
  private readonly functions: (Func | undefined)[] = [];
  private readonly drawn: (string | undefined)[] = [];
  private readonly asked = new Set<number>();
  /** Grows with what is known. */
  version = 0;

  constructor(private readonly source: Source, readonly size: number, private readonly changed: () => void) {}

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
    if (this.asked.has(piece)) return;
    this.asked.add(piece);
    this.source.functions(piece * PIECE, Math.min(this.size, (piece + 1) * PIECE)).then((got) => {
      for (const func of got) this.functions[func.id] = func;
      this.version++;
      this.changed();
    }, () => this.asked.delete(piece));
  }
}
