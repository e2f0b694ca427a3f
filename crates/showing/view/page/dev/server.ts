// Serves the page with a made-up trace, with calls of `everycall export -f csv`, or with the answers of
// `everycall view --no-browser` at an address, while one works on the page:
//   npm run dev -- [--port N] [--calls N] [--threads N] [--depth N] [--csv FILE] [--proxy ADDRESS] [--write PAGE.html]

import { readFileSync, writeFileSync } from 'node:fs';
import { createServer, get } from 'node:http';
import { gunzipSync, gzipSync } from 'node:zlib';
import { encodeSlices } from '../src/decode';
import { readData, writeData } from '../src/drawing/data';
import { Answers } from '../src/answers';
import { Local } from '../src/local';
import type { Slices } from '../src/types';
import { fromCsv } from './csv';
import { synthetic } from './synthetic';

const option = (name: string, otherwise: string): string => {
  const at = process.argv.indexOf(`--${name}`);
  return at < 0 ? otherwise : process.argv[at + 1];
};
const csv = option('csv', '');
const data = csv !== ''
  ? fromCsv(readFileSync(csv, 'utf8'))
  : synthetic({ seed: 7, calls: Number(option('calls', '50000')), threads: Number(option('threads', '6')), deepest: Number(option('depth', '14')) });
const packed = readFileSync('dist/answers.wasm.gz');
const out = option('write', '');
if (out !== '') {
  const bytes = writeData(data);
  readData(bytes);
  const template = readFileSync('dist/alone.html', 'utf8');
  writeFileSync(out, template.replace('<!--data-->', () => `<script type="application/octet-stream;base64" id="answers">${packed.toString('base64')}</script>\n<script type="application/octet-stream;base64" id="data">${gzipSync(bytes).toString('base64')}</script>`));
  process.exit(0);
}
const page = new Local(data, await Answers.of(gunzipSync(packed), writeData(data)));
const proxy = option('proxy', '');
const files: Record<string, string> = { '': 'text/html; charset=utf-8', 'app.js': 'text/javascript', 'app.css': 'text/css', 'worker.js': 'text/javascript' };

createServer((request, response) => {
  const url = new URL(request.url ?? '/', 'http://localhost');
  const path = url.pathname.replace(/^\/secret\//, '');
  const query = Object.fromEntries(url.searchParams);
  try {
    if (path in files) {
      response.setHeader('Content-Type', files[path]);
      response.setHeader('Content-Security-Policy', "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:");
      response.end(readFileSync(`dist/${path || 'index.html'}`));
    } else if (proxy !== '') {
      get(new URL(`${path}${url.search}`, proxy), (answer) => {
        response.writeHead(answer.statusCode ?? 500, answer.headers);
        answer.pipe(response);
      }).on('error', () => response.destroy());
    } else if (path === 'alive') {
      response.end('{}');
    } else {
      const answer = page.answer(path, query);
      if (path === 'slices') response.end(new Uint8Array(encodeSlices(answer as Slices[], Number((query.depths ?? '0').split('-')[0]))));
      else response.setHeader('Content-Type', 'application/json').end(JSON.stringify(answer));
    }
  } catch (error) {
    response.statusCode = 400;
    response.end(JSON.stringify({ error: error instanceof Error ? error.message : String(error) }));
  }
}).listen(Number(option('port', '8123')), '127.0.0.1', () => console.log(`http://127.0.0.1:${option('port', '8123')}/secret/`));
