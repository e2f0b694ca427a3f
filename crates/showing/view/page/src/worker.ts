// Unpacks the data of a page of its own and answers requests, beside the thread that draws.

import { fromBase64, gunzip } from './decode';
import { Answers } from './answers';
import type { Query } from './answers';
import { readData } from './drawing/data';
import { Local } from './local';
import type { Slices } from './types';

type Message = { id: number } & ({ load: string; code: string } | { path: string; query: Query });
const scope = self as unknown as { postMessage(message: unknown, transfer: Transferable[]): void; onmessage: unknown };
let page: Local | undefined;

async function answer(message: Message): Promise<unknown> {
  if ('load' in message) {
    const [data, code] = await Promise.all([message.load, message.code].map((text) => gunzip(fromBase64(text))));
    page = new Local(readData(data), await Answers.of(code, data));
    return null;
  }
  return page?.answer(message.path, message.query);
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
