// What the page asks for and what it gets: the same from a server and from the data in a page of its own.
// All times are integers: nanoseconds since the beginning of the trace.

export interface Track {
  id: number;
  tid: number;
  pid?: number;
  name: string;
  kind: 'thread' | 'fiber' | 'task' | 'output' | 'counter' | 'cpu';
  /** Levels of calls: 1 is no nesting. */
  depth: number;
  from: number;
  to: number;
  events: number;
  has_states: boolean;
  has_marks?: boolean;
  has_samples?: boolean;
  /** All of its events have been read; else those before `read_ns`. */
  complete?: boolean;
  read_ns?: number;
}

export interface Process {
  pid: number;
  name: string;
  /** Index into `files`. */
  file?: number;
  tracks: Track[];
}

export interface Kept {
  number: number;
  trigger: string;
  from: number;
  to: number;
  /** null: none is known. */
  track: number | null;
  /** Levels above it; null: the call isn't drawn, or wasn't read yet. */
  depth: number | null;
  duration_ns: number;
  /** Whether the duration is a bound. */
  bound?: 'at least' | 'at most' | null;
  /** What the call jumped to at its end, if it is known, and the time after that. */
  jumped_to?: string | null;
  behind_ns?: number;
  /** The slowest path: function and time, from the call that was kept down. What isn't traced isn't there. */
  shape: [number, number][];
}

export interface Loss {
  track: number;
  from: number;
  to: number;
  /** null: not counted. */
  events: number | null;
  /** As a sentence, if it is known why. */
  why?: string | null;
}

export interface TraceFile {
  name: string;
  build?: string;
  from?: number;
  to?: number;
}

export interface Trace {
  files: TraceFile[];
  program: string;
  /** Since 1970; as text, since it is above 2^53. */
  begin_wall_ns?: string | number | null;
  duration_ns: number;
  /** Of a running program: where what is kept of it begins. */
  begin_ns?: number;
  /** Of a running program: what recording one call costs it; none: it isn't known. */
  call_price_ns?: number;
  /** Of a running program: the number of this state of it. */
  generation?: number;
  events: number;
  /** `events` is an estimate: they are being counted. */
  counting?: boolean;
  /** The whole file has been read. */
  complete: boolean;
  read_events: number;
  read_bytes?: number;
  file_bytes?: number;
  processes: Process[];
  /** Number of functions; ids are below. */
  functions: number;
  /** Names of labels, to group calls by. */
  labels?: string[];
  kept: Kept[];
  losses: Loss[];
  modules: { name?: string; path?: string; build_id?: string; from?: number; to?: number }[];
  notes: string[];
}

export interface Func {
  id: number;
  name: string;
  full: string;
  module: string;
  file?: string | null;
  line?: number | null;
}

/** One call. */
export interface Place {
  track: number;
  from: number;
  to: number;
  depth: number;
}

export interface Hit {
  track: number;
  from: number;
  to: number;
  /** null: a mark. */
  depth: number | null;
  function?: number;
  text?: string;
}

/** Bits of a slice. */
export const CUT_START = 1;
export const CUT_END = 2;
export const UNWOUND = 4;
export const TAIL = 8;
export const AT_MOST = 16;
export const UNCERTAIN = 32;
/** In pages of their own: no call, but code that isn't traced, to which a tail call led. */
export const UNTRACED = 64;
/** In pages of their own: the call before it made it by a tail call, or may have. */
export const BY_TAIL = 128;

/** The function of a cell that isn't one function's. */
export const SEVERAL = 0xffffffff;

/** Slices of one track, in columns. A cell is several slices shorter than a pixel: its count is above 1. */
export interface Slices {
  track: number;
  /** The file is still being read where this lies. */
  incomplete: boolean;
  n: number;
  from: Float64Array;
  to: Float64Array;
  func: Uint32Array;
  count: Uint32Array;
  depth: Uint16Array | Uint32Array;
  bits: Uint8Array;
}

export const RUNNING = 0;
export const RUNNABLE = 1;
export const BLOCKED = 2;
export const UNKNOWN = 3;

