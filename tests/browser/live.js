// Opens the page of `everycall view PID` in headless Chromium while the program runs: it goes on,
// is frozen by a key, and goes on again.
//
//   node live.js LIST.json
//
// LIST.json: {"chromium": the browser, "screenshots": a folder, "address": of the page, "find": a
// function of the program}
//
// Prints one JSON line; `problems` is empty where all is well. Nothing here depends on how fast
// anything is.
'use strict';
const fs = require('fs');
const os = require('os');
const path = require('path');
const { chromium } = require('playwright-core');

const WAIT_MS = 180000;
const list = JSON.parse(fs.readFileSync(process.argv[2], 'utf8'));

async function visit(page) {
  const problems = [];
  const check = (holds, problem) => { if (!holds) problems.push(problem); };
  page.on('pageerror', (error) => problems.push(`the page fails: ${error.message}`));
  const until = (expression, argument) => page.waitForFunction(expression, argument, { timeout: WAIT_MS, polling: 50 });
  const shot = (name) => page.screenshot({ path: path.join(list.screenshots, `live-${name}.png`) });
  const state = () => page.evaluate(() => {
    const { trace, state: { view } } = window.everycall.store;
    return { generation: trace.generation, to: view.to };
  });
  await page.setViewportSize({ width: 1280, height: 720 });
  await page.goto(list.address, { waitUntil: 'load', timeout: WAIT_MS });
  await page.waitForSelector('.pace .live', { timeout: WAIT_MS });

  // The view follows the newest state.
  const begin = await state();
  await until(({ generation, to }) => {
    const { trace, state: { view } } = window.everycall.store;
    return trace.generation > generation && view.to > to;
  }, begin);
  await shot('running');

  await page.keyboard.press(' ');
  await page.waitForSelector('.pace .frozen', { timeout: WAIT_MS });
  const frozen = await state();
  // Others ask for newer states meanwhile; as many as are kept at once.
  const newest = await page.evaluate(async (generation) => {
    for (;;) {
      const { generation: now } = await (await fetch('./running')).json();
      if (now > generation + 4) return now;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }, frozen.generation);
  const still = await state();
  check(JSON.stringify(still) === JSON.stringify(frozen), `frozen at ${JSON.stringify(frozen)}, the page is at ${JSON.stringify(still)}`);
  await page.click('#tab-table');
  await until((name) => document.querySelector('#panel').innerText.includes(name), list.find);
  check(await page.evaluate(() => document.querySelector('.trouble') === null), 'what is frozen is gone');
  await shot('frozen');

  await page.click('.pace button');
  await page.waitForSelector('.pace .live', { timeout: WAIT_MS });
  await until((generation) => window.everycall.store.trace.generation >= generation, newest);
  return problems;
}

(async () => {
  const profile = fs.mkdtempSync(path.join(os.tmpdir(), 'everycall-live-'));
  const context = await chromium.launchPersistentContext(profile, {
    executablePath: list.chromium,
    headless: true,
    args: ['--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-background-networking', '--disable-dev-shm-usage'],
  });
  try {
    const problems = await visit(await context.newPage());
    console.log(JSON.stringify({ problems }));
  } finally {
    await context.close();
    fs.rmSync(profile, { recursive: true, force: true });
  }
})();
