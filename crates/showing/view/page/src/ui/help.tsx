// All keys, and what the pointer does.

import type { JSX } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { useStore } from '../store';
import type { Store } from '../store';

const KEYS: [string, [string, string][]][] = [
  ['Move', [
    ['W  S', 'zoom in, zoom out (also + and \u2212)'], ['A  D  \u2190  \u2192', 'move left, right'], ['\u2191  \u2193  PgUp  PgDn', 'scroll tracks'],
    ['Home  End', 'beginning, end'], ['0', 'the whole trace'], ['F', 'zoom to the selected call or range'], ['E', 'collapse or expand all tracks'],
  ]],
  ['Select', [
    ['Enter', 'first call in view, when none is selected'], ['Shift + \u2190  \u2192', 'call before, after in the same row'], ['Shift + \u2191  \u2193', 'caller, longest call within'],
    ['M', 'mark the selected call as range (Shift: of its track)'], ['Esc', 'nothing selected'],
  ]],
  ['A running program', [['Space', 'freeze the picture, or go on with the newest calls'], ['K', 'keep what is frozen, or the selected range, as a file']]],
  ['Find', [['/', 'search'], ['Enter  N', 'next hit'], ['Shift + Enter  Shift + N', 'previous hit']]],
  ['Look', [['C', 'colour by function or module'], ['T', 'dark or light'], ['P', 'hide or show the panel'], ['?', 'this help']]],
  ['Pointer', [
    ['drag', 'move in time and through tracks'], ['Shift + drag', 'select a range (also: drag in the time axis)'], ['click in the time axis', 'no range'],
    ['wheel', 'scroll tracks'], ['Ctrl + wheel, pinch', 'zoom at the pointer'], ['Shift + wheel, sideways', 'move'], ['double click', 'zoom to a call'],
    ['drag in the overview', 'move the window, or its edges'],
  ]],
];

export function Help({ store }: { store: Store }): JSX.Element {
  useStore(store, ({ helpIsOpen }) => [helpIsOpen]);
  const dialog = useRef<HTMLDialogElement>(null);
  const isOpen = store.helpIsOpen;
  useEffect(() => {
    if (isOpen && !dialog.current?.open) dialog.current?.showModal();
    if (!isOpen && dialog.current?.open) dialog.current.close();
  }, [isOpen]);
  const close = (): void => {
    store.helpIsOpen = false;
    store.changed();
  };
  return (
    <dialog ref={dialog} aria-labelledby="help-title" onClose={close} onClick={(event) => { if (event.target === dialog.current) close(); }}>
      <div class="help">
        <h2 id="help-title">Keys and pointer</h2>
        <div class="columns">
          {KEYS.map(([title, rows]) => (
            <section key={title}>
              <h3>{title}</h3>
              <dl>{rows.map(([keys, what]) => <div key={keys}><dt>{keys.split('  ').map((key) => <kbd key={key}>{key}</kbd>)}</dt><dd>{what}</dd></div>)}</dl>
            </section>
          ))}
          <section>
            <h3>Drawn as</h3>
            <dl class="legend">
              <div><dt><i class="l-atmost" /></dt><dd>took this time at most: not measured exactly</dd></div>
              <div><dt><i class="l-unwound" /></dt><dd>left by an exception, or otherwise unwound</dd></div>
              <div><dt><i class="l-loss" /></dt><dd>events are lost here</dd></div>
              <div><dt><i class="l-run" /></dt><dd>thread state: running</dd></div>
              <div><dt><i class="l-wait" /></dt><dd>thread state: runnable, waits for a CPU</dd></div>
              <div><dt><i class="l-block" /></dt><dd>thread state: blocked</dd></div>
              <div><dt><i class="l-hit" /></dt><dd>hit of the search</dd></div>
            </dl>
          </section>
        </div>
        {store.live && location.port !== '' && <p class="faint">From another machine: <code>ssh -N -L {location.port}:127.0.0.1:{location.port} HOST</code>, then open the address of this page there.</p>}
        <form method="dialog"><button type="submit">Close</button></form>
      </div>
    </dialog>
  );
}
