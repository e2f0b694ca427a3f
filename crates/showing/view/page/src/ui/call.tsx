// The selected call: its numbers, what is around it and in it, and its source.

import type { ComponentChildren, JSX } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { count, duration, exact, moment, plural, visible, visibleLine, wall } from '../text';
import { useStore } from '../store';
import type { Store } from '../store';
import type { Mark, Place, SliceDetails, SourceText, StateSums } from '../types';
import { useAnswer } from './answer';
import { Bar, Copy, Jump, Name, Waiting } from './pieces';

export function CallPanel({ store }: { store: Store }): JSX.Element {
  useStore(store, ({ state, names }) => [state.selection, state.mark, state.colour, names.version, store.theme]);
  const { selection, mark } = store.state;
  const key = selection && `${selection.track} ${selection.from} ${selection.depth}`;
  const details = useAnswer(key, () => {
    const { track, from, depth } = selection as Place;
    return store.source.slice(track, from, depth);
  });
  const func = details.value?.function;
  const source = useAnswer(key !== null && func !== undefined ? String(func) : null, () => store.source.source(func as number));
  const about = details.value;
  useEffect(() => {
    if (about) store.say(`${store.names.whole(about.function)}, ${duration(about.to - about.from)}, depth ${about.depth}, ${store.track(about.track)?.name ?? ''}`);
  }, [about]);
  if (mark) return <MarkPanel store={store} place={mark} />;
  if (!selection) return <Hints />;
  return (
    <div class="split">
      <div class="details" tabIndex={0} role="group" aria-label="Selected call">
        <Waiting answer={details}>{(value) => <Details store={store} about={value} />}</Waiting>
      </div>
      <div class="source" role="group" aria-label="Source">
        <Waiting answer={source} none={'\u2026'}>{(value) => <Source store={store} source={value} />}</Waiting>
      </div>
    </div>
  );
}

/** What one can do, until there is something to show. */
function Hints(): JSX.Element {
  const hints: [string[], string][] = [
    [['click'], 'shows a call, its source, and what it called'], [['W', 'S', 'A', 'D'], 'zoom and move; drag and Ctrl + wheel do so, too'],
    [['Shift', 'drag'], 'selects a range, for tables and graphs'], [['/'], 'searches names, labels and log lines'], [['?'], 'shows all keys'],
  ];
  return (
    <div class="hints">
      <p>Select a call on the timeline.</p>
      <dl>{hints.map(([keys, what]) => <div key={what}><dt>{keys.map((key) => <kbd key={key}>{key}</kbd>)}</dt><dd>{what}</dd></div>)}</dl>
    </div>
  );
}

function Row({ head, children }: { head: string; children: ComponentChildren }): JSX.Element {
  return <div><dt>{head}</dt><dd>{children}</dd></div>;
}

/** As `running 2 ms, blocked 30 ms (futex 28 ms)`. */
export function statesInWords(states: StateSums): string {
  const waits = (states.blocked_in ?? []).map(([name, ns]) => `${name} ${duration(ns)}`).join(', ');
  const blocked = waits === '' ? '' : ` (${waits})`;
  const all: [string, number, string][] = [['running', states.running_ns, ''], ['runnable', states.runnable_ns, ''], ['blocked', states.blocked_ns, blocked], ['unknown', states.unknown_ns, '']];
  return all.filter(([, ns]) => ns).map(([name, ns, more]) => `${name} ${duration(ns)}${more}`).join(', ');
}

function notes(about: SliceDetails): string[] {
  const said: string[] = [];
  if (about.cut_start) said.push('Its entry is not in the trace: it began earlier.');
  if (about.cut_end) said.push('Its exit is not in the trace: it ended later.');
  if (about.unwound) said.push('Unwound: it was left by an exception, longjmp or the end of its thread.');
  if (about.at_most) said.push('Took this time at most: its end is not measured exactly.');
  if (about.tail) said.push('Ended in a tail call: it jumped into the function that follows.');
  if (about.caller_uncertain) said.push('Caller uncertain: it may not have been made by the call it is shown under.');
  return said;
}

/** How far a duration may be from what is shown. */
function error({ from, to, low_ns, high_ns }: SliceDetails): string {
  if (low_ns === undefined || high_ns === undefined) return '';
  return ` \u00b1${duration(Math.max(to - from - low_ns, high_ns - (to - from)))}`;
}

function bounds({ low_ns, high_ns }: SliceDetails): string {
  if (low_ns === undefined || high_ns === undefined) return '';
  return `from ${exact(low_ns)} to ${exact(high_ns)}: not every event had a time of its own`;
}

