// Answers of the source, in components.

import { useEffect, useRef, useState } from 'preact/hooks';

export interface Answer<T> {
  /** The last answer; stays while the next one is awaited, so that nothing jumps. */
  value: T | null;
  error: string | null;
  isLoading: boolean;
}

/** Asks again when the key changes; null: there is nothing to ask. */
export function useAnswer<T>(key: string | null, ask: () => Promise<T>): Answer<T> {
  const [answer, setAnswer] = useState<Answer<T>>({ value: null, error: null, isLoading: key !== null });
  const current = useRef<string | null>(null);
  useEffect(() => {
    current.current = key;
    if (key === null) {
      setAnswer({ value: null, error: null, isLoading: false });
      return;
    }
    setAnswer((before) => ({ ...before, isLoading: true }));
    ask().then(
      (value) => {
        if (current.current === key) setAnswer({ value, error: null, isLoading: false });
      },
      (error: unknown) => {
        if (current.current === key) setAnswer({ value: null, error: error instanceof Error ? error.message : String(error), isLoading: false });
      },
    );
  }, [key]);
  return answer;
}

/** A value that has rested for a moment. */
export function useRested<T>(value: T, ms: number): T {
  const [rested, setRested] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setRested(value), ms);
    return () => clearTimeout(timer);
  }, [JSON.stringify(value)]);
  return rested;
}

/** The size of an element's inside. */
export function useSize(): [(element: HTMLElement | null) => void, { width: number; height: number }] {
  const [size, setSize] = useState({ width: 0, height: 0 });
  const observer = useRef<ResizeObserver | null>(null);
  const attach = useRef((element: HTMLElement | null): void => {
    observer.current?.disconnect();
    if (!element) return;
    const measure = (): void => setSize((before) => (
      before.width === element.clientWidth && before.height === element.clientHeight ? before : { width: element.clientWidth, height: element.clientHeight }));
    observer.current = new ResizeObserver(measure);
    observer.current.observe(element);
    measure();
  });
  return [attach.current, size];
}
