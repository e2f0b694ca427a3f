// Where lanes are, from top to bottom, in CSS pixels.

import type { Process, Trace, Track } from '../types';

export const ROW = 18;
export const PROCESS_HEIGHT = 22;
export const COLLAPSED = 22;
export const STATE_HEIGHT = 7;
export const MARK_HEIGHT = 15;
export const COUNTER_HEIGHT = 38;
const GAP = 5;

export interface Lane {
  key: string;
  y: number;
  height: number;
  process: Process;
  /** None: the head of a process. */
  track: Track | null;
  isCollapsed: boolean;
  /** From the lane's top; null: the lane has none of these. */
  states: number | null;
  marks: number | null;
  slices: number | null;
  row: number;
}

export function processKey(process: Process, index: number): string {
  return `p${process.file ?? 0}.${process.pid}.${index}`;
}

export const trackKey = (track: Track): string => `t${track.id}`;

export function layout(trace: Trace, collapsed: ReadonlySet<string>): { lanes: Lane[]; height: number } {
  const lanes: Lane[] = [];
  let y = 0;
  trace.processes.forEach((process, index) => {
    const key = processKey(process, index);
    const isCollapsed = collapsed.has(key);
    lanes.push({ key, y, height: PROCESS_HEIGHT, process, track: null, isCollapsed, states: null, marks: null, slices: null, row: 0 });
    y += PROCESS_HEIGHT;
    if (isCollapsed) return;
    for (const track of process.tracks) {
      const lane = trackLane(process, track, collapsed.has(trackKey(track)), y);
      lanes.push(lane);
      y += lane.height;
    }
  });
  return { lanes, height: y };
}

function trackLane(process: Process, track: Track, isCollapsed: boolean, y: number): Lane {
  const lane: Lane = { key: trackKey(track), y, height: 0, process, track, isCollapsed, states: null, marks: null, slices: null, row: ROW };
  if (track.kind === 'counter') {
    lane.height = isCollapsed ? COLLAPSED : COUNTER_HEIGHT + GAP;
    return lane;
  }
  if (track.kind === 'output') {
    lane.marks = 3;
    lane.height = Math.max(COLLAPSED, MARK_HEIGHT + GAP);
    return lane;
  }
  if (isCollapsed) {
    // All levels, as far as they can be told apart, in the height of one.
    lane.slices = 2;
    lane.row = Math.max(1, Math.min(ROW - 2, Math.floor((COLLAPSED - 4) / Math.max(1, track.depth))));
    lane.height = COLLAPSED;
    return lane;
  }
  let height = 2;
  if (track.has_states) {
    lane.states = height;
    height += STATE_HEIGHT + 1;
  }
  if (track.has_marks ?? true) {
    lane.marks = height;
    height += MARK_HEIGHT + 1;
  }
  lane.slices = height;
  lane.height = Math.max(COLLAPSED, height + track.depth * ROW + GAP);
  return lane;
}

/** The lanes that are seen between two heights. */
export function seen(lanes: Lane[], top: number, bottom: number): Lane[] {
  let low = 0;
  let high = lanes.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (lanes[middle].y + lanes[middle].height > top) high = middle;
    else low = middle + 1;
  }
  const found: Lane[] = [];
  for (let index = low; index < lanes.length && lanes[index].y < bottom; index++) found.push(lanes[index]);
  return found;
}
