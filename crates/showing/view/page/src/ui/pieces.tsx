// Small things that panels are made of.

import type { ComponentChildren, JSX } from 'preact';
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { css, ofName } from '../colour';
import { duration, shortened, visible } from '../text';
import type { Store } from '../store';
import type { Place } from '../types';
import type { Answer } from './answer';

/** A function's name, literally; what couldn't be seen is marked. */
export function Name({ store, id, isWhole }: { store: Store; id: number; isWhole?: boolean }): JSX.Element {
  if (id === -1) return <span class="name">all</span>;
  const text = isWhole ? store.names.whole(id) : store.names.short(id);
  const func = store.names.get(id);
  return (
    <span class="name" title={func ? shortened(visible(func.full), 1500) : undefined}>
      <Swatch store={store} id={id} />
      <bdi>{text || '\u2026'}</bdi>
    </span>
  );
}

export function Swatch({ store, id }: { store: Store; id: number }): JSX.Element {
  const func = store.names.get(id);
  const key = store.state.colour === 'module' ? `module ${func?.module}` : func?.name;
  return <span class="swatch" aria-hidden="true" style={{ background: func && key ? css(ofName(key, store.theme)) : 'transparent' }} />;
}

export function Copy({ text, what }: { text: string; what: string }): JSX.Element {
  const [isCopied, setCopied] = useState(false);
  const copy = async (): Promise<void> => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      // Without permission, or on a page of its own: as a selected text.
      const area = document.createElement('textarea');
      area.value = text;
      document.body.append(area);
      area.select();
      document.execCommand('copy');
      area.remove();
    }
    setCopied(true);
    setTimeout(() => setCopied(false), 1200);
  };
  return <button type="button" class="small" aria-label={`Copy ${what}`} onClick={copy}>{isCopied ? 'copied' : 'copy'}</button>;
}

export function Jump({ store, place, children, label }: { store: Store; place: Place; children: ComponentChildren; label?: string }): JSX.Element {
  return <button type="button" class="link" aria-label={label} title="Select this call and zoom to it" onClick={() => store.select(place, 'zoom')}>{children}</button>;
}

/** What a panel says while it waits, fails, or has nothing to show. */
export function Waiting<T>({ answer, none, children }: { answer: Answer<T>; none?: string; children: (value: T) => ComponentChildren }): JSX.Element {
  if (answer.error !== null) return <p class="empty bad" role="alert">{visible(answer.error)}</p>;
  if (answer.value === null) return <p class="empty">{answer.isLoading ? <Computing /> : none ?? 'Nothing to show.'}</p>;
  return <div class={answer.isLoading ? 'fill stale' : 'fill'}>{children(answer.value)}</div>;
}

/** After a second it says for how long already. */
function Computing(): JSX.Element {
  const [seconds, setSeconds] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => setSeconds((before) => before + 1), 1000);
    return () => clearInterval(timer);
  }, []);
  return <span>Computing&hellip;{seconds > 0 ? ` ${seconds} s` : ''}</span>;
}

export interface Column<Row> {
  key: string;
  head: string;
  title?: string;
  isText?: boolean;
  width: string;
  value: (row: Row) => number | string | null;
  show: (row: Row) => ComponentChildren;
}

const ROW_HEIGHT = 22;

/** A table that can be sorted, with only the rows in the document that are seen. */
export function Table<Row>({ label, rows, columns, sort, isSelected, open }: {
  label: string;
  rows: Row[];
  columns: Column<Row>[];
  /** Column, and whether the largest come first. */
  sort?: [string, boolean];
  isSelected?: (row: Row) => boolean;
  open?: (row: Row) => void;
}): JSX.Element {
  const [[by, isDown], setSort] = useState<[string, boolean]>(sort ?? ['', true]);
  const [top, setTop] = useState(0);
  const [height, setHeight] = useState(400);
  /** The row that Tab reaches; arrow keys go on from there. */
  const [active, setActive] = useState(0);
  const box = useRef<HTMLDivElement>(null);
  const sorted = useMemo(() => {
    const column = columns.find(({ key }) => key === by);
    if (!column) return rows;
    const order = (a: Row, b: Row): number => {
      const [x, y] = [column.value(a), column.value(b)];
      if (x === null || y === null) return (x === null ? 1 : 0) - (y === null ? 1 : 0);
      const less = x < y ? -1 : x > y ? 1 : 0;
      return isDown ? -less : less;
    };
    return [...rows].sort(order);
  }, [rows, by, isDown]);
  useEffect(() => {
    const element = box.current;
    if (!element) return undefined;
    const observer = new ResizeObserver(() => setHeight(element.clientHeight));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  const first = Math.max(0, Math.floor(top / ROW_HEIGHT) - 8);
  const last = Math.min(sorted.length, Math.ceil((top + height) / ROW_HEIGHT) + 8);
  const stop = active >= first && active < last ? active : Math.min(last - 1, Math.ceil(top / ROW_HEIGHT));
  const least = columns.reduce((sum, { width }) => sum + Number(/(\d+)px/.exec(width)?.[1] ?? 0), 0);
  const grid = { gridTemplateColumns: columns.map(({ width }) => width).join(' '), minWidth: `${least}px` };
  return (
    <div class="table" role="table" aria-label={label} aria-rowcount={sorted.length + 1} ref={box} tabIndex={0} onScroll={(event) => setTop(event.currentTarget.scrollTop)}>
      <div class="head row" role="row" style={grid}>
        {columns.map(({ key, head, title, isText }) => (
          <span role="columnheader" key={key} class={isText ? 'text' : ''} aria-sort={key === by ? (isDown ? 'descending' : 'ascending') : 'none'}>
            <button type="button" title={title} onClick={() => setSort([key, key === by ? !isDown : !isText])}>{head}{key === by ? (isDown ? ' \u25be' : ' \u25b4') : ''}</button>
          </span>
        ))}
      </div>
      <div style={{ height: `${first * ROW_HEIGHT}px` }} />
      {sorted.slice(first, last).map((row, index) => (
        <div
          class={`row${isSelected?.(row) ? ' selected' : ''}${open ? ' opens' : ''}`} role="row" aria-rowindex={first + index + 2} style={grid} key={first + index}
          tabIndex={open ? (first + index === stop ? 0 : -1) : undefined}
          onFocus={open ? () => setActive(first + index) : undefined}
          onClick={open ? () => open(row) : undefined}
          onKeyDown={open ? (event) => {
            if (event.key === 'Enter') open(row);
            const other = event.key === 'ArrowDown' ? event.currentTarget.nextElementSibling : event.key === 'ArrowUp' ? event.currentTarget.previousElementSibling : null;
            if (other instanceof HTMLElement && other.role === 'row') {
              event.preventDefault();
              other.focus();
            }
          } : undefined}
        >
          {columns.map(({ key, show, isText }) => <span role="cell" key={key} class={isText ? 'text' : ''}>{show(row)}</span>)}
        </div>
      ))}
      <div style={{ height: `${(sorted.length - last) * ROW_HEIGHT}px` }} />
    </div>
  );
}

/** A duration as a bar and a number. */
export function Bar({ ns, most, isBad }: { ns: number; most: number; isBad?: boolean }): JSX.Element {
  return (
    <span class="bar">
      <span class={isBad ? 'bad' : ''} style={{ width: `${Math.min(100, (100 * Math.abs(ns)) / Math.max(1, most))}%` }} />
      <b>{duration(ns)}</b>
    </span>
  );
}
