// The panel below the timeline: its tabs, and what tables and graphs are of.

import { Component } from 'preact';
import type { ComponentChildren, JSX } from 'preact';
import { useRef } from 'preact/hooks';
import { count, duration, moment, plural, shortened, visible } from '../text';
import { PANELS, scopeOf } from '../state';
import type { Panel, ScopeKind } from '../state';
import { useStore } from '../store';
import type { Store } from '../store';
import type { Kept, Scope, Search } from '../types';
import { useAnswer, useRested } from './answer';
import { CallPanel } from './call';
import { ComparePanel } from './compare';
import { FlamePanel } from './flame';
import { ExplainPanel, InstancesPanel } from './instances';
import { Name, Table, Waiting } from './pieces';
import { TablePanel, allCalls, hasMoreCalls } from './table';

const TITLES: Record<Panel, string> = {
  call: 'Call', table: 'Functions', flame: 'Flame graph', instances: 'Instances', explain: 'Versus median', compare: 'Compare', kept: 'Kept calls', search: 'Search', text: 'As text', about: 'About',
};
const SCOPED: Panel[] = ['table', 'flame', 'instances', 'text'];

export function Panels({ store }: { store: Store }): JSX.Element {
  useStore(store, ({ state, trace }) => [state.panel, state.panelHeight, state.isPanelOpen, state.selection, state.range, state.scope, trace.kept.length, trace.losses.length]);
  const { panel, isPanelOpen } = store.state;
  const panelHeight = store.state.panelHeight || Math.round(Math.max(220, Math.min(460, innerHeight * 0.37)));
  const { selection } = store.state;
  const guarded = `${panel} ${selection ? `${selection.track} ${selection.from} ${selection.depth}` : ''}`;
  const tabs = useRef<HTMLDivElement>(null);
  const choose = (name: Panel): void => store.set({ panel: name, isPanelOpen: true }, true);
  const held = useRef<{ y: number; height: number } | null>(null);
  const resize = (height: number): void => store.set({ panelHeight: Math.round(Math.max(120, Math.min(innerHeight - 260, height))) });
  const keys = (event: KeyboardEvent): void => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    const next = PANELS[(PANELS.indexOf(panel) + by + PANELS.length) % PANELS.length];
    choose(next);
    tabs.current?.querySelector<HTMLElement>(`#tab-${next}`)?.focus();
  };
  return (
    <section class="bottom" style={{ height: isPanelOpen ? `${panelHeight}px` : 'auto' }} aria-label="Details">
      {isPanelOpen && (
        <div
          class="splitter" role="separator" aria-orientation="horizontal" aria-label="Height of the panel" aria-valuenow={panelHeight} tabIndex={0}
          onPointerDown={(event) => {
            held.current = { y: event.clientY, height: panelHeight };
            event.currentTarget.setPointerCapture(event.pointerId);
          }}
          onPointerMove={(event) => { if (held.current) resize(held.current.height + held.current.y - event.clientY); }}
          onPointerUp={() => { held.current = null; }}
          onKeyDown={(event) => {
            if (event.key !== 'ArrowUp' && event.key !== 'ArrowDown') return;
            event.preventDefault();
            event.stopPropagation();
            resize(panelHeight + (event.key === 'ArrowUp' ? 24 : -24));
          }}
        />
      )}
      <div class="tabs">
        <div role="tablist" aria-label="Panels" ref={tabs} onKeyDown={keys}>
          {PANELS.map((name) => (
            <button
              key={name} type="button" role="tab" id={`tab-${name}`} aria-selected={name === panel} aria-controls="panel" tabIndex={name === panel ? 0 : -1} onClick={() => choose(name)}
            >
              {TITLES[name]}{name === 'kept' && store.trace.kept.length > 0 ? ` (${store.trace.kept.length})` : ''}
            </button>
          ))}
        </div>
        {SCOPED.includes(panel) && isPanelOpen && <ScopeChoice store={store} />}
        <button type="button" class="small fold" aria-expanded={isPanelOpen} aria-label={isPanelOpen ? 'Hide the panel' : 'Show the panel'} title="Hide or show the panel (P)" onClick={() => store.set({ isPanelOpen: !isPanelOpen })}>
          {isPanelOpen ? '\u25be' : '\u25b4'}
        </button>
      </div>
      {isPanelOpen && <div class="panel" role="tabpanel" id="panel" aria-labelledby={`tab-${panel}`}><Guard key={guarded}><Content store={store} panel={panel} /></Guard></div>}
    </section>
  );
}

