// node identity_provider.mjs NODE_MODULES: npm oidc-provider on a free port of 127.0.0.1, with a person who always agrees.
//
// AT_TTL is the lifetime of its access tokens in seconds, and LATE_S how many seconds its clock is late. OPAQUE=1: its
// access tokens are no JWTs. FORMS=1: people log in and consent by its own forms. GATEWAY is the URL of a gateway that
// logs browsers in here. A request with the header X-Person is of that person, others are of alice. `GET /counts` tells
// how often each grant was used, and how many people logged in. `POST /rotate` makes a new key: it signs from then on,
// and the one before stays published. The provider has no such function, so another one with other keys takes its place,
// with all it has stored.
import { generateKeyPairSync } from 'node:crypto';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import path from 'node:path';
import { pathToFileURL } from 'node:url';

const require = createRequire(path.join(path.resolve(process.argv[2]), 'index.js'));
const main = require.resolve('oidc-provider');
const { Provider, errors } = await import(pathToFileURL(main).href);
const { default: MemoryAdapter } = await import(pathToFileURL(path.join(path.dirname(main), 'adapters/memory_adapter.js')).href);

const clock = Date.now;
const lateMs = Number(process.env.LATE_S ?? 0) * 1000;
Date.now = () => clock() - lateMs;

const server = createServer();
await new Promise((done) => server.listen(0, '127.0.0.1', done));
const issuer = `http://127.0.0.1:${server.address().port}`;
const ttl = Number(process.env.AT_TTL ?? 300);
const EXCHANGE = 'urn:ietf:params:oauth:grant-type:token-exchange';
const SCOPES = 'mcp:read mcp:write';
const counts = { logins: 0, refused: 0 };
const hasForms = Boolean(process.env.FORMS);
const resourceServer = (resource) => ({
  scope: SCOPES,
  audience: resource,
  accessTokenTTL: ttl,
  accessTokenFormat: process.env.OPAQUE ? 'opaque' : 'jwt',
  jwt: { sign: { alg: 'RS256' } },
});

const settings = {
  adapter: class extends MemoryAdapter {}, // MemoryAdapter itself: storage of its own for each provider
  clients: [
    {
      client_id: 'service',
      client_secret: 'secret-of-the-service-secret-of-the-service',
      grant_types: ['client_credentials'],
      redirect_uris: [],
      response_types: [],
      scope: SCOPES,
    },
    {
      client_id: 'gateway',
      client_secret: 'secret-of-the-gateway-secret-of-the-gateway',
      grant_types: [],
      redirect_uris: [],
      response_types: [],
    },
    {
      client_id: 'exchanging',
      client_secret: 'secret-of-exchanging-secret-of-exchanging',
      grant_types: [EXCHANGE],
      redirect_uris: [],
      response_types: [],
      scope: SCOPES,
    },
    {
      client_id: 'by-hand',
      client_secret: 'secret-by-hand-secret-by-hand-secret',
      application_type: 'native',
      grant_types: ['authorization_code', 'refresh_token'],
      redirect_uris: ['http://localhost/callback'],
      response_types: ['code'],
    },
    ...(process.env.GATEWAY
      ? [{
          client_id: 'pages',
          client_secret: 'secret-of-the-pages-secret-of-the-pages',
          application_type: 'native',
          grant_types: ['authorization_code'],
          redirect_uris: [`${process.env.GATEWAY}/connect`],
          response_types: ['code'],
        }]
      : []),
  ],
  cookies: { keys: ['of a test'] },
  scopes: ['openid', 'offline_access', ...SCOPES.split(' ')],
  pkce: { required: () => true },
  rotateRefreshToken: true,
  issueRefreshToken: async (_, client) => client.grantTypeAllowed('refresh_token'),
  ttl: { AccessToken: ttl, ClientCredentials: ttl, RefreshToken: 3600, Grant: 3600, Session: 3600, Interaction: 600, DeviceCode: 600, IdToken: 600 },
  findAccount: async (_, id) => ({ accountId: id, claims: async () => ({ sub: id }) }),
  ...(hasForms ? {} : { interactions: { url: (_, interaction) => `/person/${interaction.uid}` } }),
  features: {
    devInteractions: { enabled: hasForms },
    registration: { enabled: true },
    clientCredentials: { enabled: true },
    deviceFlow: { enabled: true },
    revocation: { enabled: true },
    introspection: { enabled: true },
    resourceIndicators: {
      enabled: true,
      useGrantedResource: () => true,
      getResourceServerInfo: (_, resource) => resourceServer(resource),
    },
  },
};

