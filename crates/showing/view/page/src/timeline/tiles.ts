// Slices in tiles: a tile has 1,024 pixels of 2^level nanoseconds of one track, and 128 depths of it. What isn't there
// is asked for; until it comes, coarser or finer tiles take its place.

import type { Slices, Source } from '../types';

export const TILE_PIXELS = 1024;
export const BLOCK = 128;
const LARGEST_LEVEL = 43;
const REQUESTS = 3;
/** Slices that are kept, in all tiles; 33 bytes each. */
const KEPT = 6_000_000;
const DEBOUNCE_MS = 40;
const TRACKS_OF_A_REQUEST = 48;

export interface Tile {
  level: number;
  index: number;
  slices: Slices | null;
  isStale: boolean;
  used: number;
}

/** A tile, and the part of time that it is drawn for. */
export interface Piece {
  tile: Tile;
  from: number;
  to: number;
}

interface Want {
  track: number;
  level: number;
  index: number;
  block: number;
}

export const tileSize = (level: number): number => TILE_PIXELS * 2 ** level;

/** The level whose pixels are about as long as those on the screen. */
export function levelOf(nsPerPixel: number): number {
  return Math.max(0, Math.min(LARGEST_LEVEL, Math.ceil(Math.log2(Math.max(nsPerPixel, 1e-9)) - 0.5)));
}

export class Tiles {
  private readonly tiles = new Map<string, Tile>();
  private readonly asked = new Set<string>();
  private wanted: Want[] = [];
  private running = 0;
  private clock = 0;
  /** Answers to requests that are older are stale. */
  private version = 0;
  private slices = 0;
  private timer: ReturnType<typeof setTimeout> | undefined;
  error: string | null = null;

  constructor(private readonly source: Source, private readonly changed: () => void) {}

  /** Whether something that was wanted is on its way. */
  get isWaiting(): boolean {
    return this.running > 0 || this.timer !== undefined;
  }

  /** More of the file has been read: what was incomplete is asked for again. */
  refresh(): void {
    for (const tile of this.tiles.values()) if (tile.slices === null || tile.slices.incomplete) tile.isStale = true;
  }

  /** Tiles of an older state are drawn until the new ones come; `numbers`: of tracks that have new ones. */
  renew(numbers: ReadonlyMap<number, number>): void {
    this.version++;
    const all = [...this.tiles];
    if (numbers.size > 0) this.tiles.clear();
    for (const [key, tile] of all) {
      tile.isStale = true;
      if (numbers.size === 0) continue;
      const [track, ...rest] = key.split('.');
      const now = numbers.get(Number(track)) ?? Number(track);
      if (now >= 0) this.tiles.set([now, ...rest].join('.'), tile);
      else this.slices -= tile.slices?.n ?? 0;
    }
  }

  /** Begins a frame: what it wants is noted from now on. */
  begin(): void {
    this.wanted = [];
    this.clock++;
  }

  /** What to draw between two moments, coarser tiles first. */
  pieces(track: number, level: number, block: number, from: number, to: number): Piece[] {
    const size = tileSize(level);
    const out: Piece[] = [];
    const last = Math.floor(Math.max(from, to - 1) / size);
    for (let index = Math.max(0, Math.floor(from / size)); index <= last; index++) {
      const tile = this.take(track, level, index, block);
      const [start, end] = [Math.max(from, index * size), Math.min(to, (index + 1) * size)];
      if (!tile || tile.isStale) this.wanted.push({ track, level, index, block });
      if (tile) out.push({ tile, from: start, to: end });
      else this.substitute(track, level, index, block, start, end, out);
    }
    return out;
  }

  private substitute(track: number, level: number, index: number, block: number, from: number, to: number, out: Piece[]): void {
    let coarser = index;
    for (let up = level + 1; up <= LARGEST_LEVEL; up++) {
      coarser = Math.floor(coarser / 2);
      const tile = this.take(track, up, coarser, block);
      if (tile) {
        out.push({ tile, from, to });
        break;
      }
    }
    for (let down = 1; down <= 4 && level - down >= 0; down++) {
      const parts = 2 ** down;
      for (let part = 0; part < parts; part++) {
        const tile = this.take(track, level - down, index * parts + part, block);
        const size = tileSize(level - down);
        if (!tile) continue;
        const start = (index * parts + part) * size;
        if (start < to && start + size > from) out.push({ tile, from: Math.max(from, start), to: Math.min(to, start + size) });
      }
    }
  }

  private take(track: number, level: number, index: number, block: number): Tile | undefined {
    const tile = this.tiles.get(keyOf(track, level, index, block));
    if (tile) tile.used = this.clock;
    return tile;
  }

  /** Ends a frame: asks for what it wanted, a moment later if the view moves. */
  end(isMoving: boolean): void {
    if (this.wanted.length === 0) return;
    if (this.timer !== undefined) {
      if (!isMoving) return;
      clearTimeout(this.timer);
    }
    this.timer = setTimeout(() => {
      this.timer = undefined;
      this.pump();
    }, isMoving ? DEBOUNCE_MS : 0);
  }

  private pump(): void {
    while (this.running < REQUESTS) {
      const open = this.wanted.filter(({ track, level, index, block }) => {
        const key = keyOf(track, level, index, block);
        return !this.asked.has(key) && (this.tiles.get(key)?.isStale ?? true);
      });
      if (open.length === 0) return;
      const { level, index, block } = open[0];
      const tracks = [...new Set(open.filter((want) => want.level === level && want.index === index && want.block === block).map(({ track }) => track))]
        .slice(0, TRACKS_OF_A_REQUEST);
      void this.request(tracks, level, index, block);
    }
  }

  private async request(tracks: number[], level: number, index: number, block: number): Promise<void> {
    this.running++;
    const { version } = this;
    const keys = tracks.map((track) => keyOf(track, level, index, block));
    for (const key of keys) this.asked.add(key);
    const size = tileSize(level);
    try {
      const window = { tracks, from: index * size, to: (index + 1) * size, pixels: TILE_PIXELS };
      const answer = await this.source.slices(window, [block * BLOCK, (block + 1) * BLOCK]);
      const found = new Map(answer.map((slices) => [slices.track, slices]));
      // Numbers of tracks are those of the state.
      const isStale = version !== this.version;
      if (!isStale) tracks.forEach((track, at) => this.put(keys[at], { level, index, slices: found.get(track) ?? null, isStale, used: this.clock }));
      this.error = null;
    } catch (error) {
      this.error = error instanceof Error ? error.message : String(error);
    } finally {
      this.running--;
      // After an error, a moment's rest.
      if (this.error === null) for (const key of keys) this.asked.delete(key);
      else setTimeout(() => keys.forEach((key) => this.asked.delete(key)), 1000);
      this.changed();
      this.pump();
    }
  }

  private put(key: string, tile: Tile): void {
    this.slices += (tile.slices?.n ?? 0) - (this.tiles.get(key)?.slices?.n ?? 0);
    this.tiles.set(key, tile);
    if (this.slices <= KEPT) return;
    const oldest = [...this.tiles].sort(([, a], [, b]) => a.used - b.used);
    for (const [old, { slices, used }] of oldest) {
      if (this.slices <= KEPT * 0.7 || used === this.clock) break;
      this.tiles.delete(old);
      this.slices -= slices?.n ?? 0;
    }
  }
}

const keyOf = (track: number, level: number, index: number, block: number): string => `${track}.${level}.${index}.${block}`;
