// Opens pages of `everycall view` in headless Chromium, uses them as a person does, and compares what they show with
// what `everycall report` says.
//
//   node viewer.js LIST.json
//
// LIST.json: {"chromium": the browser, "screenshots": a folder,
//             "pages": [{"name": of its screenshots, "address": http: or file:, "report": file with the output of `report -f json`,
//                        "find": part of names of functions, "hostile": [names that must be shown literally],
//                        "files": 2 if two files are compared, "not": [checks to leave out]}]}
//
// Prints one JSON line per page; `problems` is empty where all is well. Ends with 0 if all pages were looked at.
'use strict';
const fs = require('fs');
const os = require('os');
const path = require('path');
const { chromium } = require('playwright-core');

const WAIT_MS = 180000;
const list = JSON.parse(fs.readFileSync(process.argv[2], 'utf8'));

const CANVAS = '.stage canvas';

// What a duration looks like: three digits and a unit, written here once more.
function shown(ns) {
  if (ns === null) return '\u2013';
  if (ns >= 3600e9) return `${(ns / 3600e9).toFixed(2)} h`;
  if (ns >= 120e9) return `${(ns / 60e9).toFixed(1)} min`;
  if (ns < 999.5) return `${Number.isInteger(ns) ? ns : ns.toFixed(1)} ns`;
  for (const [unit, name] of [[1e3, '\u00b5s'], [1e6, 'ms'], [1e9, 's']]) {
    const text = (ns / unit).toPrecision(3);
    if (Number(text) < 1000 || name === 's') return `${Number(text) >= 100 ? Math.round(Number(text)) : text} ${name}`;
  }
  return '';
}

