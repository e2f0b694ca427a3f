// All calls of one function: how long they took, the slowest of them, and what one did that the median one did not.

import type { JSX } from 'preact';
import { average, change, count, duration, moment, plural, visible } from '../text';
import { useStore } from '../store';
import type { Store } from '../store';
import type { ExplainRow, Instances, Place } from '../types';
import { useAnswer } from './answer';
import { setSide } from './call';
import { useScope } from './panels';
import { Jump, Name, Table, Waiting } from './pieces';

export function InstancesPanel({ store }: { store: Store }): JSX.Element {
  useStore(store, ({ state, names, theme }) => [state.func, state.selection, names.version, theme]);
  const [scope, key] = useScope(store);
  const { func } = store.state;
  const answer = useAnswer(func === null ? null : `${func} ${key}`, () => store.source.instances(func as number, scope, 200));
  if (func === null) return <p class="empty">Choose a function: in the table of functions, in the flame graph, or by &ldquo;All its calls&rdquo; of a selected call.</p>;
  return <Waiting answer={answer}>{(instances) => <Found store={store} func={func} instances={instances} />}</Waiting>;
}

const isSame = (a: Place, b: Place | null): boolean => b !== null && a.track === b.track && a.from === b.from && a.depth === b.depth;

function Found({ store, func, instances }: { store: Store; func: number; instances: Instances }): JSX.Element {
  const { selection } = store.state;
  return (
    <div class="split">
      <div class="column">
        <div class="toolbar">
          <Name store={store} id={func} />
          <span class="keep">{plural(instances.count, 'call')}, p50 {duration(instances.p50)}, p99 {duration(instances.p99)}, max {duration(instances.max)}</span>
          <button type="button" class="small" title="A bar for each call, above the timeline" onClick={() => store.set({ frame: store.names.whole(func) }, true)}>As frames</button>
          {instances.all_calls && instances.all_calls > (instances.calls ?? 0) ? <span class="faint keep" title="Calls since the process began, as counted beside the events: also those that were overwritten or dropped">{plural(instances.all_calls, 'call')} in all</span> : null}
          {instances.untimed ? <span class="faint keep">{count(instances.untimed)} truncated or not measured, left out</span> : null}
        </div>
        <Histogram store={store} instances={instances} />
      </div>
      <div class="column">
        <div class="toolbar">
          <b class="keep">Slowest</b>
          {instances.median && <Jump store={store} place={instances.median}>Go to the median call</Jump>}
        </div>
        <Table
          label="Slowest calls" rows={instances.slowest} isSelected={(row) => isSame(row, selection)} open={(row) => store.select(row, 'into view')}
          columns={[
            { key: 'duration', head: 'Duration', width: '90px', value: ({ from, to }) => to - from, show: ({ from, to }) => duration(to - from) },
            { key: 'at', head: 'At', width: '130px', value: ({ from }) => from, show: ({ from }) => moment(from) },
            { key: 'thread', head: 'Thread', isText: true, width: 'minmax(90px, 1fr)', value: ({ track }) => store.track(track)?.name ?? '', show: ({ track }) => <bdi>{visible(store.track(track)?.name ?? '?')}</bdi> },
            { key: 'depth', head: 'Depth', width: '60px', value: ({ depth }) => depth, show: ({ depth }) => depth },
            {
              key: 'why', head: '', isText: true, width: '130px', value: () => null,
              show: (row) => (
                <>
                  <button type="button" class="small" title="What it did that the median call did not" onClick={(event) => { event.stopPropagation(); store.select(row, 'into view'); store.set({ panel: 'explain' }); }}>why</button>
                  {instances.median && <button type="button" class="small" title="Compare with the median call" onClick={(event) => {
                    event.stopPropagation();
                    if (instances.median) setSide(store, 'a', instances.median);
                    setSide(store, 'b', row);
                    store.set({ panel: 'compare' });
                  }}>compare</button>}
                </>
              ),
            },
          ]}
        />
      </div>
    </div>
  );
}

