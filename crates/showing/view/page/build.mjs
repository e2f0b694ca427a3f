// Builds the page into dist, or the folder behind --into: app.js, app.css, worker.js, index.html,
// and alone.html, the page that has all of these in itself and gets its data in place of one line.
// The same sources give the same bytes.

import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { build } from 'esbuild';

const shared = {
  bundle: true,
  target: 'es2022',
  legalComments: 'none',
  charset: 'ascii',
  jsx: 'automatic',
  jsxImportSource: 'preact',
  logLevel: 'warning',
};

const into = process.argv.indexOf('--into');
const dist = into < 0 ? 'dist' : process.argv[into + 1];

if (process.argv.includes('--tests')) {
  const entryPoints = readdirSync('test').filter((name) => name.endsWith('.test.ts')).map((name) => `test/${name}`);
  await build({ ...shared, entryPoints, outdir: 'build/test', platform: 'node', format: 'esm', outExtension: { '.js': '.mjs' } });
} else {
  await page();
  if (process.argv.includes('--dev')) {
    await build({ ...shared, entryPoints: ['dev/server.ts'], outfile: 'build/dev/server.mjs', platform: 'node', format: 'esm' });
  }
}

async function page() {
  mkdirSync(dist, { recursive: true });
  const made = { ...shared, minify: true, format: 'iife', platform: 'browser' };
  await build({ ...made, entryPoints: ['src/app.tsx'], outfile: `${dist}/app.js` });
  await build({ ...made, entryPoints: ['src/worker.ts'], outfile: `${dist}/worker.js` });
  await build({ ...made, entryPoints: ['src/app.css'], outfile: `${dist}/app.css` });
  const text = (name) => readFileSync(name, 'utf8').trim();
  const [app, worker, css] = [`${dist}/app.js`, `${dist}/worker.js`, `${dist}/app.css`].map(text);
  const html = text('src/index.html');
  writeFileSync(`${dist}/index.html`, `${html
    .replace('<!--style-->', '<link rel="stylesheet" href="app.css">')
    .replace('<!--script-->', '<script src="app.js" defer></script>')}\n`);

  for (const part of [app, worker]) if (/<\/script|<!--/i.test(part)) throw new Error('a script would end the element that it is in');
  const hash = (part) => `'sha256-${createHash('sha256').update(part).digest('base64')}'`;
  const policy = `default-src 'none'; script-src ${hash(app)} blob: 'wasm-unsafe-eval'; style-src ${hash(css)}; worker-src blob:; img-src data:; base-uri 'none'; form-action 'none'`;
  // The page's data must come before the script that reads it.
  writeFileSync(`${dist}/alone.html`, `${html
    .replace('<meta charset="utf-8">', () => `<meta charset="utf-8">\n<meta http-equiv="Content-Security-Policy" content="${policy}">`)
    .replace('<!--style-->', () => `<style>${css}</style>`)
    .replace('<!--script-->', () => `<script type="text/plain" id="worker">${worker}</script>\n<!--data-->\n<script>${app}</script>`)}\n`);
}