const visible = (text) => text.replace(/[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g, (found) => `<U+${found.codePointAt(0).toString(16).toUpperCase().padStart(4, '0')}>`);

class Visit {
  constructor(page, wish) {
    this.page = page;
    this.wish = wish;
    this.problems = [];
    this.shots = 0;
  }

  check(holds, problem) {
    if (!holds) this.problems.push(typeof problem === 'function' ? problem() : problem);
  }

  equal(found, expected, what) {
    this.check(JSON.stringify(found) === JSON.stringify(expected), `${what} is ${JSON.stringify(found)}, not ${JSON.stringify(expected)}`);
  }

  // The state of the page's view.
  state(key) {
    return this.page.evaluate((name) => JSON.parse(JSON.stringify(window.everycall.store.state[name] ?? null)), key);
  }

  async until(expression, argument) {
    await this.page.waitForFunction(expression, argument, { timeout: WAIT_MS, polling: 50 });
  }

  async isIdle() {
    await this.until(() => window.everycall.view.isIdle && !window.everycall.store.isSearching && !document.querySelector('.stale'));
  }

  async tab(name) {
    await this.page.click(`#tab-${name}`);
    await this.until((id) => document.querySelector(`#tab-${id}`).getAttribute('aria-selected') === 'true' && !/Computing/.test(document.querySelector('#panel').innerText) && !document.querySelector('#panel .stale'), name);
  }

  async shot(what) {
    await this.isIdle();
    await this.page.mouse.move(3, 3);
    const file = path.join(list.screenshots, `${this.wish.name}-${String(++this.shots).padStart(2, '0')}-${what}.png`);
    await this.page.screenshot({ path: file });
  }

  // The place of a call on the canvas, once the view shows it.
  placeOf(call) {
    return this.page.evaluate(({ track, from, to, depth }) => {
      const { view } = window.everycall;
      const lane = view.lay().find((one) => one.track && one.track.id === track);
      const box = document.querySelector('.stage canvas').getBoundingClientRect();
      const [left, right] = [Math.max(0, view.xOf(from)), Math.min(view.width, view.xOf(to))];
      return { x: box.left + (left + right) / 2, y: box.top + lane.y - view.scrollTop + lane.slices + (depth + 0.5) * lane.row, width: right - left };
    }, call);
  }

  async all() {
    const { page, wish } = this;
    const left = new Set(wish.not ?? []);
    await page.goto(wish.address, { waitUntil: 'load', timeout: WAIT_MS });
    await page.waitForSelector(`${CANVAS}, .opening.bad`, { timeout: WAIT_MS });
    if (await page.$('.opening.bad')) throw new Error(await page.innerText('.opening.bad'));
    await this.until(() => window.everycall.store.trace.complete);
    await this.isIdle();
    await this.shot('opened');
    for (const step of ['numbers', 'zoom', 'search', 'select', 'instances', 'flame', 'compare', 'range', 'kept', 'link', 'keyboard', 'hostile', 'looks']) {
      if (left.has(step)) continue;
      try {
        await this[step]();
      } catch (error) {
        this.problems.push(`${step}: ${error.message.split('\n').slice(0, 4).join(' ')}`);
      }
    }
  }

  // All rows of the table are those of `report`, and what is shown of them is what they say.
  async numbers() {
    const { page } = this;
    const report = JSON.parse(fs.readFileSync(this.wish.report, 'utf8'));
    this.report = report;
    const rows = (await page.evaluate(() => window.everycall.store.source.report({ from: -Infinity, to: Infinity, tracks: [] }, 'function'))).rows;
    this.equal(rows.length, report.rows.length, 'the number of functions');
    const numbers = (row) => [row.name, row.module, row.calls, row.all_calls ?? null, row.unwound, row.truncated, row.total_ns, row.own_ns, row.min_ns, row.max_ns].join(' | ');
    const expected = new Set(report.rows.map(numbers));
    for (const row of rows) this.check(expected.has(numbers(row)), () => `report has no row ${numbers(row)}`);
    await this.tab('table');
    await page.waitForSelector('#panel .table .row:not(.head)', { timeout: WAIT_MS });
    const table = await page.evaluate(() => [...document.querySelectorAll('#panel .table .row:not(.head)')].map((row) => [...row.children].map((cell) => cell.innerText.trim())));
    this.check(table.length >= Math.min(report.rows.length, 5), `only ${table.length} rows are shown`);
    const own = [...report.rows].sort((a, b) => b.own_ns - a.own_ns);
    // Where events were overwritten, all calls have a column.
    const hasMore = report.rows.some((row) => (row.all_calls ?? 0) > row.calls);
    for (const [index, cells] of table.entries()) {
      const row = own[index];
      if (hasMore) this.equal(cells.splice(1, 1)[0], row.all_calls === null ? '' : row.all_calls.toLocaleString('en'), `all calls in row ${index + 1}`);
      const [calls, total, time] = cells;
      this.equal([calls, total, time], [row.calls.toLocaleString('en'), shown(row.total_ns), shown(row.own_ns)], `row ${index + 1} of the table`);
    }
    await this.shot('table');
    // Sorted by calls, and filtered.
    await page.click('#panel .head button:has-text("Calls")');
    const most = Math.max(...report.rows.map(({ calls }) => calls));
    await this.until((text) => document.querySelector('#panel .table .row:not(.head)').children[0].innerText.trim() === text, most.toLocaleString('en'));
    await page.fill('#panel [aria-label="Filter rows"]', this.wish.find);
    const named = report.rows.filter((row) => `${row.name} ${row.module} ${row.file ?? ''}`.toLowerCase().includes(this.wish.find.toLowerCase()));
    await this.until((n) => Number(document.querySelector('#panel .table').getAttribute('aria-rowcount')) === n + 1, named.length);
    await page.fill('#panel [aria-label="Filter rows"]', '');
    // Each group has rows, and each row a name.
    for (const by of ['module', 'file', 'thread', 'process', 'path', 'function']) {
      await page.selectOption('#panel .toolbar select', by);
      await page.waitForSelector(`#panel .table[aria-label="Calls by ${by}"] .row:not(.head)`, { timeout: WAIT_MS });
      const names = await page.evaluate(() => [...document.querySelectorAll('#panel .table .row:not(.head) bdi')].map((cell) => cell.innerText));
      this.check(names.length > 0 && names.every((name) => name !== ''), `rows by ${by} are named ${names.slice(0, 5)}`);
    }
  }

  async zoom() {
    const { page } = this;
    const size = async () => {
      const { from, to } = await this.state('view');
      return to - from;
    };
    await page.keyboard.press('Escape');
    await page.keyboard.press('0');
    const whole = await size();
    await page.focus(CANVAS);
    for (let press = 0; press < 4; press++) await page.keyboard.press('w');
    const zoomed = await size();
    this.check(zoomed < whole / 2, `W makes the window ${zoomed} of ${whole} ns`);
    const before = await this.state('view');
    await page.keyboard.press('d');
    this.check((await this.state('view')).from > before.from, "D doesn't move");
    const box = await (await page.$(CANVAS)).boundingBox();
    await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2);
    await page.keyboard.down('Control');
    await page.mouse.wheel(0, -200);
    await page.keyboard.up('Control');
    await this.until((least) => window.everycall.store.state.view.to - window.everycall.store.state.view.from < least, zoomed);
    const at = (await this.state('view')).from;
    await page.mouse.down();
    await page.mouse.move(box.x + box.width / 2 + 90, box.y + box.height / 2, { steps: 4 });
    await page.mouse.up();
    this.check((await this.state('view')).from < at, "dragging doesn't move");
    // While it moves, frames are drawn one after the other.
    await page.evaluate(() => { window.everycall.view.frames.length = 0; });
    for (const key of ['d', 'a', 's', 'w']) {
      await page.keyboard.down(key);
      await page.waitForTimeout(500);
      await page.keyboard.up(key);
    }
    const frames = (await page.evaluate(() => [...window.everycall.view.frames])).sort((a, b) => a - b);
    this.frames = { n: frames.length, p50: Number(frames[Math.floor(frames.length / 2)].toFixed(1)), p95: Number(frames[Math.floor(frames.length * 0.95)].toFixed(1)) };
    this.check(frames.length > 4, `${frames.length} frames while keys are held`);
    await this.shot('zoomed');
    await page.keyboard.press('0');
    this.equal(await size(), whole, 'the whole trace');
  }

  async search() {
    const { page, wish, report } = this;
    const named = report.rows.filter(({ name }) => name.toLowerCase().includes(wish.find.toLowerCase()));
    const called = named.reduce((sum, row) => sum + row.calls, 0);
    this.check(called > 0, `report has no function with ${wish.find}`);
    // Labels, lines and thrown types are hits, too.
    const marks = await page.evaluate(async (q) => (await window.everycall.store.source.search(q, 100000)).hits.filter(({ depth }) => depth === null).length, wish.find);
    const calls = called + marks;
    await page.keyboard.press('Escape');
    await page.keyboard.press('/');
    await page.keyboard.type(wish.find);
    const hits = `${calls.toLocaleString('en')} ${calls === 1 ? 'hit' : 'hits'}`;
    await this.until((text) => document.querySelector('.search output').innerText === text, hits).catch(async () => {
      this.problems.push(`the search says ${await page.innerText('.search output')}, not ${hits}`);
    });
    const marked = await page.evaluate(() => Object.values(window.everycall.store.hits.tracks).flat().reduce((sum, [, , n]) => sum + n, 0));
    this.equal(marked, calls, 'the number of hits in the overview');
    await page.keyboard.press('Enter');
    await this.until(() => / of /.test(document.querySelector('.search output').innerText));
    this.equal(await page.innerText('.search output'), `1 of ${calls.toLocaleString('en')}`, 'the first hit');
    const first = await this.state('selection');
    await page.keyboard.press('Escape');
    await page.focus(CANVAS);
    if (calls > 1) {
      await page.keyboard.press('n');
      await this.until((n) => document.querySelector('.search output').innerText === `2 of ${n}`, calls.toLocaleString('en'));
      await page.keyboard.press('Shift+N');
      await this.until((n) => document.querySelector('.search output').innerText === `1 of ${n}`, calls.toLocaleString('en'));
      this.equal(await this.state('selection'), first, 'the hit after next and previous');
      await page.keyboard.press('Shift+N');
      await this.until((n) => document.querySelector('.search output').innerText === `${n} of ${n}`, calls.toLocaleString('en'));
    }
    await this.tab('search');
    const functions = await page.evaluate(() => Number(document.querySelector('[aria-label="Functions found"]').getAttribute('aria-rowcount')) - 1);
    this.check(functions >= named.length, `${functions} functions are listed, not ${named.length}`);
    await this.shot('search');
    await page.fill('#search', '');
    await this.until(() => window.everycall.store.state.query === '');
  }

  async select() {
    const { page, report } = this;
    // The slowest call of the function with the most own time of those with known durations.
    const timed = report.rows.filter((one) => one.max_ns > 0);
    const row = (timed.some((one) => one.timed_calls > 1) ? timed.filter((one) => one.timed_calls > 1) : timed).sort((a, b) => b.own_ns - a.own_ns)[0];
    const func = await page.evaluate(async ([name, module]) => {
      const { store } = window.everycall;
      const found = (await store.source.report({ from: -Infinity, to: Infinity, tracks: [] }, 'function')).rows.find((one) => one.name === name && one.module === module);
      return found.function;
    }, [row.name, row.module]);
    this.row = row;
    this.func = func;
    const { slowest, count } = await page.evaluate((id) => window.everycall.store.source.instances(id, { from: -Infinity, to: Infinity, tracks: [] }, 10), func);
    this.equal(count, row.timed_calls, `timed calls of ${row.name}`);
    const [call] = slowest;
    this.equal(call.to - call.from, row.max_ns, `the longest call of ${row.name}`);
    await page.evaluate((place) => {
      const { store } = window.everycall;
      store.select(place, 'zoom');
      store.set({ selection: null });
    }, call);
    await this.isIdle();
    // As a person does: by a click where it is.
    const place = await this.placeOf(call);
    await page.mouse.click(place.x, place.y);
    await this.until(() => window.everycall.store.state.selection !== null);
    this.equal(await this.state('selection'), { track: call.track, from: call.from, to: call.to, depth: call.depth }, 'the call that was clicked');
    await this.tab('call');
    await page.waitForSelector('.details dl.facts', { timeout: WAIT_MS });
    const details = await page.innerText('.details');
    this.check(details.includes(visible(row.name)), `details don't name ${row.name}: ${details.slice(0, 200)}`);
    this.check(details.includes(shown(row.max_ns)), `details don't have ${shown(row.max_ns)}: ${details.slice(0, 300)}`);
    if (row.file) {
      await page.waitForSelector('.source pre, .source .empty', { timeout: WAIT_MS });
      const source = await page.evaluate(() => ({ number: document.querySelector('.source .here .number')?.innerText, text: document.querySelector('.source .here .code')?.innerText }));
      if (source.number !== undefined) {
        this.equal(Number(source.number), row.line, 'the highlighted line');
        if (fs.existsSync(row.file)) this.equal(source.text.trimEnd(), fs.readFileSync(row.file, 'utf8').split('\n')[row.line - 1].replace(/\t/g, '    ').trimEnd(), 'the text of the line');
      }
    }
    await page.waitForFunction((text) => document.querySelector('[aria-live]').innerText.includes(text), shown(row.max_ns), { timeout: WAIT_MS });
    await this.shot('call');
  }

  async instances() {
    const { page, row } = this;
    await this.tab('call');
    await page.click('text="All its calls"');
    await page.waitForSelector('[aria-label="Slowest calls"] .row:not(.head)', { timeout: WAIT_MS });
    const first = await page.innerText('[aria-label="Slowest calls"] .row:not(.head) [role=cell]');
    this.equal(first.trim(), shown(row.max_ns), 'the slowest call');
    const bars = await page.$$('.plot button');
    this.check(bars.length > 0, 'there is no histogram');
    await this.shot('instances');
    await bars[bars.length - 1].click();
    const { from, to } = await this.state('selection');
    this.equal(to - from, row.max_ns, 'the call of the last bar');
    await this.tab('explain');
    await this.shot('explain');
  }

  async flame() {
    const { page } = this;
    await page.evaluate(() => window.everycall.store.set({ scope: 'trace' }));
    await this.tab('flame');
    await page.waitForSelector('.flame [role=treeitem]', { timeout: WAIT_MS });
    const { root } = await page.evaluate(() => window.everycall.store.source.flame({ from: -Infinity, to: Infinity, tracks: [] }));
    const own = (node) => node.own_ns + node.children.reduce((sum, child) => sum + own(child), 0);
    this.check(own(root) <= root.total_ns, 'own times add up to more than the whole');
    const inReport = this.report.rows.reduce((sum, row) => sum + row.own_ns, 0);
    this.check(Math.abs(root.total_ns - inReport) <= inReport * 0.02 + 1000, `the flame graph has ${root.total_ns} ns, report ${inReport}`);
    const boxes = await page.$$('.flame [role=treeitem]');
    this.check(boxes.length > 1, 'the flame graph is empty');
    await this.shot('flame');
    await boxes[1].click();
    await page.waitForSelector('.flame .zoomed', { timeout: WAIT_MS });
    await page.click('text="Zoom out"');
  }

  async compare() {
    const { page, func } = this;
    if (this.wish.files === 2) {
      await page.evaluate(() => window.everycall.store.set({ a: '', b: '' }));
      await this.tab('compare');
      await page.waitForSelector('[aria-label="Aligned call trees"] .row:not(.head)', { timeout: WAIT_MS });
      await this.shot('compare-files');
    }
    const { slowest, median } = await page.evaluate((id) => window.everycall.store.source.instances(id, { from: -Infinity, to: Infinity, tracks: [] }, 2), func);
    const [call] = slowest;
    const other = median ?? call;
    const side = (place) => `call:${place.track}:${place.from}:${place.depth}`;
    await this.tab('compare');
    await page.evaluate(([a, b]) => window.everycall.store.set({ a, b }), [side(other), side(call)]);
    await this.tab('compare');
    await this.until((text) => document.querySelector('#panel .toolbar').innerText.includes(text), `B ${shown(call.to - call.from)}`);
    const row = '[aria-label="Aligned call trees"] .row:not(.head)';
    await page.waitForSelector(row, { timeout: WAIT_MS });
    const cells = await page.$$eval(`${row} [role=cell]`, (all) => all.slice(0, 4).map((cell) => cell.innerText.trim()));
    this.equal(cells.slice(2), [shown(other.to - other.from), shown(call.to - call.from)], 'the two calls compared');
    await page.click('text="Functions" >> nth=-1');
    await page.waitForSelector('[aria-label="Functions by difference"] .row:not(.head)', { timeout: WAIT_MS });
    await page.click('text="Call trees"');
    await this.shot('compare');
  }

  async range() {
    const { page } = this;
    await page.keyboard.press('Escape');
    await page.keyboard.press('0');
    await this.isIdle();
    const box = await (await page.$(CANVAS)).boundingBox();
    await page.keyboard.down('Shift');
    await page.mouse.move(box.x + box.width * 0.3, box.y + 30);
    await page.mouse.down();
    await page.mouse.move(box.x + box.width * 0.6, box.y + 40, { steps: 5 });
    await page.mouse.up();
    await page.keyboard.up('Shift');
    const [range, view] = [await this.state('range'), await this.state('view')];
    const share = (range.to - range.from) / (view.to - view.from);
    this.check(Math.abs(share - 0.3) < 0.01, `the range is ${share} of the window, not 0.3`);
    this.equal(await this.state('scope'), 'range', 'what tables are of');
    await this.tab('text');
    const total = await page.evaluate((of) => window.everycall.store.source.text(of, 5), range);
    const head = await page.innerText('#panel h3');
    this.check(head.includes(total.total.toLocaleString('en')), `the table as text says ${head}, not ${total.total} calls`);
    await this.tab('table');
    await this.shot('range');
  }

  // A click on a kept call selects it on the timeline, with its track in view.
  async kept() {
    const { page } = this;
    const all = await page.evaluate(() => window.everycall.store.trace.kept.map(({ number, track, depth, from }) => ({ number, track, depth, from })));
    if (all.length === 0) return;
    await this.tab('kept');
    const rows = '#panel .table[aria-label="Kept calls and snapshots"] .row:not(.head)';
    const last = all.filter(({ depth }) => depth !== null).pop();
    this.check(last, 'no kept call is on the timeline');
    if (!last) return;
    await page.click(`${rows}:has(> :first-child:text-is("${last.number}"))`);
    await this.isIdle();
    const [selection, view] = [await this.state('selection'), await this.state('view')];
    this.equal([selection?.track, selection?.depth, selection?.from], [last.track, last.depth, last.from], 'the selection behind a click on a kept call');
    this.check(view.from <= last.from && last.from < view.to, 'the kept call is not in view');
    await this.shot('kept');
    // Its panel has its labels, of which some are numbers.
    await this.tab('call');
    await this.until((text) => document.querySelector('#panel').innerText.includes(text), 'kept call')
      .catch(() => this.problems.push("the panel of a kept call doesn't show its label"));
    // Escape would take the range away, too, which other steps need.
    await page.evaluate(() => window.everycall.store.set({ selection: null }));
  }

  // The address keeps what one sees, and the back button goes back to it.
  async link() {
    const { page } = this;
    const keys = ['view', 'range', 'selection', 'panel', 'query', 'scope', 'collapsed', 'theme', 'a', 'b'];
    const state = async () => Object.fromEntries(await Promise.all(keys.map(async (key) => [key, await this.state(key)])));
    await page.evaluate(() => { document.querySelector('.scroll').scrollTop = 0; });
    await page.click('.lane.process button');
    await page.waitForTimeout(400);
    const before = await state();
    const address = page.url();
    this.check(address.includes('range='), `the address has no range: ${address}`);
    await page.reload({ waitUntil: 'load', timeout: WAIT_MS });
    await page.waitForSelector(CANVAS, { timeout: WAIT_MS });
    await this.isIdle();
    this.equal(await state(), before, 'the view after reloading');
    await this.tab('about');
    this.equal(await this.state('panel'), 'about', 'the panel');
    await page.goBack();
    await this.until((panel) => window.everycall.store.state.panel === panel, before.panel);
    await page.click('.lane.process button');
  }

  async keyboard() {
    const { page } = this;
    await page.keyboard.press('Escape');
    await page.evaluate(() => { document.querySelector('.scroll').scrollTop = 0; });
    await page.focus('#search');
    const names = [];
    for (let press = 0; press < 40; press++) {
      await page.keyboard.press('Tab');
      names.push(await page.evaluate(() => (document.activeElement.getAttribute('aria-label') || document.activeElement.innerText || document.activeElement.tagName).slice(0, 60)));
      if (await page.evaluate(() => document.activeElement.matches('.stage canvas'))) break;
    }
    this.check(await page.evaluate(() => document.activeElement.matches('.stage canvas')), `the timeline isn't reached by Tab: ${names.join(', ')}`);
    this.check(names.every((name) => name.trim() !== ''), 'something that has the focus has no name');
    await page.keyboard.press('0');
    await this.isIdle();
    await page.keyboard.press('Enter');
    await this.until(() => window.everycall.store.state.selection !== null);
    const root = await this.state('selection');
    await this.isIdle();
    await page.keyboard.press('Shift+ArrowDown');
    const hasMoved = await this.until((depth) => window.everycall.store.state.selection?.depth === depth, root.depth + 1).then(() => true, () => false);
    if (hasMoved) {
      await page.keyboard.press('Shift+ArrowUp');
      await this.until((depth) => window.everycall.store.state.selection?.depth === depth, root.depth);
      this.equal(await this.state('selection'), root, 'the caller');
    } else {
      this.problems.push('Shift and arrow down select nothing');
    }
    await page.keyboard.press('?');
    await page.waitForSelector('dialog[open]', { timeout: WAIT_MS });
    await this.shot('help');
    await page.keyboard.press('Escape');
    await page.waitForSelector('dialog[open]', { state: 'detached', timeout: 5000 }).catch(() => this.problems.push("Escape doesn't close the help"));
    await page.focus('[role=tab][aria-selected=true]');
    const panel = await this.state('panel');
    await page.keyboard.press('ArrowRight');
    this.check((await this.state('panel')) !== panel, "arrow keys don't change tabs");
    for (const role of ['main', 'header', 'nav', 'section[aria-label]', '[role=tablist]', '[role=status][aria-live]']) this.check(await page.$(role), `there is no ${role}`);
  }

  // Names are text, whatever they contain.
  async hostile() {
    const { page } = this;
    const title = await page.title();
    for (const name of this.wish.hostile ?? []) {
      await page.fill('#search', name.slice(0, 40));
      await this.until(() => window.everycall.store.found !== null && !window.everycall.store.isSearching);
      await this.tab('search');
      await this.until((text) => document.querySelector('#panel').innerText.includes(text), visible(name).slice(0, 60)).catch(() => this.problems.push(`${JSON.stringify(name.slice(0, 60))} isn't shown literally`));
      await page.focus('#search');
      await page.keyboard.press('Enter');
      await this.until(() => window.everycall.store.next !== null);
      await this.tab('call');
      await this.shot('hostile');
    }
    this.equal(await page.title(), title, 'the title after hostile names');
    this.equal(await page.evaluate(() => document.querySelectorAll('#app script, #app img, #app iframe, #app b[onclick]').length), 0, 'elements made of names');
    await page.fill('#search', '');
  }

  async looks() {
    const { page } = this;
    await page.keyboard.press('Escape');
    await page.evaluate(() => window.everycall.store.set({ query: '', selection: null, range: null, panel: 'table', scope: 'trace', theme: 'light' }));
    await page.focus(CANVAS);
    await page.keyboard.press('0');
    for (const [width, height] of [[1280, 720], [1920, 1080]]) {
      await page.setViewportSize({ width, height });
      for (const theme of ['light', 'dark']) {
        if ((await page.evaluate(() => document.documentElement.dataset.theme)) !== theme) await page.keyboard.press('t');
        await this.until((name) => document.documentElement.dataset.theme === name, theme);
        const wide = await page.evaluate(() => document.documentElement.scrollWidth > innerWidth || document.documentElement.scrollHeight > innerHeight);
        this.check(!wide, `at ${width}x${height} the page has to be scrolled`);
        await this.shot(`${theme}-${width}`);
      }
    }
  }
}

