// The bar at the top: what the trace is, the search, and what the view looks like.

import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { count, duration, plural, visible } from '../text';
import { useStore } from '../store';
import type { Store } from '../store';
import type { Live } from '../live';
import type { Trace } from '../types';

const SEARCH_MS = 160;

export function Header({ store }: { store: Store }): JSX.Element {
  useStore(store, ({ trace, state, helpIsOpen }) => [trace, state.theme, state.colour, helpIsOpen, state.isPanelOpen]);
  const { trace, state } = store;
  // Of a running program, `Pace` says it.
  const losses = store.live ? 0 : trace.losses.length;
  return (
    <header>
      <h1 title={visible(trace.files.map(({ name }) => name).join('\n'))}>{programOf(trace)}</h1>
      {store.live && <Pace store={store} live={store.live} />}
      <span class="facts">
        {duration(store.whole.to - store.whole.from)} &middot; {trace.complete ? plural(trace.events, 'event') : <Progress store={store} />}
        {losses > 0 && <> &middot; <button type="button" class="link bad" onClick={() => store.set({ panel: 'about', isPanelOpen: true })}>{plural(losses, 'loss', 'losses')}</button></>}
      </span>
      <SearchBox store={store} />
      <span class="tools">
        <button type="button" onClick={() => store.set({ colour: state.colour === 'function' ? 'module' : 'function' }, true)} title="What has the same colour (C)">
          Colour: {state.colour}
        </button>
        <button type="button" onClick={() => store.set({ view: store.whole }, true)} title={store.live ? 'Show all that is kept (0)' : 'Show the whole trace (0)'}>{store.live ? 'All kept' : 'Whole trace'}</button>
        <button type="button" aria-label={`Switch to the ${store.theme === 'dark' ? 'light' : 'dark'} theme`} onClick={() => store.set({ theme: store.theme === 'dark' ? 'light' : 'dark' })} title="Dark or light (T)">
          {store.theme === 'dark' ? 'Light' : 'Dark'}
        </button>
        <button type="button" aria-label="Help: keys and pointer" title="Keys and pointer (?)" onClick={() => { store.helpIsOpen = true; store.changed(); }}>?</button>
      </span>
    </header>
  );
}

/** Whether the picture goes on, and what is missing in it. */
function Pace({ store, live }: { store: Store; live: Live }): JSX.Element {
  useStore(store, ({ state }) => [live.facts, live.isFrozen, live.kept, state.range]);
  const { facts, isFrozen } = live;
  const over = facts?.over ?? null;
  const [state, said] = over !== null ? ['over', 'ended'] : isFrozen ? ['frozen', 'frozen'] : ['live', 'live'];
  const kept = facts ? `Kept are the newest ${bytes(facts.kept_bytes)} of events, at most ${bytes(facts.most_bytes)}.` : '';
  return (
    <span class="pace">
      <span class={`state ${state}`} role="status" title={over === null ? kept : visible(over)}>{said}</span>
      {over === null && (
        <button type="button" aria-pressed={isFrozen} title={isFrozen ? 'Go on with the newest calls (Space)' : 'Freeze the picture (Space)'} onClick={() => live.toggle()}>
          {isFrozen ? 'Go on' : 'Freeze'}
        </button>
      )}
      {(isFrozen || over !== null) && (
        <button
          type="button" title={`Write ${store.state.range ? 'the selected range' : 'all that is kept'} to a file, for everycall view, report and others (K)`} onClick={() => void live.keep()}
        >
          {store.state.range ? 'Keep range' : 'Keep'}
        </button>
      )}
      {live.kept?.file !== undefined && <span class="faint" title={`Written where everycall view runs: ${visible(live.kept.file)}`}>in {visible(live.kept.file)}</span>}
      {live.kept?.error !== undefined && <span class="bad" role="alert">{visible(live.kept.error)}</span>}
      {facts !== null && facts.lost > 0 && (
        <button
          type="button" class="link bad" onClick={() => store.set({ panel: 'about', isPanelOpen: true })}
          title="Events that newer ones had overwritten before they were read, since this viewer began. Where they are missing, the timeline is hatched."
        >
          {count(facts.lost)} lost
        </button>
      )}
    </span>
  );
}

const bytes = (n: number): string => (n >= 1 << 30 ? `${(n / 2 ** 30).toFixed(1)} GiB` : n >= 1 << 20 ? `${(n / 2 ** 20).toFixed(1)} MiB` : `${Math.ceil(n / 1024)} KiB`);

/** The program's name, or else the file's. */
export function programOf({ program, files }: Trace): string {
  return visible(program || (files[0]?.name.split('/').pop() ?? 'trace'));
}

function Progress({ store }: { store: Store }): JSX.Element {
  const { read_events: read, events, read_bytes: bytes, file_bytes: all, counting } = store.trace;
  const share = all ? (bytes ?? 0) / all : events > 0 ? read / events : 0;
  const why = 'Hatched times were not read from their beginning yet. What is shown there comes from parts of the file, read here and there: calls are missing between them, and of outer calls only the number is known.';
  return (
    <span title={why} role="progressbar" aria-valuemin={0} aria-valuemax={100} aria-valuenow={Math.round(100 * share)}>
      {counting ? <>about {about(events)} events, being counted</> : <>{count(read)} events, reading&hellip; {Math.round(100 * share)} %</>}; hatched: incomplete
    </span>
  );
}

/** A number with two digits that are true. */
const about = (n: number): string => {
  const scale = 10 ** Math.max(0, Math.floor(Math.log10(Math.max(n, 1))) - 1);
  return count(Math.round(n / scale) * scale);
};

function SearchBox({ store }: { store: Store }): JSX.Element {
  useStore(store, ({ state, found, isSearching, searchError, next }) => [state.query, found, isSearching, searchError, next]);
  const { query } = store.state;
  const [text, setText] = useState(query);
  useEffect(() => setText(query), [query]);
  useEffect(() => {
    if (text === query) return undefined;
    const timer = setTimeout(() => store.set({ query: text }), SEARCH_MS);
    return () => clearTimeout(timer);
  }, [text]);
  const { found, next } = store;
  let said = '';
  if (store.searchError !== null) said = 'invalid';
  else if (query !== '' && store.isSearching) said = '\u2026';
  else if (query !== '' && found) said = next ? `${count(next.index)} of ${count(next.total)}` : plural(found.total, 'hit');
  return (
    <search class="search">
      <input
        id="search" type="search" value={text} placeholder="Search names, labels, log lines, /regex/" aria-label="Search functions, labels and log lines" aria-keyshortcuts="/"
        spellcheck={false} autocomplete="off" class={visible(text) === text ? '' : 'plain'} onInput={(event) => setText(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key !== 'Enter') return;
          event.preventDefault();
          if (text !== query) store.set({ query: text });
          void store.step(event.shiftKey);
        }}
      />
      <output title={store.searchError ? visible(store.searchError) : undefined} class={store.searchError ? 'bad' : ''}>{said}</output>
      <button type="button" aria-label="Previous hit" title="Previous hit (Shift+Enter, Shift+N)" disabled={!found?.total} onClick={() => void store.step(true)}>&uarr;</button>
      <button type="button" aria-label="Next hit" title="Next hit (Enter, N)" disabled={!found?.total} onClick={() => void store.step(false)}>&darr;</button>
      <button type="button" title="All functions and hits that were found" disabled={!found} onClick={() => store.set({ panel: 'search', isPanelOpen: true }, true)}>List</button>
    </search>
  );
}