/** from, to, state, the thread that woke this one, and the system call in which it waited. */
export type State = [number, number, number, (number | null)?, string?];
export type States = Record<string, State[]>;

export type MarkKind = 'label' | 'instant' | 'span' | 'log' | 'throw' | 'catch' | 'loss' | 'output' | 'module' | 'off';

export interface Mark {
  track: number;
  at: number;
  to?: number | null;
  kind: MarkKind;
  text: string;
  count: number;
}

/** Sampled stacks in one call at one place, or in several calls closer than a pixel. */
export interface SampleRun {
  track: number;
  at: number;
  to: number;
  /** Calls around it: it is drawn below the innermost. */
  depth: number;
  /** What ran; of several places, that of most. */
  text: string;
  count: number;
}

export interface Counter {
  track?: number;
  name: string;
  pid: number;
  /** Moment, smallest, largest and last value. */
  points: [number, number, number, number][];
}

export type LabelValue = string | number | null;

export interface SliceDetails extends Place {
  function: number;
  own_ns: number;
  /** How long it took at least and at most, where that isn't known exactly. */
  low_ns?: number;
  high_ns?: number;
  /** All calls of its function since the process began, as counted beside the events; null: not counted. */
  all_calls?: number | null;
  cut_start?: boolean;
  cut_end?: boolean;
  unwound?: boolean;
  tail?: boolean;
  at_most?: boolean;
  caller_uncertain?: boolean;
  /** Names and values. Numbers above 2^53 are texts; null: it has no value. */
  labels: [string, LabelValue][];
  caller: (Place & { function: number }) | null;
  path?: number[];
  /** How many functions it called; the first of them are in `children`. */
  all_children?: number;
  children: ({ function: number; calls: number; total_ns: number } & Partial<Place>)[];
  states?: StateSums | null;
  /** Sampled stacks in its own time: how many at each place, most first. */
  samples?: [string, number][];
}

/**
 * How long a thread was in each state, and how long it waited in which system calls, as far as
 * these are known.
 */
export interface StateSums {
  running_ns: number;
  runnable_ns: number;
  blocked_ns: number;
  unknown_ns: number;
  blocked_in?: [string, number][];
}

export interface Search {
  functions: { id: number; calls: number; total_ns: number; all_calls?: number | null }[];
  hits: Hit[];
  total: number;
}

export interface Hits {
  /** Track to [from, to, calls], merged to pixels. */
  tracks: Record<string, [number, number, number][]>;
  total?: number;
}

export interface Next {
  hit: Hit | null;
  index: number;
  total: number;
}

export interface ReportRow {
  name: string;
  function?: number | null;
  module?: string | null;
  file?: string | null;
  line?: number | null;
  calls: number;
  /** All calls since the process began, also those whose events were overwritten or dropped; null: not counted. */
  all_calls?: number | null;
  unwound: number;
  truncated: number;
  total_ns: number;
  own_ns: number;
  average_ns: number | null;
  min_ns: number | null;
  p50_ns: number | null;
  p90_ns: number | null;
  p99_ns: number | null;
  max_ns: number | null;
  [other: string]: unknown;
}

export interface Report {
  by?: string;
  calls: number;
  rows: ReportRow[];
  not_in_the_numbers?: Record<string, number>;
}

export interface FlameNode {
  function: number;
  total_ns: number;
  own_ns: number;
  calls: number;
  children: FlameNode[];
}

export interface Flame {
  root: FlameNode;
  pruned_calls?: number;
  pruned_ns?: number;
}

export interface Instances {
  slowest: Place[];
  histogram: { from_ns: number; to_ns: number; calls: number; longest?: Place | null }[];
  count: number;
  /** Calls in the scope, and all calls since the process began; null: not counted. */
  calls?: number;
  all_calls?: number | null;
  untimed?: number;
  p50: number | null;
  p99: number | null;
  max: number | null;
  median?: Place | null;
}

