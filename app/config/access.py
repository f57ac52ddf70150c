"""Turns the part of a configuration that says who may call into the gate."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final

from ...core.access.gate import GateSettings
from ...core.access.gate import TrustedProxy as Proxy
from ...core.access.issuer_settings import ALGORITHMS, IntrospectionSettings, IssuerSettings
from ...core.access.networks import Network
from ...core.access.static_tokens import StaticToken
from ...core.base.plan import AccessRule, AccessRules
from ...core.wire.http.admin_routes import ADMIN
from ...core.wire.http.forwarded_for import TrustedProxies
from . import access_settings
from .access_checks import UNIX, day_of, network_of
from .addresses import is_for_this_machine
from .login_checks import exchanges_tokens
from .settings import Core, Settings

MANAGEMENT: Final = "management"
"""The name of the caller that shows `core.management.token`."""


def who_may(settings: Settings) -> str:
    """Returns the problem of a gateway that other machines reach while nothing says who may call, or ""."""
    auth, core = settings.auth, settings.core
    if auth.recognises or auth.anonymous is not None or is_for_this_machine(core):
        return ""
    place = f"core.public_base_url {core.public_base_url}" if core.public_base_url else f"core.host {core.host}"
    return (
        f"{place} is open to other machines, and nothing says who may call: set auth.tokens (isthmus token new NAME "
        "makes one), auth.issuers, auth.proxy, or auth.anonymous: allow (--allow-anonymous)"
    )


def has_local_token(settings: Settings) -> bool:
    """True if the pages of operators want the token that this gateway makes itself: only this machine reaches them, and
    the settings name nobody who may use them."""
    auth, management = settings.auth, settings.core.management
    is_asked = auth.recognises or auth.anonymous == "deny" or management.token is not None
    return management.enabled and not is_asked and is_for_this_machine(settings.core)


def to_gate_settings(settings: Settings) -> GateSettings | None:
    """Returns the settings of the gate; None if nobody is asked."""
    auth = settings.auth
    if not auth.recognises and auth.anonymous != "deny":
        return None
    tokens = list(map(_token, auth.tokens))
    token = settings.core.management.token
    if token is not None and settings.core.management.enabled:
        digest = hashlib.sha256(token.encode()).digest()
        name = MANAGEMENT
        while any(name == each.name for each in auth.tokens):
            name += "-"
        tokens.append(StaticToken(name, digest, groups=frozenset({ADMIN})))
    return GateSettings(
        tokens=tuple(tokens),
        unix_peers=auth.unix_peers,
        certificates=None if auth.client_certificates is None else _groups_by_name(auth.client_certificates),
        proxy=None if auth.proxy is None else _proxy(auth.proxy),
        allows_anonymous=auth.anonymous == "allow",
        lets_links_in=auth.links == "enough",
        keeps_tokens=any(exchanges_tokens(server.upstream) for server in settings.servers),
    )


def to_trusted_proxies(core: Core) -> TrustedProxies:
    """Returns the proxies in front that say which address a request came from."""
    return TrustedProxies(_networks(core.trusted_proxies), has_unix=UNIX in core.trusted_proxies)


def shared_address(settings: Settings) -> str:
    """Returns a warning if all anonymous callers seem to come from one address, that of a proxy in front; else ""."""
    auth, core = settings.auth, settings.core
    is_anonymous = auth.anonymous == "allow" or not auth.recognises
    if not core.public_base_url or core.trusted_proxies or not is_anonymous or is_for_this_machine(core):
        return ""
    return (
        f"with core.public_base_url {core.public_base_url}, a proxy in front seems to pass requests on, and limits of "
        "anonymous clients count its address for all of them: name its address in core.trusted_proxies"
    )


def to_issuer_settings(auth: access_settings.Auth) -> list[IssuerSettings]:
    """Returns the settings of the issuers."""
    return list(map(_issuer, auth.issuers))


def _issuer(issuer: access_settings.Issuer) -> IssuerSettings:
    asked = issuer.introspect
    return IssuerSettings(
        issuer.url,
        audience=issuer.audience,
        algorithms=tuple(ALGORITHMS) if issuer.algorithms is None else issuer.algorithms,
        principal=issuer.principal,
        groups=issuer.groups or "",
        implies=issuer.implies,
        jwks_url=issuer.jwks_url or "",
        introspection=None
        if asked is None
        else IntrospectionSettings(asked.client_id, asked.client_secret, asked.url or ""),
    )


def to_rules(access: access_settings.Access) -> AccessRules | None:
    """Returns the access rules of a server; None if it has none."""
    if access == access_settings.Access():
        return None

    def by_pattern(rules: dict[str, access_settings.Rule]) -> tuple[tuple[str, AccessRule], ...]:
        return tuple((pattern, AccessRule(rule.scope, rule.groups)) for pattern, rule in rules.items())

    return AccessRules(
        AccessRule(access.scope, access.groups),
        tools=by_pattern(access.tools),
        prompts=by_pattern(access.prompts),
        resources=by_pattern(access.resources),
    )


def _token(token: access_settings.Token) -> StaticToken:
    return StaticToken(
        token.name,
        bytes.fromhex(token.sha256),
        scopes=frozenset(token.scopes),
        groups=frozenset(token.groups),
        expires_at=None if token.expires is None else day_of(token.expires),
    )


def _groups_by_name(clients: access_settings.ClientCertificates) -> dict[str, frozenset[str]]:
    names = {name for listed in clients.groups.values() for name in listed}
    return {name: frozenset(group for group, listed in clients.groups.items() if name in listed) for name in names}


def _proxy(proxy: access_settings.TrustedProxy) -> Proxy:
    groups = b"" if proxy.groups is None else proxy.groups.lower().encode()
    networks = _networks(proxy.peers)
    return Proxy(networks, has_unix=UNIX in proxy.peers, user=proxy.user.lower().encode(), groups=groups)


def _networks(peers: Iterable[str]) -> tuple[Network, ...]:
    return tuple(network for peer in peers if (network := network_of(peer)) is not None)
