// Colours of slices: the same name has the same colour in each trace and each run.

export type Theme = 'light' | 'dark';

/** A hash of a text (FNV-1a). */
export function hash(text: string): number {
  let value = 0x811c9dc5;
  for (let index = 0; index < text.length; index++) value = Math.imul(value ^ text.charCodeAt(index), 0x01000193);
  return (value ^ (value >>> 15)) >>> 0;
}

/** A colour of OKLCH as 0xAABBGGRR, as pixels of an image have it. */
export function oklch(lightness: number, chroma: number, hue: number): number {
  const a = chroma * Math.cos((hue * Math.PI) / 180);
  const b = chroma * Math.sin((hue * Math.PI) / 180);
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  const linear = [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ];
  const [red, green, blue] = linear.map((value) => {
    const inside = Math.max(0, Math.min(1, value));
    return Math.round(255 * (inside <= 0.0031308 ? 12.92 * inside : 1.055 * inside ** (1 / 2.4) - 0.055));
  });
  return pixel(red, green, blue);
}

export const pixel = (red: number, green: number, blue: number): number => (0xff000000 | (blue << 16) | (green << 8) | red) >>> 0;

export const css = (colour: number): string => `rgb(${colour & 255} ${(colour >> 8) & 255} ${(colour >> 16) & 255})`;

/** `share` of the second colour in the first. */
export function mixed(one: number, two: number, share: number): number {
  const part = (shift: number): number => Math.round(((one >>> shift) & 255) * (1 - share) + ((two >>> shift) & 255) * share);
  return pixel(part(0), part(8), part(16));
}

/** The colour of a name. Red is left to what went wrong. */
export function ofName(name: string, theme: Theme): number {
  const value = hash(name);
  const hue = 50 + (value % 24) * (300 / 24);
  const step = (value >>> 8) % 3;
  return theme === 'dark' ? oklch(0.4 + 0.05 * step, 0.085, hue) : oklch(0.78 + 0.045 * step, 0.085, hue);
}

export interface Look {
  background: number;
  lane: number;
  text: string;
  faint: string;
  line: string;
  strong: string;
  accent: string;
  hit: number;
  bad: number;
  several: number;
  waiting: number;
  states: [number, number, number, number];
  font: string;
}

export const LOOKS: Record<Theme, Look> = {
  light: {
    background: pixel(255, 255, 255), lane: pixel(247, 248, 250), text: '#14171c', faint: '#5a6472', line: '#e3e6ea', strong: '#14171c', accent: '#0b5fd0',
    hit: pixel(255, 176, 0), bad: pixel(200, 30, 40), several: pixel(196, 202, 210), waiting: pixel(238, 240, 244),
    states: [pixel(58, 158, 84), pixel(240, 176, 50), pixel(190, 200, 214), pixel(236, 238, 241)],
    font: '11px system-ui, "Segoe UI", "DejaVu Sans", sans-serif',
  },
  dark: {
    background: pixel(21, 24, 29), lane: pixel(26, 30, 36), text: '#eef1f5', faint: '#9aa5b3', line: '#2b313a', strong: '#ffffff', accent: '#6cb0ff',
    hit: pixel(255, 186, 40), bad: pixel(255, 92, 92), several: pixel(78, 86, 98), waiting: pixel(34, 39, 46),
    states: [pixel(70, 170, 98), pixel(214, 156, 44), pixel(70, 80, 94), pixel(40, 45, 52)],
    font: '11px system-ui, "Segoe UI", "DejaVu Sans", sans-serif',
  },
};
