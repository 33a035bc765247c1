// A certified authorization server (oidc-provider) whose user agrees to everything at once: ann, or the cookie `account`.
// GET /counts returns how often each account was granted tokens; GET /seconds/5 sets how long access tokens are valid.
import http from 'node:http';
import { Provider } from 'oidc-provider';

const port = Number(process.argv[2]);
const issuer = `http://127.0.0.1:${port}`;
const scope = 'notes.read notes.write';
const counts = {};
let seconds = 3600;
const provider = new Provider(issuer, {
  clients: [
    {
      client_id: 'machine',
      client_secret: 'machine-secret',
      grant_types: ['client_credentials'],
      redirect_uris: [],
      response_types: [],
      scope,
    },
    { client_id: 'gateway', client_secret: 's3cret', grant_types: [], redirect_uris: [], response_types: [] },
  ],
  scopes: ['openid', 'offline_access', 'notes.read', 'notes.write'],
  claims: { openid: ['sub'] },
  // A refresh token works once; using it again revokes the whole grant.
  rotateRefreshToken: true,
  cookies: { keys: ['only-a-test'] },
  findAccount: (ctx, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
  interactions: { url: (ctx, interaction) => `/interaction/${interaction.uid}` },
  // A client registers with the scopes of its first login; it may still step up to others.
  extraClientMetadata: {
    properties: ['note'],
    validator: (ctx, key, value, metadata) => {
      delete metadata.scope;
    },
  },
  features: {
    devInteractions: { enabled: false },
    registration: { enabled: true },
    clientCredentials: { enabled: true },
    introspection: { enabled: true, allowedPolicy: () => true },
    revocation: { enabled: true },
    resourceIndicators: {
      enabled: true,
      useGrantedResource: () => true,
      getResourceServerInfo: (ctx, resource) => ({
        scope,
        audience: resource,
        accessTokenTTL: seconds,
        accessTokenFormat: 'jwt',
        jwt: { sign: { alg: 'RS256' } },
      }),
    },
  },
});
provider.proxy = true;
function count(name) {
  counts[name] = (counts[name] ?? 0) + 1;
}
provider.on('grant.success', (ctx) => count(`${ctx.oidc.params.grant_type} ${ctx.oidc.account?.accountId}`));
provider.on('grant.error', (ctx) => count(`failed ${ctx.oidc?.params?.grant_type}`));

async function interact(req, res) {
  const { prompt, params, session, grantId } = await provider.interactionDetails(req, res);
  if (prompt.name === 'login') {
    const account = /(?:^|; )account=([\w-]+)/.exec(req.headers.cookie ?? '');
    await provider.interactionFinished(req, res, { login: { accountId: account?.[1] ?? 'ann' } });
    return;
  }
  const grant =
    (grantId && (await provider.Grant.find(grantId))) ||
    new provider.Grant({ accountId: session.accountId, clientId: params.client_id });
  const { missingOIDCScope, missingOIDCClaims, missingResourceScopes } = prompt.details;
  if (missingOIDCScope) grant.addOIDCScope(missingOIDCScope.join(' '));
  if (missingOIDCClaims) grant.addOIDCClaims(missingOIDCClaims);
  for (const [indicator, scopes] of Object.entries(missingResourceScopes ?? {})) {
    grant.addResourceScope(indicator, scopes.join(' '));
  }
  const consent = grantId ? {} : { grantId: await grant.save() };
  if (grantId) await grant.save();
  await provider.interactionFinished(req, res, { consent }, { mergeWithLastSubmission: true });
}

const callback = provider.callback();
http
  .createServer((req, res) => {
    if (req.url === '/counts') res.end(JSON.stringify(counts));
    else if (req.url.startsWith('/seconds/')) {
      seconds = Number(req.url.slice(9));
      res.end();
    } else if (!req.url.startsWith('/interaction/')) callback(req, res);
    else
      interact(req, res).catch((error) => {
        res.statusCode = 500;
        res.end(String(error));
      });
  })
  .listen(port, '127.0.0.1', () => console.log('ready'));