function Histogram({ store, instances }: { store: Store; instances: Instances }): JSX.Element {
  const rows = instances.histogram;
  if (rows.length === 0) return <p class="empty">No call with a known duration.</p>;
  // A bucket for each quarter of a power of two, empty ones too: the axis is a scale.
  const place = (ns: number): number => (ns < 1 ? -1 : Math.round(4 * Math.log2(ns)));
  const first = place(rows[0].from_ns);
  const last = place(rows[rows.length - 1].from_ns);
  const n = last - first + 1;
  const most = Math.max(...rows.map(({ calls }) => calls));
  const marks: [number | null, string][] = [[instances.p50, 'p50'], [instances.p99, 'p99']];
  const at = (ns: number): number => (100 * (Math.log2(Math.max(ns, 0.84)) * 4 - first)) / n;
  const labels: number[] = [];
  for (let power = Math.floor(Math.log10(Math.max(1, rows[0].from_ns))); power < 14; power++) {
    for (const factor of n > 40 ? [1] : [1, 2, 5]) if (at(factor * 10 ** power) >= -1 && at(factor * 10 ** power) <= 96) labels.push(factor * 10 ** power);
  }
  return (
    <div class="histogram" role="group" aria-label="Durations, on a logarithmic scale">
      <div class="plot">
        {rows.map((row) => {
          const tall = (100 * Math.log2(1 + row.calls)) / Math.log2(1 + most);
          const text = `${plural(row.calls, 'call')} of ${duration(row.from_ns)} to ${duration(row.to_ns)}`;
          return (
            <button
              key={row.from_ns} type="button" disabled={!row.longest} title={`${text}; click: the longest of them`} aria-label={text}
              style={{ left: `${(100 * (place(row.from_ns) - first)) / n}%`, width: `${100 / n}%`, height: '100%' }}
              onClick={() => { if (row.longest) store.select(row.longest, 'into view'); }}
            >
              <span style={{ height: `${Math.max(2, tall)}%` }} class={instances.p99 !== null && row.from_ns > instances.p99 ? 'outlier' : ''} />
            </button>
          );
        })}
        {marks.map(([ns, name]) => (ns === null ? null : <span key={name} class="mark" style={{ left: `${Math.max(0, Math.min(100, at(ns)))}%` }}><i>{name}</i></span>))}
      </div>
      <div class="axis" aria-hidden="true">{labels.map((ns) => <span key={ns} style={{ left: `${Math.max(0, at(ns))}%` }}>{duration(ns)}</span>)}</div>
      <p class="faint">Both axes are logarithmic. A click on a bar selects its longest call.</p>
    </div>
  );
}

export function ExplainPanel({ store }: { store: Store }): JSX.Element {
  useStore(store, ({ state, names, theme }) => [state.selection, names.version, theme]);
  const { selection } = store.state;
  const answer = useAnswer(selection && `${selection.track} ${selection.from} ${selection.depth}`, () => {
    const { track, from, depth } = selection as Place;
    return store.source.explain(track, from, depth);
  });
  if (!selection) return <p class="empty">Select a call on the timeline: this says what it did that the median call of its function did not.</p>;
  return (
    <Waiting answer={answer}>
      {({ function: func, median, here_ns: here, median_ns: usual, rows }) => {
        if (!median) return <p class="empty">This is the only call of its function with a known duration: there is nothing to compare it with.</p>;
        const most = Math.max(1, ...rows.map((row) => Math.abs(row.here_ns - row.median_ns)));
        const what = (row: ExplainRow): string => (row.kind === 'own' ? 'own time' : row.kind === 'wait' ? 'waiting' : row.kind === 'tail' ? 'after its tail call, not traced, at most' : '');
        return (
          <div class="column">
            <div class="toolbar">
              <Name store={store} id={func} />
              <span class="keep">took <b>{duration(here)}</b>, the <Jump store={store} place={median}>median call</Jump> {duration(usual)}: <b>{change(here - usual)}</b></span>
              <button type="button" onClick={() => { setSide(store, 'a', median); setSide(store, 'b', selection); store.set({ panel: 'compare' }); }}>Compare as trees</button>
            </div>
            <Table
              label="Differences from the median call" rows={rows} sort={['difference', true]}
              columns={[
                { key: 'difference', head: 'Difference', width: '150px', value: (row) => Math.abs(row.here_ns - row.median_ns), show: (row) => <Difference ns={row.here_ns - row.median_ns} most={most} /> },
                { key: 'here', head: 'This call', width: '90px', value: (row) => row.here_ns, show: (row) => duration(row.here_ns) },
                { key: 'usual', head: 'Median', width: '90px', value: (row) => row.median_ns, show: (row) => duration(row.median_ns) },
                { key: 'calls', head: 'Calls', width: '80px', value: (row) => row.here_calls, show: (row) => (row.kind === 'call' ? average(row.here_calls) : '') },
                { key: 'usualCalls', head: 'Median\u2019s', width: '80px', value: (row) => row.median_calls, show: (row) => (row.kind === 'call' ? average(row.median_calls) : '') },
                {
                  key: 'name', head: 'In', isText: true, width: 'minmax(180px, 1fr)', value: (row) => what(row) || store.names.short(row.function ?? func),
                  show: (row) => <>{what(row) ? <b>{what(row)} </b> : null}{row.kind === 'call' && row.median_calls === 0 ? <span class="tag">only here</span> : null}{row.kind === 'call' && row.here_calls === 0 ? <span class="tag">only in the median call</span> : null}<Name store={store} id={row.function ?? func} /></>,
                },
              ]}
            />
          </div>
        );
      }}
    </Waiting>
  );
}

/** More to the right in red, less to the left in green. */
export function Difference({ ns, most }: { ns: number; most: number }): JSX.Element {
  const share = Math.min(50, (50 * Math.abs(ns)) / Math.max(1, most));
  return (
    <span class="difference">
      <span class={ns > 0 ? 'more' : 'less'} style={{ left: `${ns > 0 ? 50 : 50 - share}%`, width: `${share}%` }} />
      <b>{change(ns)}</b>
    </span>
  );
}