function Details({ store, about }: { store: Store; about: SliceDetails }): JSX.Element {
  const { trace, names } = store;
  const func = names.get(about.function);
  const track = store.track(about.track);
  const time = about.to - about.from;
  const { caller, labels, states } = about;
  const isRough = about.at_most || about.cut_start || about.cut_end;
  return (
    <>
      <h2><Name store={store} id={about.function} isWhole /> <Copy text={func?.full ?? ''} what="the function's name" /></h2>
      <div class="actions">
        <button type="button" onClick={() => store.select(about, 'zoom')}>Zoom (F)</button>
        <button type="button" onClick={() => store.set({ func: about.function, panel: 'instances' }, true)}>All its calls</button>
        <button type="button" onClick={() => store.set({ panel: 'explain' }, true)}>Versus median</button>
        <button type="button" onClick={() => store.set({ panel: 'flame', scope: 'call' }, true)}>Flame graph</button>
        <button type="button" title="As a side of a comparison" onClick={() => setSide(store, 'a', about)}>Compare: A</button>
        <button type="button" title="As a side of a comparison" onClick={() => setSide(store, 'b', about)}>B</button>
      </div>
      {notes(about).map((note) => <p class="note" key={note}>{note}</p>)}
      <dl class="facts">
        <Row head="Duration"><b>{isRough ? '\u2264 ' : ''}{duration(time)}{error(about)}</b> <span class="faint">{bounds(about) || exact(time)}</span></Row>
        <Row head="Own time">{duration(about.own_ns)} <span class="faint">{time > 0 ? `${((100 * about.own_ns) / time).toFixed(1)} %` : ''}</span></Row>
        <Row head="Begins">{moment(about.from)} <span class="faint">{wall(trace.begin_wall_ns, about.from)}</span></Row>
        <Row head="Ends">{moment(about.to)}</Row>
        <Row head="Thread"><bdi>{visible(track?.name ?? '?')}</bdi> <span class="faint">{track?.kind === 'fiber' || track?.kind === 'task' ? `${track.kind} ` : ''}{track?.tid ?? ''}, depth {count(about.depth)}</span></Row>
        {func && <Row head="Module"><bdi>{visible(func.module)}</bdi></Row>}
        {func?.file && <Row head="Where"><bdi>{visible(func.file)}:{func.line}</bdi> <Copy text={`${func.file}:${func.line}`} what="the source position" /></Row>}
        {about.all_calls ? <Row head="All its calls">{count(about.all_calls)} <span class="faint">since the process began, as counted beside the events</span></Row> : null}
        <Row head="Caller">{caller ? <Jump store={store} place={{ ...caller, track: about.track }}><Name store={store} id={caller.function} /></Jump> : <span class="faint">none in the trace</span>}</Row>
        {states && states.running_ns + states.runnable_ns + states.blocked_ns + states.unknown_ns > 0 && <Row head="States">{statesInWords(states)}</Row>}
        {labels.map(([label, value], index) => <Row head={visible(label)} key={index}><bdi>{value === null ? '' : visible(String(value))}</bdi></Row>)}
      </dl>
      {about.samples && about.samples.length > 0 && <Samples samples={about.samples} own={about.own_ns} />}
      {about.children.length > 0 && (
        <>
          <h3>Called from it{(about.all_children ?? 0) > about.children.length ? `, the first ${about.children.length} of ${count(about.all_children)} functions` : ''}</h3>
          <ul class="bars">
            {about.children.map((child) => (
              <li key={child.function}>
                <Bar ns={child.total_ns} most={time} />
                <span class="faint">{count(child.calls)}&times;</span>
                {child.from !== undefined && child.to !== undefined
                  ? <Jump store={store} place={{ track: about.track, from: child.from, to: child.to, depth: child.depth ?? about.depth + 1 }}><Name store={store} id={child.function} /></Jump>
                  : <Name store={store} id={child.function} />}
              </li>
            ))}
          </ul>
        </>
      )}
    </>
  );
}

/** Places of a call's own time that are listed. */
const PLACES = 8;

/** What the own time went into, by sampled stacks. */
function Samples({ samples, own }: { samples: [string, number][]; own: number }): JSX.Element {
  const all = samples.reduce((sum, [, of]) => sum + of, 0);
  const share = (of: number): number => own * (of / all);
  return (
    <>
      <h3>In its own time ({plural(all, 'sample')})</h3>
      <ul class="bars">
        {samples.slice(0, PLACES).map(([text, of]) => (
          <li key={text}>
            <Bar ns={share(of)} most={own} />
            <span class="faint">{count(of)}&times;</span>
            <bdi>{visible(text)}</bdi> <span class="faint">{((100 * of) / all).toFixed(0)} %</span>
          </li>
        ))}
      </ul>
      {samples.length > PLACES && <p class="faint">and {plural(samples.length - PLACES, 'place')} more</p>}
    </>
  );
}

