// The state of the view, and how it is written into the address of the page.

import type { Place, Scope, Sought } from './types';

export const PANELS = ['call', 'table', 'flame', 'instances', 'explain', 'compare', 'kept', 'search', 'text', 'about'] as const;
export type Panel = (typeof PANELS)[number];
export type ScopeKind = 'trace' | 'window' | 'range' | 'call';

export interface Range {
  from: number;
  to: number;
  /** None: all tracks. */
  tracks: number[];
}

export interface State {
  view: { from: number; to: number };
  /** Keys of collapsed lanes. */
  collapsed: ReadonlySet<string>;
  selection: Place | null;
  /** A mark that is selected. */
  mark: { track: number; at: number } | null;
  range: Range | null;
  query: string;
  /** The function whose calls are frames; empty: none. */
  frame: string;
  /** The function that instances are of, and whose calls are marked. */
  func: number | null;
  panel: Panel;
  /** In CSS pixels; 0: a part of the window's height. */
  panelHeight: number;
  isPanelOpen: boolean;
  theme: 'auto' | 'dark' | 'light';
  colour: 'function' | 'module';
  scope: ScopeKind;
  by: string;
  /** Sides of the comparison, as requests have them. */
  a: string;
  b: string;
}

export function initial(duration: number): State {
  return {
    view: { from: 0, to: Math.max(1, duration) }, collapsed: new Set(), selection: null, mark: null, range: null, query: '', frame: '', func: null,
    panel: 'call', panelHeight: 0, isPanelOpen: true, theme: 'auto', colour: 'function', scope: 'trace', by: 'function', a: '', b: '',
  };
}

const list = (numbers: number[]): string => numbers.join(',');

/** As the fragment of an address: what differs from the beginning. */
export function toFragment(state: State, duration: number): string {
  const start = initial(duration);
  const fields = new URLSearchParams();
  const { view, selection, mark, range } = state;
  if (view.from !== start.view.from || view.to !== start.view.to) fields.set('view', `${rounded(view.from)}~${rounded(view.to)}`);
  if (state.collapsed.size > 0) fields.set('collapsed', [...state.collapsed].join(','));
  if (selection) fields.set('call', `${selection.track}~${selection.from}~${selection.to}~${selection.depth}`);
  if (mark) fields.set('mark', `${mark.track}~${mark.at}`);
  if (range) fields.set('range', `${rounded(range.from)}~${rounded(range.to)}~${list(range.tracks)}`);
  if (state.query !== '') fields.set('search', state.query);
  if (state.frame !== '') fields.set('frame', state.frame);
  if (state.func !== null) fields.set('function', String(state.func));
  for (const key of ['panel', 'theme', 'colour', 'scope', 'by', 'a', 'b'] as const) {
    if (state[key] !== start[key]) fields.set(key, state[key]);
  }
  if (state.panelHeight !== start.panelHeight) fields.set('height', String(Math.round(state.panelHeight)));
  if (!state.isPanelOpen) fields.set('closed', '1');
  return fields.toString();
}

/** Below a nanosecond, three digits are kept. */
const rounded = (at: number): number => Math.round(at * 1000) / 1000;

/** What a fragment says; what it says wrongly is as at the beginning. */
export function fromFragment(fragment: string, duration: number): State {
  const state = initial(duration);
  const fields = new URLSearchParams(fragment.replace(/^#/, ''));
  const numbers = (key: string, least: number): number[] | null => {
    const text = fields.get(key);
    if (text === null) return null;
    const parts = text.split('~').map((part) => (part === '' ? NaN : Number(part)));
    return parts.length >= least && parts.slice(0, least).every(Number.isFinite) ? parts : null;
  };
  const view = numbers('view', 2);
  if (view && view[1] > view[0]) state.view = { from: view[0], to: view[1] };
  const collapsed = fields.get('collapsed');
  if (collapsed) state.collapsed = new Set(collapsed.split(','));
  const call = numbers('call', 4);
  if (call) state.selection = { track: call[0], from: call[1], to: call[2], depth: call[3] };
  const mark = numbers('mark', 2);
  if (mark) state.mark = { track: mark[0], at: mark[1] };
  const range = numbers('range', 2);
  if (range && range[1] > range[0]) {
    const tracks = (fields.get('range') ?? '').split('~')[2] ?? '';
    state.range = { from: range[0], to: range[1], tracks: tracks.split(',').filter((id) => id !== '').map(Number).filter(Number.isFinite) };
  }
  state.query = fields.get('search') ?? '';
  state.frame = fields.get('frame') ?? '';
  const func = numbers('function', 1);
  if (func) state.func = func[0];
  const pick = <K extends 'panel' | 'theme' | 'colour' | 'scope' | 'by'>(key: K, allowed: readonly string[]): void => {
    const value = fields.get(key);
    if (value !== null && allowed.includes(value)) state[key] = value as State[K];
  };
  pick('panel', PANELS);
  pick('theme', ['auto', 'dark', 'light']);
  pick('colour', ['function', 'module']);
  pick('scope', ['trace', 'window', 'range', 'call']);
  pick('by', ['function', 'module', 'thread', 'process', 'file', 'path']);
  const by = fields.get('by');
  if (by?.startsWith('label:')) state.by = by;
  for (const key of ['a', 'b'] as const) {
    const value = fields.get(key);
    if (value !== null && /^(range:\d+:[-\d.]+:[-\d.]+:[\d,]*|call:\d+:[-\d.]+:\d+)$/.test(value)) state[key] = value;
  }
  const height = numbers('height', 1);
  if (height) state.panelHeight = Math.max(120, Math.min(2000, height[0]));
  state.isPanelOpen = fields.get('closed') !== '1';
  return state;
}

/** What tables and graphs are of. What isn't there any more is the whole trace. */
export function scopeOf(state: State): Scope {
  if (state.scope === 'call' && state.selection) {
    const { track, from, to, depth } = state.selection;
    return { from, to, tracks: [], call: { track, at: from, depth } };
  }
  if (state.scope === 'range' && state.range) return state.range;
  if (state.scope === 'window') return { ...state.view, tracks: [] };
  return { from: -Infinity, to: Infinity, tracks: [] };
}

/** What is marked on the timeline: hits of the search, or else all calls of the function that is looked at. */
export function soughtOf(state: State): Sought | null {
  if (state.query !== '') return { q: state.query };
  return state.func !== null && (state.panel === 'instances') ? { func: state.func } : null;
}
