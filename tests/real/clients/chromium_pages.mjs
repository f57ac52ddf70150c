// A browser that opens pages, as one that an agent drives does.
//   chromium_pages.mjs NODE_MODULES: reads from stdin one JSON object a line, {"url", "token"}. The token may be missing.
//   Prints for each the status and the text that it got, and the statuses of two requests of a script of that origin.
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';

const require = createRequire(`${process.argv[2]}/`);
const { chromium } = require('playwright-core');
const args = process.getuid() === 0 ? ['--no-sandbox'] : [];
const browser = await chromium.launch({ executablePath: '/usr/bin/chromium', args });

for await (const line of createInterface({ input: process.stdin })) {
  const { url, token } = JSON.parse(line);
  const extraHTTPHeaders = token ? { Authorization: `Bearer ${token}` } : {};
  const context = await browser.newContext({ extraHTTPHeaders });
  const page = await context.newPage();
  const response = await page.goto(url);
  const scripted = await page.evaluate(async ([read, start]) => {
    const headers = { 'X-Requested-With': 'page' };
    return [(await fetch(read)).status, (await fetch(start, { method: 'POST', headers })).status];
  }, [url, new URL('/servers/near/start', url).href]);
  console.log(JSON.stringify({ status: response.status(), text: await response.text(), scripted }));
  await context.close();
}
await browser.close();
