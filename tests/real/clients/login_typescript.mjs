// A person's client on the official TypeScript SDK, 1.x or 2.x, that logs in at a server. See README.md beside this file.
//   login_typescript.mjs URL PAUSE_S NODE_MODULES [MODE] [listen]
// MODE is one of 2.x, "auto" or "legacy", and "" for 1.x. With `listen` it waits until its event stream was ended and is
// open again, and hears the workshop's changes on both.
import { createRequire } from 'node:module';

const [url, pause, modules, mode, what] = process.argv.slice(2);
const require = createRequire(`${modules}/`); // this script does not lie beside the SDK
const REDIRECT = 'http://127.0.0.1:1/callback';
const info = { name: 'a client', version: '1' };
const sdk = mode ? require('@modelcontextprotocol/client') : {
  ...require('@modelcontextprotocol/sdk/client/index.js'),
  ...require('@modelcontextprotocol/sdk/client/streamableHttp.js'),
};
const connect = () => new sdk.Client(info, mode ? { versionNegotiation: { mode } } : {});

/** The person's browser, and the tokens that the client keeps. */
const kept = {};
let answer;
const authProvider = {
  redirectUrl: REDIRECT,
  clientMetadata: { client_name: 'a client', redirect_uris: [REDIRECT], grant_types: ['authorization_code', 'refresh_token'], token_endpoint_auth_method: 'none' },
  clientInformation: () => kept.client,
  saveClientInformation: (client) => void (kept.client = client),
  tokens: () => kept.tokens,
  saveTokens: (tokens) => void (kept.tokens = tokens),
  codeVerifier: () => kept.verifier,
  saveCodeVerifier: (verifier) => void (kept.verifier = verifier),
  discoveryState: () => kept.discovery,
  saveDiscoveryState: (state) => void (kept.discovery = state),
  async redirectToAuthorization(page) {
    const cookies = new Map();
    while (!String(page).startsWith(REDIRECT)) {
      const cookie = [...cookies].map((pair) => pair.join('=')).join('; ');
      const response = await fetch(page, { redirect: 'manual', headers: { cookie } });
      for (const line of response.headers.getSetCookie()) {
        const [, name, value] = /^([^=]+)=([^;]*)/.exec(line);
        cookies.set(name, value);
      }
      page = new URL(response.headers.get('location'), page);
    }
    answer = page.searchParams;
  },
};

/** The event streams that were opened so far. */
let streams = 0;
let tell = () => {};
async function counted(target, init) {
  const response = await fetch(target, init);
  if (init?.method === 'GET' && String(target) === url && response.ok) {
    streams += 1;
    tell();
  }
  return response;
}
const opened = (count) => new Promise((done) => {
  tell = () => streams >= count && done();
  tell();
});

const transport = () => new sdk.StreamableHTTPClientTransport(new URL(url), { authProvider, fetch: counted });
let client = connect();
const first = transport();
try {
  await client.connect(first);
  throw new Error('the server let in a client without a token');
} catch (error) {
  if (!answer) throw error;
}
await first.finishAuth(mode ? answer : answer.get('code'));
client = connect();
await client.connect(transport());

const call = (name, args = {}) => client.callTool({ name, arguments: args });

async function visit() {
  const text = (result) => JSON.parse(result.content[0].text);
  const { tools } = await client.listTools();
  const offer = (await call(tools[0].name)).structuredContent;
  const form = new FormData();
  form.append('file', new Blob(['handed in']), 'one.txt');
  const sent = await fetch(offer.upload_url, { method: 'POST', body: form });
  const [handle] = (await sent.json()).upload_handles;
  const taken = [text(await call('take_one', { file: handle }))];
  const uri = (await call('by_argument', { output: 'made.txt', text: 'made' }))._meta.artifact.artifact_uri;
  const read = [(await client.readResource({ uri })).contents[0].text];
  await new Promise((done) => setTimeout(done, Number(pause) * 1000));
  taken.push(text(await call('take_one', { file: handle })));
  read.push((await client.readResource({ uri })).contents[0].text);
  return { taken, read };
}

async function listen() {
  const hear = async () => {
    const news = new Promise((done) => {
      client.fallbackNotificationHandler = async ({ method }) => void (method === 'notifications/tools/list_changed' && done());
    });
    await call('change');
    await news;
  };
  await opened(1);
  await hear();
  await opened(2);
  await hear();
  return { streams };
}

process.stdout.write(`${JSON.stringify(await (what === 'listen' ? listen : visit)())}\n`);
await client.close();
