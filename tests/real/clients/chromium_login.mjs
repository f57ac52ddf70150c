// A person at Chromium who logs in as carol and consents, by the forms of oidc-provider.
//   chromium_login.mjs NODE_MODULES: reads the pages to open from stdin, one a line. Prints for each what it saw.
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';

const require = createRequire(`${process.argv[2]}/`);
const { chromium } = require('playwright-core');
const args = process.getuid() === 0 ? ['--no-sandbox'] : [];
const browser = await chromium.launch({ executablePath: '/usr/bin/chromium', args });
const context = await browser.newContext();
const page = await context.newPage();

for await (const url of createInterface({ input: process.stdin })) {
  const forms = [];
  await page.goto(url);
  while (!new URL(page.url()).pathname.endsWith('/callback')) {
    const prompt = await page.locator('input[name=prompt]').getAttribute('value');
    forms.push(prompt);
    if (prompt === 'login') {
      await page.locator('input[name=login]').fill('carol');
      await page.locator('input[name=password]').fill('anything');
    }
    await Promise.all([page.waitForNavigation(), page.locator('button[type=submit]').click()]);
  }
  const cookies = (await context.cookies()).map(({ name }) => name);
  console.log(JSON.stringify({ forms, cookies, text: await page.locator('body').innerText() }));
}
await browser.close();
