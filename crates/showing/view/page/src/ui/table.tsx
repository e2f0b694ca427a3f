// The rows of `everycall report`.

import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { count, duration, plural, shortened, visible } from '../text';
import { useStore } from '../store';
import type { Live } from '../live';
import type { Store } from '../store';
import type { ReportRow } from '../types';
import { useAnswer } from './answer';
import { useScope } from './panels';
import { Bar, Name, Table, Waiting } from './pieces';
import type { Column } from './pieces';

const GROUPS = ['function', 'module', 'file', 'thread', 'process', 'path'];

export function TablePanel({ store }: { store: Store }): JSX.Element {
  useStore(store, ({ state, names, theme, trace, live }) => [live?.switched, live?.facts?.over, trace.labels?.length, state.by, state.func, state.colour, names.version, theme]);
  const { trace, state: { by } } = store;
  const [scope, key] = useScope(store);
  const [filter, setFilter] = useState('');
  const answer = useAnswer(`${key} ${by}`, async () => ({ by, report: await store.source.report(scope, by) }));
  const part = filter.toLowerCase();
  // A page of its own has no such numbers.
  const groups = [...GROUPS, ...(store.source.isLocal ? [] : trace.labels ?? []).map((name) => `label:${name}`)];
  return (
    <div class="column">
      <div class="toolbar">
        <label>by <select value={by} onChange={(event) => store.set({ by: event.currentTarget.value }, true)}>{groups.map((name) => <option key={name} value={name}>{visible(shortened(name, 60))}</option>)}</select></label>
        <input type="search" placeholder="Filter" aria-label="Filter rows" value={filter} onInput={(event) => setFilter(event.currentTarget.value)} spellcheck={false} />
        {answer.value && <span class="faint">{plural(answer.value.report.rows.length, 'row')}, {plural(answer.value.report.calls, 'call')}{scope.call || Number.isFinite(scope.from) ? '; calls that begin or end outside count with their whole duration' : ''}</span>}
        {store.live && by === 'function' && <Switched store={store} live={store.live} />}
      </div>
      <Waiting answer={answer}>
        {({ by: group, report }) => {
          const rows = part === '' ? report.rows : report.rows.filter((row) => `${row.name} ${row.module ?? ''} ${row.file ?? ''}`.toLowerCase().includes(part));
          const isFunctions = group === 'function';
          return (
            <Table
              key={group} label={`Calls by ${group}`} rows={rows} sort={['own', true]} columns={columnsOf(store, report.rows, isFunctions)}
              isSelected={(row) => isFunctions && typeof row.function === 'number' && row.function === store.state.func}
              open={isFunctions ? (row) => { if (typeof row.function === 'number') store.set({ func: row.function, panel: 'instances' }, true); } : undefined}
            />
          );
        }}
      </Waiting>
    </div>
  );
}

