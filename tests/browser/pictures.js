// Takes the pictures of `everycall view` that the documents show.
//
//   node pictures.js LIST.json
//
// LIST.json: {"chromium": the browser, "pictures": [
//     {"address": of a page of `everycall view`, "file": the PNG, "theme": dark or light,
//      "panel": the tab, "function": one of whose calls is selected, the longest one}]}
'use strict';
const fs = require('fs');
const os = require('os');
const path = require('path');
const { chromium } = require('playwright-core');

const WAIT_MS = 180000;
const list = JSON.parse(fs.readFileSync(process.argv[2], 'utf8'));

async function take(context, wish) {
  const page = await context.newPage();
  await page.setViewportSize({ width: 1280, height: 720 });
  await page.goto(wish.address, { waitUntil: 'load', timeout: WAIT_MS });
  const until = (expression) => page.waitForFunction(expression, undefined, { timeout: WAIT_MS, polling: 50 });
  await page.waitForSelector('.stage canvas', { timeout: WAIT_MS });
  await until(() => window.everycall.store.trace.complete);
  await page.evaluate(async ({ theme, panel, name }) => {
    const { store } = window.everycall;
    store.set({ theme, panel, scope: 'trace' });
    if (name === undefined) return;
    const all = { from: -Infinity, to: Infinity, tracks: [] };
    const row = (await store.source.report(all, 'function')).rows.find((one) => one.name.includes(name));
    const { slowest } = await store.source.instances(row.function, all, 1);
    store.select(slowest[0]);
  }, { theme: wish.theme, panel: wish.panel, name: wish.function });
  await until(() => window.everycall.view.isIdle && !document.querySelector('.stale') && !/Computing/.test(document.querySelector('#panel').innerText));
  if (wish.panel === 'call') await page.waitForSelector('.source pre', { timeout: WAIT_MS });
  await page.mouse.move(3, 3);
  await page.waitForTimeout(300);
  await page.screenshot({ path: wish.file });
  await page.close();
}

(async () => {
  const profile = fs.mkdtempSync(path.join(os.tmpdir(), 'everycall-pictures-'));
  const context = await chromium.launchPersistentContext(profile, {
    executablePath: list.chromium,
    headless: true,
    args: ['--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-background-networking', '--disable-dev-shm-usage'],
  });
  try {
    for (const wish of list.pictures) await take(context, wish);
  } finally {
    await context.close();
    fs.rmSync(profile, { recursive: true, force: true });
  }
})();