export function setSide(store: Store, side: 'a' | 'b', place: Place): void {
  const text = `call:${place.track}:${place.from}:${place.depth}`;
  const both = side === 'a' ? store.state.b !== '' : store.state.a !== '';
  store.set({ ...(side === 'a' ? { a: text } : { b: text }), ...(both ? { panel: 'compare' as const } : {}) }, true);
  store.say(`side ${side.toUpperCase()} of the comparison is set`);
}

const AROUND = 2000;

function Source({ store, source }: { store: Store; source: SourceText }): JSX.Element {
  const box = useRef<HTMLPreElement>(null);
  const first = source.first_line ?? 1;
  const lines = source.text?.split('\n') ?? [];
  const line = source.line ?? 0;
  // A file of a million lines is shown around the function.
  const begin = Math.max(0, Math.min(line - first - AROUND, lines.length));
  const shown = lines.slice(begin, begin + 2 * AROUND);
  useEffect(() => {
    const element = box.current;
    const mark = element?.querySelector<HTMLElement>('.here');
    if (element && mark) element.scrollTop = mark.offsetTop - element.clientHeight * 0.25;
  }, [source]);
  return (
    <>
      <div class="where">
        <span class="path" title={visible(source.file ?? '')}><bdo dir="ltr">{source.file ? `${visible(source.file)}:${line}` : 'no source position'}</bdo></span>
        {source.callers.some((caller) => caller.function !== null) && (
          <details class="callers">
            <summary>{plural(source.callers.length, 'caller')}</summary>
            <ul>
              {source.callers.slice(0, 200).map((caller) => (
                <li key={caller.function}>
                  <span class="faint">{count(caller.calls)}&times;</span>{' '}
                  {caller.function === null
                    ? <span class="faint">no call around them in the trace</span>
                    : caller.track !== undefined && caller.from !== undefined && caller.to !== undefined
                    ? <Jump store={store} place={{ track: caller.track, from: caller.from, to: caller.to, depth: caller.depth ?? 0 }} label="Its longest call from here"><Name store={store} id={caller.function} /></Jump>
                    : <Name store={store} id={caller.function} />}
                  {caller.file && <span class="faint"> <bdi>{visible(caller.file.split('/').pop() ?? '')}:{caller.line}</bdi></span>}
                </li>
              ))}
            </ul>
          </details>
        )}
      </div>
      {source.text === null
        ? <p class="empty">{visible(source.why ?? 'There is no source.')}</p>
        : (
          <pre ref={box} tabIndex={0} aria-label={`Source, line ${line} is the function's`}>
            {shown.map((text, index) => {
              const number = first + begin + index;
              return <div key={number} class={number === line ? 'here' : undefined} aria-current={number === line ? 'location' : undefined}><span class="number">{number}</span><span class="code">{visibleLine(text)}{'\n'}</span></div>;
            })}
          </pre>
        )}
    </>
  );
}

function MarkPanel({ store, place }: { store: Store; place: { track: number; at: number } }): JSX.Element {
  const answer = useAnswer(`${place.track} ${place.at}`, async () => {
    const found = await store.source.marks({ tracks: [place.track], from: place.at, to: place.at + 1, pixels: 1000 });
    return found.filter(({ at }) => at === place.at);
  });
  useEffect(() => {
    if (answer.value?.[0]) store.say(`${answer.value[0].kind}: ${visible(answer.value[0].text)}`);
  }, [answer.value]);
  return (
    <div class="details" tabIndex={0} role="group" aria-label="Selected mark">
      <Waiting answer={answer}>
        {(marks: Mark[]) => marks.map((mark) => (
          <section key={`${mark.kind} ${mark.text}`}>
            <h2>{mark.kind} <Copy text={mark.text} what="the text" /></h2>
            <pre class="text">{mark.text.split('\n').map((line) => visibleLine(line)).join('\n')}</pre>
            <dl class="facts">
              <Row head="At">{moment(mark.at)} <span class="faint">{wall(store.trace.begin_wall_ns, mark.at)}</span></Row>
              {mark.to ? <Row head="Lasts">{duration(mark.to - mark.at)}</Row> : null}
              <Row head="Thread"><bdi>{visible(store.track(mark.track)?.name ?? '?')}</bdi></Row>
              {mark.count > 1 && <Row head="Marks">{count(mark.count)}</Row>}
            </dl>
          </section>
        ))}
      </Waiting>
    </div>
  );
}