let keys = [];
let provider;

function rotate() {
  const key = generateKeyPairSync('rsa', { modulusLength: 2048 }).privateKey.export({ format: 'jwk' });
  keys = [{ ...key, kid: crypto.randomUUID(), use: 'sig', alg: 'RS256' }, ...keys].slice(0, 2);
  provider = new Provider(issuer, { ...settings, jwks: { keys } });
  provider.use(serve);
  provider.registerGrantType(EXCHANGE, exchange, [
    'subject_token',
    'subject_token_type',
    'requested_token_type',
    'resource',
    'scope',
  ]);
  provider.on('interaction.ended', (context) => {
    if (context.oidc.entities.Interaction.prompt.name === 'login') counts.logins += 1;
  });
  provider.on('grant.success', (context) => {
    const grant = context.oidc.params.grant_type;
    counts[grant] = (counts[grant] ?? 0) + 1;
  });
  provider.on('grant.error', () => (counts.refused += 1));
  provider.on('server_error', (_, error) => console.error(error));
  const handle = provider.callback();
  server.removeAllListeners('request').on('request', handle);
}

// RFC 8693, with a token of another client, or of a person, as the one to exchange: the new token is of that one.
async function exchange(context) {
  const { subject_token: subject, resource, scope } = context.oidc.params;
  const accountId = await subjectOf(subject);
  if (!accountId) throw new errors.InvalidRequest('the subject_token is not valid');
  const token = new provider.AccessToken({ accountId, client: context.oidc.client, grantId: 'exchanged', gty: EXCHANGE, scope });
  token.resourceServer = new provider.ResourceServer(resource, resourceServer(resource));
  context.body = {
    access_token: await token.save(),
    issued_token_type: 'urn:ietf:params:oauth:token-type:access_token',
    token_type: 'Bearer',
    expires_in: ttl,
    scope,
  };
}

async function subjectOf(token) {
  const found = await provider.ClientCredentials.find(token);
  if (found && !found.isExpired) return found.clientId;
  if (token.split('.').length !== 3) return undefined;
  const claims = JSON.parse(Buffer.from(token.split('.')[1], 'base64url').toString());
  return claims.iss === issuer && claims.exp * 1000 > Date.now() ? claims.sub : undefined;
}

async function serve(context, next) {
  if (context.path === '/.well-known/oauth-authorization-server') context.path = '/.well-known/openid-configuration';
  if (context.path === '/counts') {
    context.body = counts;
    return;
  }
  if (context.path === '/rotate') {
    rotate();
    context.body = {};
    return;
  }
  if (!context.path.startsWith('/person/')) return next();
  const { prompt, params, session, grantId } = await provider.interactionDetails(context.req, context.res);
  let result = {};
  if (prompt.name === 'login') {
    result = { login: { accountId: context.get('x-person') || 'alice' } };
  } else {
    const grant = grantId ? await provider.Grant.find(grantId) : new provider.Grant({ accountId: session.accountId, clientId: params.client_id });
    const { missingOIDCScope, missingOIDCClaims, missingResourceScopes } = prompt.details;
    if (missingOIDCScope) grant.addOIDCScope(missingOIDCScope.join(' '));
    if (missingOIDCClaims) grant.addOIDCClaims(missingOIDCClaims);
    for (const [resource, scopes] of Object.entries(missingResourceScopes ?? {})) grant.addResourceScope(resource, scopes.join(' '));
    result = { consent: { grantId: await grant.save() } };
  }
  await provider.interactionFinished(context.req, context.res, result, { mergeWithLastSubmission: true });
  context.respond = false;
}

rotate();
console.log(`listening on ${issuer}`);