export interface ExplainRow {
  /** null: the function itself. */
  function: number | null;
  kind: 'own' | 'call' | 'wait' | 'tail';
  here_ns: number;
  median_ns: number;
  here_calls: number;
  median_calls: number;
}

export interface Explain {
  function: number;
  here: Place;
  median: Place | null;
  here_ns: number;
  median_ns: number;
  rows: ExplainRow[];
}

export interface SourceText {
  file: string | null;
  line: number | null;
  text: string | null;
  first_line?: number;
  why?: string;
  /** null: calls that no call in the trace is around. */
  callers: ({ function: number | null; calls: number; file?: string | null; line?: number | null } & Partial<Place>)[];
}

export interface CompareNode {
  function: number;
  a_ns: number;
  b_ns: number;
  a_own_ns: number;
  b_own_ns: number;
  a_calls: number;
  b_calls: number;
  children: CompareNode[];
}

export interface CompareRow {
  function: number;
  a_calls: number;
  b_calls: number;
  a_own_ns: number;
  b_own_ns: number;
  a_total_ns: number;
  b_total_ns: number;
}

export interface Compare {
  a: { ns: number; calls: number };
  b: { ns: number; calls: number };
  functions: CompareRow[];
  root: CompareNode;
}

export interface TextRows {
  rows: (Place & { function: number })[];
  total: number;
}

/** A stretch of time of some tracks (all, if there are none), or one call. */
export interface Scope {
  from: number;
  to: number;
  tracks: number[];
  call?: { track: number; at: number; depth: number };
}

export interface Window {
  tracks: number[];
  from: number;
  to: number;
  pixels: number;
}

/** Facts about a running program, and which state of it is the newest. */
export interface RunningFacts {
  generation: number;
  /** Whether the state that the page looks at is still there. */
  held: boolean;
  /** Why no newer state could be made. */
  failed: string | null;
  /** Why it isn't read any more. */
  over: string | null;
  notes: string[];
  /** Events that were overwritten before they were read. */
  lost: number;
  kept_bytes: number;
  most_bytes: number;
}

/** Where the page has its data from. */
export interface Source {
  /** The state of a running program that answers are of; null: there are none, or the newest. */
  generation: number | null;
  /** Of a running program. */
  running?(isFrozen: boolean): Promise<RunningFacts>;
  /** Records the calls of a function from now on, or no longer; what is recorded then. */
  switch?(func: number, isOn: boolean): Promise<string>;
  /** Writes the state that is looked at, or a range of it, to a file; its name. */
  keep?(range: { from: number; to: number } | null): Promise<string>;
  /** Nothing has to be fetched: the data is in the page. */
  readonly isLocal: boolean;
  trace(): Promise<Trace>;
  functions(from: number, to: number): Promise<Func[]>;
  slices(window: Window, depths: [number, number]): Promise<Slices[]>;
  states(window: Window): Promise<States>;
  marks(window: Window): Promise<Mark[]>;
  samples(window: Window): Promise<SampleRun[]>;
  counters(window: Window): Promise<Counter[]>;
  overview(pixels: number): Promise<number[]>;
  slice(track: number, at: number, depth: number): Promise<SliceDetails>;
  search(q: string, limit: number): Promise<Search>;
  /** All calls of a function, in the order of time. */
  calls(func: number, limit: number): Promise<Search>;
  hits(what: Sought, from: number, to: number, pixels: number): Promise<Hits>;
  next(what: Sought, from: Hit | null, backwards: boolean): Promise<Next>;
  report(scope: Scope, by: string): Promise<Report>;
  flame(scope: Scope): Promise<Flame>;
  instances(func: number, scope: Scope, limit: number): Promise<Instances>;
  explain(track: number, at: number, depth: number): Promise<Explain>;
  source(func: number): Promise<SourceText>;
  compare(a: string, b: string): Promise<Compare>;
  text(scope: Scope, limit: number): Promise<TextRows>;
}

/** What is marked on the timeline: hits of a search, or calls of a function. */
export type Sought = { q: string } | { func: number };
