// Names, times and counts as they are shown.

// Characters that are invisible, change the order of what is around them, or act on a terminal; and lone surrogates.
const INVISIBLE = /[\u0000-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202f\u205f-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\uffff]|[\u{e0000}-\u{e0fff}]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/gu;

/** The text with marks such as <U+202E> for what couldn't be seen. */
export function visible(text: string): string {
  return text.replace(INVISIBLE, (found) => `<U+${(found.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, '0')}>`);
}

/** A name of C++ without its parameters and what is said of them, and without anonymous namespaces. */
export function brief(name: string): string {
  const text = name.replace(/\(anonymous namespace\)::/g, '');
  const tail = /\)(?: const)?(?: volatile)?(?: &&?)?(?: noexcept)?(?: \[[^\]]*\])?$/.exec(text);
  if (!tail) return text;
  let open = 0;
  for (let at = tail.index; at > 0; at--) {
    if (text[at] === ')') open++;
    if (text[at] !== '(' || --open > 0) continue;
    // operator() and what isn't the name of a function keep their brackets.
    const head = text.slice(0, at);
    const part = /\[[^\]]*\]$/.exec(text)?.[0];
    return head === '' || head.endsWith('operator') ? text : part ? `${head} ${part}` : head;
  }
  return text;
}

/** The same for texts of many lines. */
export function visibleLine(line: string): string {
  return visible(line.replace(/\t/g, '    ').replace(/\r$/, ''));
}

/** The beginning and the end of a text that is too long. */
export function shortened(text: string, longest: number): string {
  if (text.length <= longest) return text;
  const head = Math.ceil((longest - 1) * 0.7);
  return `${text.slice(0, head)}\u2026${text.slice(text.length - (longest - 1 - head))}`;
}

const UNITS: [number, string][] = [[1e9, 's'], [1e6, 'ms'], [1e3, '\u00b5s'], [1, 'ns']];

/** A duration to three digits, such as 12.3 µs; below a microsecond exactly. */
export function duration(ns: number | null | undefined): string {
  if (ns === null || ns === undefined || !Number.isFinite(ns)) return '\u2013';
  const size = Math.abs(ns);
  if (size >= 3600e9) return `${(ns / 3600e9).toFixed(2)} h`;
  if (size >= 120e9) return `${(ns / 60e9).toFixed(1)} min`;
  const [unit, name] = UNITS.find(([least]) => size >= least * 0.9995) ?? [1, 'ns'];
  const value = ns / unit;
  if (unit === 1) return `${Number.isInteger(value) ? value : value.toFixed(1)} ns`;
  const digits = Math.abs(value) >= 99.95 ? 0 : Math.abs(value) >= 9.995 ? 1 : 2;
  return `${value.toFixed(digits)} ${name}`;
}

/** A duration with its sign. */
export const change = (ns: number): string => (ns > 0 ? `+${duration(ns)}` : ns < 0 ? `\u2212${duration(-ns)}` : '0');

/** All nanoseconds, in groups: 1 234 567 ns. */
export const exact = (ns: number): string => `${grouped(ns)} ns`;

export const count = (n: number | null | undefined): string => (n === null || n === undefined ? '\u2013' : grouped(n, ','));

/** Calls on average: with a digit after the point, unless it is whole. */
export const average = (n: number): string => (Number.isInteger(n) ? count(n) : n.toFixed(1));

function grouped(n: number, separator = '\u202f'): string {
  const text = String(Math.abs(Math.round(n)));
  return (n < 0 ? '\u2212' : '') + text.replace(/\B(?=(\d{3})+(?!\d))/g, separator);
}

/** A moment, to the digit that `step` needs. */
export function moment(ns: number, step = 1): string {
  const [unit, name] = UNITS.find(([least]) => Math.abs(ns) >= least) ?? [1, 'ns'];
  const digits = Math.max(0, Math.min(9, Math.ceil(Math.log10(unit / Math.max(step, 1)) - 1e-9)));
  return `${(ns / unit).toFixed(digits)} ${name}`;
}

export interface Ticks {
  /** Moments with a label, and how many parts lie between them. */
  step: number;
  parts: number;
  first: number;
  /** What the labels count from, if whole moments would be too long. */
  base: number | null;
}

/** Where the marks of a time axis are: steps of 1, 2 or 5 times a power of ten, about `wanted` of them. */
export function ticks(from: number, to: number, wanted: number): Ticks {
  const ideal = (to - from) / Math.max(1, wanted);
  const power = 10 ** Math.floor(Math.log10(Math.max(ideal, 1)));
  const factor = [1, 2, 5, 10].find((one) => one * power >= ideal) ?? 10;
  const step = Math.max(1, factor * power);
  const parts = step < 10 ? step : factor === 2 ? 4 : 5;
  const first = Math.floor(from / step) * step;
  // More than six digits are not read but compared: then labels count from a round moment.
  const big = Math.max(Math.abs(from), Math.abs(to));
  const base = big / step >= 1e5 ? Math.floor(from / (step * 1000)) * step * 1000 : null;
  return { step, parts, first, base: base === 0 ? null : base };
}

export function tickLabel(at: number, { step, base }: Ticks): string {
  if (base === null) return moment(at, step);
  return `+${at === base ? '0' : moment(at - base, step)}`;
}

export const plural = (n: number, one: string, many = `${one}s`): string => `${count(n)} ${n === 1 ? one : many}`;

/** Calendar time of a moment, in UTC. */
export function wall(begin: string | number | null | undefined, ns: number): string {
  if (begin === undefined || begin === null || !/^\d+$/.test(String(begin))) return '';
  const at = BigInt(begin) + BigInt(Math.round(ns));
  const date = new Date(Number(at / 1_000_000n));
  if (Number.isNaN(date.getTime())) return '';
  const below = String(at % 1_000_000_000n).padStart(9, '0');
  return `${date.toISOString().slice(0, 19).replace('T', ' ')}.${below} UTC`;
}