/** Shows what went wrong in place of what is in it; a new key begins anew. */
class Guard extends Component<{ children: ComponentChildren }, { error: Error | null }> {
  override state = { error: null as Error | null };

  static override getDerivedStateFromError(error: Error): { error: Error } {
    return { error };
  }

  override componentDidCatch(error: Error): void {
    console.error(error);
  }

  override render(): ComponentChildren {
    const { error } = this.state;
    return error ? <p class="empty">This can't be shown, by a fault of the page: {error.message}</p> : this.props.children;
  }
}

function ScopeChoice({ store }: { store: Store }): JSX.Element {
  useStore(store, ({ state }) => [state.scope, state.range, state.selection]);
  const { scope, range, selection } = store.state;
  const has: Record<ScopeKind, boolean> = { trace: true, window: true, range: range !== null, call: selection !== null };
  return (
    <label class="scope">
      of{' '}
      <select value={has[scope] ? scope : 'trace'} onChange={(event) => store.set({ scope: event.currentTarget.value as ScopeKind }, true)}>
        <option value="trace">{store.live ? 'all that is kept' : 'the whole trace'}</option>
        <option value="window">what is in view</option>
        <option value="range" disabled={!range}>the range{range ? ` (${duration(range.to - range.from)})` : ''}</option>
        <option value="call" disabled={!selection}>the selected call{selection ? ` (${duration(selection.to - selection.from)})` : ''}</option>
      </select>
    </label>
  );
}

/** The scope of tables and graphs, once it has rested, and a key that changes with it and when the file has been read. */
export function useScope(store: Store): [Scope, string] {
  const follows = store.live?.isFollowing ?? false;
  useStore(store, ({ state, trace, live }) => [live?.tick, live?.isFrozen, state.scope, state.scope === 'window' && !live?.isFollowing ? state.view : null, state.scope === 'range' ? state.range : null, state.scope === 'call' ? state.selection : null, trace.complete]);
  // While the view moves, tables are of where it was.
  const scope = useRested(scopeOf(follows && store.live ? { ...store.state, view: store.live.ticked } : store.state), 150);
  return [scope, `${JSON.stringify([scope.from, scope.to, scope.tracks, scope.call])} ${store.trace.complete} ${store.live?.tick ?? ''}`];
}

function Content({ store, panel }: { store: Store; panel: Panel }): JSX.Element {
  switch (panel) {
    case 'call': return <CallPanel store={store} />;
    case 'table': return <TablePanel store={store} />;
    case 'flame': return <FlamePanel store={store} />;
    case 'instances': return <InstancesPanel store={store} />;
    case 'explain': return <ExplainPanel store={store} />;
    case 'compare': return <ComparePanel store={store} />;
    case 'kept': return <KeptPanel store={store} />;
    case 'search': return <SearchPanel store={store} />;
    case 'text': return <TextPanel store={store} />;
    case 'about': return <AboutPanel store={store} />;
  }
}

function KeptPanel({ store }: { store: Store }): JSX.Element {
  useStore(store, ({ state, trace, names, theme }) => [trace, names.version, theme, state.selection]);
  const { kept } = store.trace;
  if (kept.length === 0) return <p class="empty">This trace has no kept calls and no snapshots. Record with --trigger 'FUNCTION &gt; TIME' to keep slow calls.</p>;
  return (
    <Table
      label="Kept calls and snapshots" rows={kept} sort={['at', false]}
      open={(row) => store.showKept(row)}
      isSelected={(row) => row.depth !== null && row.from === store.state.selection?.from && row.depth === store.state.selection.depth && row.track === store.state.selection.track}
      columns={[
        { key: 'number', head: '#', width: '50px', value: (row) => row.number, show: (row) => row.number },
        { key: 'at', head: 'At', width: '120px', value: (row) => row.from, show: (row) => moment(row.from, 1000) },
        { key: 'duration', head: 'Duration', width: '130px', value: (row) => row.duration_ns, show: (row) => keptDuration(row) },
        { key: 'trigger', head: 'Trigger', isText: true, width: 'minmax(120px, 1fr)', value: (row) => row.trigger, show: (row) => visible(row.trigger) },
        {
          key: 'shape', head: 'Slowest path', isText: true, width: 'minmax(240px, 3fr)', value: (row) => row.shape.length,
          show: (row) => <span class="shape">{row.shape.slice(0, 12).map(([func, ns], index) => <span key={index} style={`--share: ${Math.min(100, (100 * ns) / Math.max(1, row.duration_ns))}%`}>{index > 0 ? '\u203a ' : ''}<Name store={store} id={func} /> <i>{index === 0 ? keptDuration(row) : duration(ns)}</i></span>)}{untracedTail(row)}</span>,
        },
      ]}
    />
  );
}