/** Functions that were switched off here, to be switched on again. */
function Switched({ store, live }: { store: Store; live: Live }): JSX.Element | null {
  const { switched, off } = live;
  if (!switched) return null;
  return (
    <span>
      {switched.error !== undefined ? <span class="bad" role="alert">{visible(switched.error)}</span> : <span class="faint">{visible(switched.said ?? '')}</span>}
      {[...off].map((func) => <button key={func} type="button" class="small" title="Record it again" onClick={() => void live.switch(func, true)}>&#x21bb; {shortened(store.names.short(func), 40)}</button>)}
    </span>
  );
}

/** Whether a row has more calls in all than in the trace. */
export const hasMoreCalls = (rows: { calls: number; all_calls?: number | null }[]): boolean => rows.some((row) => (row.all_calls ?? 0) > row.calls);

/** The column of all calls. */
export const allCalls = <R extends { all_calls?: number | null }>(): Column<R> => ({
  key: 'all', head: 'All calls', title: 'Calls since the process began, as counted beside the events: also those that were overwritten or dropped',
  width: '96px', value: (row) => row.all_calls ?? null, show: (row) => (row.all_calls ? count(row.all_calls) : ''),
});

function columnsOf(store: Store, rows: ReportRow[], isFunctions: boolean): Column<ReportRow>[] {
  let [own, total] = [0, 0];
  for (const row of rows) [own, total] = [Math.max(own, row.own_ns), Math.max(total, row.total_ns)];
  const time = (key: keyof ReportRow, head: string, title: string): Column<ReportRow> => ({
    key: String(key), head, title, width: '82px', value: (row) => row[key] as number | null, show: (row) => duration(row[key] as number | null),
  });
  const columns: Column<ReportRow>[] = [
    { key: 'calls', head: 'Calls', title: 'Calls in the trace, truncated ones included', width: '86px', value: (row) => row.calls, show: (row) => count(row.calls) },
    ...(hasMoreCalls(rows) ? [allCalls<ReportRow>()] : []),
    { key: 'total', head: 'Total', title: 'Time in the calls and in what they called; recursion counts once', width: '118px', value: (row) => row.total_ns, show: (row) => <Bar ns={row.total_ns} most={total} /> },
    { key: 'own', head: 'Own', title: 'Time in the calls without the traced functions that they called', width: '118px', value: (row) => row.own_ns, show: (row) => <Bar ns={row.own_ns} most={own} /> },
    time('average_ns', 'Avg', 'Average duration'),
    time('p50_ns', 'p50', 'Half of the calls are not longer'),
    time('p99_ns', 'p99', '99 of 100 calls are not longer'),
    time('max_ns', 'Max', 'The longest call'),
  ];
  if (rows.some(({ unwound }) => unwound > 0)) columns.push({ key: 'unwound', head: 'Throws', title: 'Calls that were left by an exception, longjmp or the end of their thread', width: '70px', value: (row) => row.unwound, show: (row) => (row.unwound > 0 ? count(row.unwound) : '') });
  if (rows.some(({ truncated }) => truncated > 0)) columns.push({ key: 'truncated', head: 'Truncated', title: 'Calls whose entry or exit is not in the trace', width: '82px', value: (row) => row.truncated, show: (row) => (row.truncated > 0 ? count(row.truncated) : '') });
  columns.push({
    key: 'name', head: isFunctions ? 'Function' : 'Name', isText: true, width: 'minmax(180px, 1fr)', value: (row) => row.name,
    show: (row) => (isFunctions && typeof row.function === 'number' ? <Name store={store} id={row.function} /> : <bdi title={visible(shortened(row.name, 1500))}>{visible(shortened(row.name, 600))}</bdi>),
  });
  const { live, trace: { call_price_ns: price }, whole } = store;
  if (live && isFunctions && live.facts?.over == null) {
    const share = (row: ReportRow): number => (100 * row.calls * (price ?? 0)) / Math.max(1, whole.to - whole.from);
    if (price) columns.unshift({ key: 'price', head: 'Price', title: 'What recording its calls takes, as a share of one CPU, in what is kept: calls times the price of one, as the process measured it', width: '66px', value: share, show: (row) => (share(row) < 0.01 ? '<0.01 %' : `${share(row).toFixed(2)} %`) });
    columns.unshift({
      key: 'on', head: '', title: 'Whether its calls are recorded', width: '44px', value: (row) => (live.off.has(row.function ?? -1) ? 0 : 1),
      show: (row) => (typeof row.function === 'number' ? (
        <input
          type="checkbox" checked={!live.off.has(row.function)} aria-label={`Record ${visible(shortened(row.name, 80))}`} title="Record its calls from now on, or no longer"
          onClick={(event) => event.stopPropagation()} onChange={(event) => {
            if (typeof row.function === 'number') void live.switch(row.function, event.currentTarget.checked);
            // Space is to freeze the picture again.
            event.currentTarget.blur();
          }}
        />
      ) : ''),
    });
  }
  if (isFunctions) columns.push({ key: 'module', head: 'Module', isText: true, width: '120px', value: (row) => row.module ?? '', show: (row) => <bdi>{visible(shortened(row.module ?? '', 200))}</bdi> });
  return columns;
}
