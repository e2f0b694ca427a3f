// The page: where its data is, what it shows until that is there, and its parts.

import { render } from 'preact';
import type { JSX } from 'preact';
import { useEffect } from 'preact/hooks';
import { Live } from './live';
import { Names } from './names';
import { local, remote } from './source';
import { Store, useStore } from './store';
import { visible } from './text';
import type { Source } from './types';
import { FrameBars } from './ui/frames';
import { Header, programOf } from './ui/header';
import { Help } from './ui/help';
import { Minimap } from './ui/minimap';
import { Panels } from './ui/panels';
import { GUTTER, Timeline } from './ui/timeline';
import type { View } from './timeline/view';

const POLL_MS = 500;
const ALIVE_MS = 5000;

function App({ store }: { store: Store }): JSX.Element {
  useStore(store, ({ theme, trouble, state, live }) => [theme, trouble, state.theme, live?.trouble]);
  const { theme } = store;
  const trouble = store.trouble ?? store.live?.trouble ?? null;
  useEffect(() => {
    document.documentElement.dataset.theme = theme;
  }, [theme]);
  useEffect(() => {
    const query = matchMedia('(prefers-color-scheme: dark)');
    const changed = (): void => store.changed();
    query.addEventListener('change', changed);
    return () => query.removeEventListener('change', changed);
  }, []);
  return (
    <>
      <Header store={store} />
      {trouble !== null && <p class="trouble" role="alert">{visible(trouble)}</p>}
      <nav class="overview" aria-label="Overview" style={{ paddingLeft: `${GUTTER}px` }}><Minimap store={store} /></nav>
      <FrameBars store={store} />
      <main>
        <Timeline store={store} />
        <Panels store={store} />
      </main>
      <Help store={store} />
      <Said store={store} />
    </>
  );
}

function Said({ store }: { store: Store }): JSX.Element {
  useStore(store, ({ said }) => [said]);
  return <div class="said" role="status" aria-live="polite">{store.said}</div>;
}

async function open(): Promise<Source> {
  const data = document.getElementById('data');
  const worker = document.getElementById('worker');
  const answers = document.getElementById('answers');
  if (!data || !worker || !answers) return remote();
  const url = URL.createObjectURL(new Blob([worker.textContent ?? ''], { type: 'text/javascript' }));
  const [text, code] = [data.textContent ?? '', answers.textContent ?? ''];
  // As text it isn't needed any more, and it may be large.
  data.remove();
  return local(text, code, url);
}

/** While the file is read, the picture grows. */
async function follow(store: Store): Promise<void> {
  while (!store.trace.complete) {
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    try {
      const trace = await store.source.trace();
      store.names.grow(trace.functions);
      store.setTrace(trace);
      (window as unknown as { everycall?: { view: View } }).everycall?.view.refresh();
    } catch {
      // `alive` says it.
    }
  }
}

function keepAlive(store: Store): void {
  const ask = async (): Promise<void> => {
    const isThere = await fetch('./alive').then(({ ok }) => ok, () => false);
    const trouble = isThere ? null : 'everycall view has ended: what is on this page stays, and nothing more can be loaded. Start it again and open its new link.';
    if (trouble !== store.trouble) {
      store.trouble = trouble;
      store.changed();
    }
  };
  void ask();
  setInterval(() => void ask(), ALIVE_MS);
}

async function start(): Promise<void> {
  const root = document.getElementById('app');
  if (!root) return;
  const note = document.createElement('p');
  note.className = 'opening';
  note.textContent = 'Opening the trace\u2026';
  root.append(note);
  try {
    const source = await open();
    const store = new Store(source, await source.trace());
    store.names = new Names(source, store.trace.functions, () => store.changed());
    document.title = `${programOf(store.trace)} \u2013 everycall`;
    note.remove();
    if (store.trace.generation !== undefined) {
      source.generation = store.trace.generation;
      store.live = new Live(store, source);
    }
    render(<App store={store} />, root);
    store.search();
    store.showNamed();
    void (store.live?.run() ?? follow(store));
    if (!source.isLocal) keepAlive(store);
  } catch (error) {
    note.className = 'opening bad';
    note.setAttribute('role', 'alert');
    note.textContent = `The trace can't be opened: ${visible(error instanceof Error ? error.message : String(error))}`;
  }
}

void start();