async function look(context, wish) {
  const page = await context.newPage();
  await page.setViewportSize({ width: 1280, height: 720 });
  const visit = new Visit(page, wish);
  page.on('pageerror', (error) => visit.problems.push(`the page throws: ${error.message.split('\n')[0]}`));
  page.on('console', (message) => { if (message.type() === 'error') visit.problems.push(`the console says: ${message.text()}`); });
  page.on('dialog', (dialog) => {
    visit.problems.push(`the page opens a dialog: ${dialog.message()}`);
    void dialog.dismiss();
  });
  const seen = { page: wish.name, problems: visit.problems };
  const start = Date.now();
  try {
    await visit.all();
    seen.frames = visit.frames;
    seen.took_ms = Date.now() - start;
  } catch (error) {
    visit.problems.push(error.message);
  } finally {
    await page.close();
  }
  console.log(JSON.stringify(seen));
}

(async () => {
  fs.mkdirSync(list.screenshots, { recursive: true });
  const profile = fs.mkdtempSync(path.join(os.tmpdir(), 'everycall-page-'));
  const context = await chromium.launchPersistentContext(profile, {
    executablePath: list.chromium,
    headless: true,
    args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync', '--disable-dev-shm-usage'],
  });
  // The page must do with this machine alone.
  await context.route('**/*', (route) => {
    const url = new URL(route.request().url());
    return url.hostname === '127.0.0.1' || ['blob:', 'data:', 'file:'].includes(url.protocol) ? route.continue() : route.abort();
  });
  try {
    for (const wish of list.pages) await look(context, wish);
  } finally {
    await context.close();
    fs.rmSync(profile, { recursive: true, force: true });
  }
})();