function keptDuration({ duration_ns: ns, bound }: Kept): string {
  return bound ? `${bound} ${duration(ns)}` : duration(ns);
}

/** The end of a path that leads into code that isn't traced. */
function untracedTail({ bound, jumped_to: target, behind_ns: ns = 0, shape, duration_ns: all }: Kept): JSX.Element | null {
  if (bound !== 'at most' || shape.length !== 1) return null;
  return <span style={`--share: ${Math.min(100, (100 * ns) / Math.max(1, all))}%`}>{'\u203a '}<bdi>{visible(target ?? 'what it jumped to')}</bdi> (not traced) <i>at most {duration(ns)}</i></span>;
}

function SearchPanel({ store }: { store: Store }): JSX.Element {
  useStore(store, ({ state, found, names, searchError, isSearching, theme }) => [state.query, found, names.version, searchError, isSearching, theme, state.selection]);
  const { found } = store;
  if (store.state.query === '') return <p class="empty">Type into the search field: a part of a name, a label or a log line, or a regular expression such as /^parse/.</p>;
  if (store.searchError !== null) return <p class="empty bad" role="alert">{visible(store.searchError)}</p>;
  if (!found) return <p class="empty">Searching&hellip;</p>;
  return (
    <div class="split">
      <div class="column">
        <h3>{count(found.functions.length)} functions</h3>
        <Table
          label="Functions found" rows={found.functions} sort={['total', true]} open={(row) => store.set({ func: row.id, panel: 'instances' }, true)}
          columns={[
            { key: 'calls', head: 'Calls', width: '90px', value: (row) => row.calls, show: (row) => count(row.calls) },
            ...(hasMoreCalls(found.functions) ? [allCalls<Search['functions'][number]>()] : []),
            { key: 'total', head: 'Total', width: '90px', value: (row) => row.total_ns, show: (row) => duration(row.total_ns) },
            { key: 'name', head: 'Function', isText: true, width: 'minmax(140px, 1fr)', value: (row) => store.names.short(row.id), show: (row) => <Name store={store} id={row.id} /> },
          ]}
        />
      </div>
      <div class="column">
        <h3>{found.hits.length < found.total ? `First ${count(found.hits.length)} of ${count(found.total)} hits` : `${count(found.total)} hits`}</h3>
        <Table
          label="Hits" rows={found.hits}
          isSelected={(row) => row.from === store.state.selection?.from && row.depth === store.state.selection.depth && row.track === store.state.selection.track}
          open={(row) => {
            if (row.depth === null) store.set({ mark: { track: row.track, at: row.from }, selection: null, view: store.around(row.from, row.to, true).view }, true);
            else store.select({ ...row, depth: row.depth }, 'into view');
          }}
          columns={[
            { key: 'at', head: 'At', width: '120px', value: (row) => row.from, show: (row) => moment(row.from) },
            { key: 'duration', head: 'Duration', width: '90px', value: (row) => row.to - row.from, show: (row) => duration(row.to - row.from) },
            { key: 'thread', head: 'Thread', isText: true, width: '110px', value: (row) => store.track(row.track)?.name ?? '', show: (row) => visible(store.track(row.track)?.name ?? '') },
            { key: 'name', head: 'What', isText: true, width: 'minmax(140px, 1fr)', value: (row) => row.text ?? '', show: (row) => (row.function === undefined || row.function === null ? visible(shortened(row.text ?? '', 300)) : <Name store={store} id={row.function} />) },
          ]}
        />
      </div>
    </div>
  );
}

