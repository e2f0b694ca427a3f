// Slices as pixels. Each row of calls is drawn as one line of pixels first, which is then copied down: a frame costs the
// same with a hundred thousand slices as with a hundred.

import { mixed } from '../colour';
import type { Look } from '../colour';
import { AT_MOST, CUT_END, CUT_START, SEVERAL, UNWOUND } from '../types';
import type { Slices } from '../types';

export interface Canvas {
  pixels: Uint32Array;
  width: number;
  height: number;
}

/** Time to pixels: x = (at - from) / nsPerPixel. */
export interface Scale {
  from: number;
  nsPerPixel: number;
}

export interface Row {
  /** Top and height in pixels, as far as the canvas has them; may begin above it. */
  y: number;
  height: number;
}

/** A slice with room for text, or with edges of its own. */
export interface Special {
  slices: Slices;
  index: number;
  x0: number;
  x1: number;
  y: number;
  height: number;
  /** The text begins in this piece, so that it is drawn once. */
  hasText: boolean;
}

export interface Paints {
  look: Look;
  /** Colour of a function. */
  colour: (func: number) => number;
  /** Functions that stand out; the others are faint then. */
  sought: ReadonlySet<number> | null;
}

const WIDE = 22;
const EDGES = AT_MOST | CUT_START | CUT_END | UNWOUND;

/** Draws the first line of pixels of each row, between two columns, and collects what has more than a colour. */
export function paintLines(
  canvas: Canvas, slices: Slices, scale: Scale, clip: [number, number], row: (depth: number) => Row | null, paints: Paints, specials: Special[],
): void {
  const { from, to, func, count, depth, bits, n } = slices;
  const { pixels, width } = canvas;
  const perNs = 1 / scale.nsPerPixel;
  const [left, right] = [Math.max(0, clip[0]), Math.min(width, clip[1])];
  let lastDepth = -1;
  let place: Row | null = null;
  let line = 0;
  const { background, several } = paints.look;
  const faint = new Map<number, number>();
  let lastFunc = -2;
  let colour = 0;
  let light = 0;
  let edge = 0;
  const shades = new Map<number, [number, number]>();
  for (let index = 0; index < n; index++) {
    if (depth[index] !== lastDepth) {
      lastDepth = depth[index];
      place = row(lastDepth);
      line = place ? Math.max(0, place.y) * width : 0;
    }
    if (!place) continue;
    const start = (from[index] - scale.from) * perNs;
    if (start >= right) continue;
    const x0 = Math.floor(start + 0.5);
    let x1 = Math.floor((to[index] - scale.from) * perNs + 0.5);
    if (x1 <= x0) x1 = x0 + 1;
    if (x1 <= left || x0 >= right) continue;
    if (func[index] !== lastFunc) {
      lastFunc = func[index];
      colour = lastFunc === SEVERAL ? several : paints.colour(lastFunc);
      if (paints.sought && !paints.sought.has(lastFunc)) {
        const known = faint.get(lastFunc);
        colour = known ?? mixed(colour, background, 0.72);
        faint.set(lastFunc, colour);
      }
      let both = shades.get(colour);
      if (!both) {
        both = [mixed(colour, background, 0.18), mixed(colour, background, 0.55)];
        shades.set(colour, both);
      }
      [light, edge] = both;
    }
    const a = x0 < left ? left : x0;
    const b = x1 > right ? right : x1;
    const shade = count[index] > 1 ? light : colour;
    if (b - a < 16) for (let x = a; x < b; x++) pixels[line + x] = shade;
    else pixels.fill(shade, line + a, line + b);
    if (count[index] > 1) continue;
    const wide = x1 - x0;
    // A line between neighbours.
    if (wide >= 3 && x0 >= left) pixels[line + x0] = edge;
    const isEdged = (bits[index] & EDGES) !== 0;
    if ((wide >= WIDE && place.height >= 10) || (isEdged && wide >= 2)) {
      const begin = x0 < 0 ? 0 : x0;
      specials.push({ slices, index, x0, x1, y: place.y, height: place.height, hasText: wide >= WIDE && place.height >= 10 && begin >= left && begin < right });
    }
  }
}

/** Copies the first line of a row down to its whole height. */
export function copyDown(canvas: Canvas, { y, height }: Row, left: number, right: number): void {
  const { pixels, width } = canvas;
  const top = Math.max(0, y);
  const bottom = Math.min(canvas.height, y + height);
  for (let line = top + 1; line < bottom; line++) pixels.copyWithin(line * width + left, top * width + left, top * width + right);
}

/** Hatches what isn't measured, and marks ends that aren't in the trace or that an exception made. */
export function paintEdges(canvas: Canvas, special: Special, paints: Paints): void {
  const { slices, index, x0, x1, y, height } = special;
  const bits = slices.bits[index];
  if ((bits & EDGES) === 0) return;
  const { look } = paints;
  const base = slices.func[index] === SEVERAL ? look.several : paints.colour(slices.func[index]);
  if (bits & AT_MOST) hatch(canvas, x0, x1, y, height, mixed(base, look.background, 0.5), 8, 3);
  const teeth = Math.min(4, x1 - x0);
  if (bits & CUT_START) ragged(canvas, x0, teeth, y, height, look.background, false);
  if (bits & CUT_END) ragged(canvas, x1 - teeth, teeth, y, height, look.background, true);
  if (bits & UNWOUND) box(canvas, Math.max(x0, x1 - (x1 - x0 < 10 ? 1 : 3)), x1, y, height, look.bad);
}

export function box(canvas: Canvas, x0: number, x1: number, y: number, height: number, colour: number): void {
  const [left, right] = [Math.max(0, x0), Math.min(canvas.width, x1)];
  if (left >= right) return;
  for (let line = Math.max(0, y); line < Math.min(canvas.height, y + height); line++) {
    canvas.pixels.fill(colour, line * canvas.width + left, line * canvas.width + right);
  }
}

/** Diagonal stripes: `thick` of each `period` pixels; with `over`, only over pixels of this colour. */
export function hatch(canvas: Canvas, x0: number, x1: number, y: number, height: number, colour: number, period: number, thick: number, over?: number): void {
  const [left, right] = [Math.max(0, x0), Math.min(canvas.width, x1)];
  for (let line = Math.max(0, y); line < Math.min(canvas.height, y + height); line++) {
    const start = line * canvas.width;
    for (let x = left - ((left + line) % period); x < right; x += period) {
      const end = Math.min(right, x + thick);
      for (let at = Math.max(left, x); at < end; at++) if (over === undefined || canvas.pixels[start + at] === over) canvas.pixels[start + at] = colour;
    }
  }
}

function ragged(canvas: Canvas, x: number, wide: number, y: number, height: number, colour: number, isRight: boolean): void {
  for (let line = Math.max(0, y); line < Math.min(canvas.height, y + height); line++) {
    const phase = (line - y) % 8;
    const tooth = Math.round((wide * (phase < 4 ? phase : 8 - phase)) / 4);
    const [from, to] = isRight ? [x + wide - tooth, x + wide] : [x, x + tooth];
    for (let at = Math.max(0, from); at < Math.min(canvas.width, to); at++) canvas.pixels[line * canvas.width + at] = colour;
  }
}
