// node identity_provider.mjs NODE_MODULES: npm oidc-provider on a free port of 127.0.0.1, with a person who always agrees.
//
// AT_TTL is the lifetime of its access tokens in seconds. `POST /counts` tells how often each grant was used, and how
// many people logged in.
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import path from 'node:path';
import { pathToFileURL } from 'node:url';

const require = createRequire(path.join(path.resolve(process.argv[2]), 'index.js'));
const { Provider, errors } = await import(pathToFileURL(require.resolve('oidc-provider')).href);

const server = createServer();
await new Promise((done) => server.listen(0, '127.0.0.1', done));
const issuer = `http://127.0.0.1:${server.address().port}`;
const ttl = Number(process.env.AT_TTL ?? 300);
const EXCHANGE = 'urn:ietf:params:oauth:grant-type:token-exchange';
const SCOPES = 'mcp:read mcp:write';
const counts = { logins: 0, refused: 0 };
const resourceServer = (resource) => ({
  scope: SCOPES,
  audience: resource,
  accessTokenTTL: ttl,
  accessTokenFormat: 'jwt',
  jwt: { sign: { alg: 'RS256' } },
});

const provider = new Provider(issuer, {
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
  ],
  cookies: { keys: ['of a test'] },
  scopes: ['openid', 'offline_access', ...SCOPES.split(' ')],
  pkce: { required: () => true },
  rotateRefreshToken: true,
  issueRefreshToken: async (_, client) => client.grantTypeAllowed('refresh_token'),
  ttl: { AccessToken: ttl, ClientCredentials: ttl, RefreshToken: 3600, Grant: 3600, Session: 3600, Interaction: 600, DeviceCode: 600, IdToken: 600 },
  findAccount: async (_, id) => ({ accountId: id, claims: async () => ({ sub: id }) }),
  interactions: { url: (_, interaction) => `/person/${interaction.uid}` },
  features: {
    devInteractions: { enabled: false },
    registration: { enabled: true },
    clientCredentials: { enabled: true },
    deviceFlow: { enabled: true },
    revocation: { enabled: true },
    resourceIndicators: {
      enabled: true,
      useGrantedResource: () => true,
      getResourceServerInfo: (_, resource) => resourceServer(resource),
    },
  },
});

// RFC 8693, with a token of another client as the one to exchange: the new token is of that client.
provider.registerGrantType(
  EXCHANGE,
  async (context) => {
    const { subject_token: subject, resource, scope } = context.oidc.params;
    const found = await provider.ClientCredentials.find(subject);
    if (!found || found.isExpired) throw new errors.InvalidRequest('the subject_token is not valid');
    const token = new provider.AccessToken({ accountId: found.clientId, client: context.oidc.client, grantId: 'exchanged', gty: EXCHANGE, scope });
    token.resourceServer = new provider.ResourceServer(resource, resourceServer(resource));
    context.body = {
      access_token: await token.save(),
      issued_token_type: 'urn:ietf:params:oauth:token-type:access_token',
      token_type: 'Bearer',
      expires_in: ttl,
      scope,
    };
  },
  ['subject_token', 'subject_token_type', 'requested_token_type', 'resource', 'scope'],
);

provider.use(async (context, next) => {
  if (context.path === '/.well-known/oauth-authorization-server') context.path = '/.well-known/openid-configuration';
  if (context.path === '/counts') {
    context.body = counts;
    return;
  }
  if (!context.path.startsWith('/person/')) return next();
  const { prompt, params, session, grantId } = await provider.interactionDetails(context.req, context.res);
  let result = {};
  if (prompt.name === 'login') {
    counts.logins += 1;
    result = { login: { accountId: 'alice' } };
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
});

provider.on('grant.success', (context) => {
  const grant = context.oidc.params.grant_type;
  counts[grant] = (counts[grant] ?? 0) + 1;
});
provider.on('grant.error', () => (counts.refused += 1));
provider.on('server_error', (_, error) => console.error(error));
server.on('request', provider.callback());
console.log(`listening on ${issuer}`);
