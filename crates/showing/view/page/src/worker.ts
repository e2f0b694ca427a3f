// Unpacks the data of a page of its own and answers requests, beside the thread that draws.

import { fromBase64, gunzip } from './decode';
import { readData } from './engine/data';
import { Engine } from './engine/engine';
import type { Query } from './engine/engine';
import type { Slices } from './types';

type Message = { id: number } & ({ load: string } | { path: string; query: Query });
const scope = self as unknown as { postMessage(message: unknown, transfer: Transferable[]): void; onmessage: unknown };
let engine: Engine | undefined;

async function answer(message: Message): Promise<unknown> {
  if ('load' in message) {
    engine = new Engine(readData(await gunzip(fromBase64(message.load))));
    return null;
  }
  return engine?.answer(message.path, message.query);
}

scope.onmessage = async ({ data }: MessageEvent<Message>): Promise<void> => {
  try {
    const given = await answer(data);
    const columns = 'path' in data && data.path === 'slices'
      ? (given as Slices[]).flatMap(({ from, to, func, count, depth, bits }) => [from, to, func, count, depth, bits].map(({ buffer }) => buffer as ArrayBuffer))
      : [];
    scope.postMessage({ id: data.id, answer: given }, columns);
  } catch (error) {
    scope.postMessage({ id: data.id, error: error instanceof Error ? error.message : String(error) }, []);
  }
};