function TextPanel({ store }: { store: Store }): JSX.Element {
  useStore(store, ({ names, theme }) => [names.version, theme]);
  const [scope, key] = useScope(store);
  const answer = useAnswer(key, () => store.source.text(scope, 2000));
  return (
    <Waiting answer={answer}>
      {({ rows, total }) => (
        <div class="column">
          <h3>{rows.length < total ? `First ${count(rows.length)} of ${count(total)} calls that begin there` : `${count(total)} calls begin there`}</h3>
          <Table
            label="Calls by time" rows={rows} open={(row) => store.select(row, 'into view')}
            columns={[
              { key: 'at', head: 'At', width: '150px', value: (row) => row.from, show: (row) => moment(row.from) },
              { key: 'duration', head: 'Duration', width: '100px', value: (row) => row.to - row.from, show: (row) => duration(row.to - row.from) },
              { key: 'thread', head: 'Thread', isText: true, width: '130px', value: (row) => store.track(row.track)?.name ?? '', show: (row) => visible(store.track(row.track)?.name ?? '') },
              { key: 'depth', head: 'Depth', width: '70px', value: (row) => row.depth, show: (row) => count(row.depth) },
              { key: 'name', head: 'Function', isText: true, width: 'minmax(160px, 1fr)', value: (row) => store.names.short(row.function), show: (row) => <span style={{ paddingLeft: `${Math.min(row.depth, 30) * 10}px` }}><Name store={store} id={row.function} /></span> },
            ]}
          />
        </div>
      )}
    </Waiting>
  );
}

function AboutPanel({ store }: { store: Store }): JSX.Element {
  useStore(store, ({ trace, live }) => [trace, live?.facts]);
  const { trace } = store;
  const facts = store.live?.facts ?? null;
  const notes = [...(facts?.notes ?? []), ...(facts && facts.lost > 0 ? [`${plural(facts.lost, 'event')} lost since this viewer began: newer ones had overwritten them before they were read`] : []), ...trace.notes];
  return (
    <div class="split">
      <div class="details" tabIndex={0} role="group" aria-label="About the trace">
        <h3>Files</h3>
        <ul>{trace.files.map(({ name, build }) => <li key={name}><bdi>{visible(name)}</bdi> <span class="faint">{build ? visible(build) : ''}</span></li>)}</ul>
        <h3>What there is to know</h3>
        {notes.length === 0 ? <p class="faint">Nothing is missing.</p> : <ul>{notes.map((note, index) => <li key={index}>{visible(note)}</li>)}</ul>}
        <h3>Modules</h3>
        <ul>{trace.modules.map(({ name, path, build_id: id }, index) => <li key={index}><bdi>{visible(path ?? name ?? '?')}</bdi> <span class="faint">{id ? visible(id) : ''}</span></li>)}</ul>
      </div>
      <div class="column">
        <h3>Losses</h3>
        {trace.losses.length === 0 ? <p class="faint">No events are lost.</p> : (
          <Table
            label="Losses" rows={trace.losses} open={({ from, to }) => store.set({ view: store.around(from, to, false).view }, true)}
            columns={[
              { key: 'at', head: 'From', width: '130px', value: ({ from }) => from, show: ({ from }) => moment(from) },
              { key: 'length', head: 'Length', width: '100px', value: ({ from, to }) => to - from, show: ({ from, to }) => duration(to - from) },
              { key: 'events', head: 'Events', width: '100px', value: ({ events }) => events ?? 0, show: ({ events }) => (events === null ? 'not counted' : count(events)) },
              { key: 'thread', head: 'Thread', isText: true, width: '1fr', value: ({ track }) => store.track(track)?.name ?? '', show: ({ track }) => <bdi>{visible(store.track(track)?.name ?? '?')}</bdi> },
              { key: 'why', head: 'Why', isText: true, width: '2fr', value: ({ why }) => why ?? '', show: ({ why }) => visible(why ?? '') },
            ]}
          />
        )}
      </div>
    </div>
  );
}

