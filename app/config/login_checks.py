"""Checks of `upstream.auth`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from ...core.logins.challenges import split_scope
from ...core.logins.metadata import is_issuer, is_requestable, origin_of
from ..base.problem import Problem
from .access_settings import Auth
from .login_settings import ClientCredentials, Enterprise, Exchange, Login, OAuth
from .settings import Server, Upstream
from .value_checks import check_path

ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
_AUTHORIZATION: Final = "authorization"


def http_url(url: str) -> str:
    """Returns the URL of a server as an http or https one, without a fragment: its resource has that form."""
    return re.sub(
        r"(?i)\A(?:sse\+|ws(?=s?:))", lambda found: "http" if found[0].lower() == "ws" else "", url
    ).partition("#")[0]


def check_auth(key: str, upstream: Upstream, *, is_inspected: bool) -> Iterator[Problem]:
    """Checks the login at a server that has one."""
    auth, at = upstream.auth, f"{key}.auth"
    if auth is None:
        return
    urls = upstream.all_urls
    if not urls or urls[0].startswith("unix:"):
        yield Problem(at, "auth beside an http or ws URL only: a command has its credentials in env")
        return
    if not is_inspected:
        yield Problem(at, "auth without inspect: false, which hands requests on as they are")
    for i, url in enumerate(urls):
        if not is_requestable(http_url(url)):
            where = f"{key}.url" if upstream.urls is None else f"{key}.urls[{i}]"
            yield Problem(where, "https:// beside auth, as others on the way would see the tokens")
    is_one = len({origin_of(http_url(url)) for url in urls if is_requestable(http_url(url))}) <= 1
    if not is_one and (auth.issuer is None or auth.resource in ("auto", "none")):
        right = "URLs of one origin beside auth, or auth.issuer and auth.resource, which say what the tokens are for"
        yield Problem(f"{key}.urls", right, "got several origins")
    if any(name.lower() == _AUTHORIZATION for name in upstream.headers):
        yield Problem(f"{key}.headers.Authorization", "no Authorization beside auth, which sets it")
    if any(sent.lower() == _AUTHORIZATION for _, sent in upstream.passes):
        yield Problem(f"{key}.pass_headers", "no Authorization beside auth, which sets it")
    if any(split_scope(scope) != (scope,) for scope in auth.scope):
        yield Problem(f"{at}.scope", "a list of scopes, each without spaces and quotation marks")
    if auth.issuer is not None and not is_issuer(auth.issuer):
        yield Problem(f"{at}.issuer", "the https:// URL of an authorization server, without query")
    if auth.resource not in ("auto", "none") and ":" not in auth.resource:
        yield Problem(f"{at}.resource", "auto, none or a URI")
    yield from _check_kind(at, auth)


def _check_kind(at: str, auth: Login) -> Iterator[Problem]:
    """Checks what only one type of login has."""
    if isinstance(auth, ClientCredentials):
        if (auth.client_secret is None) == (auth.private_key is None):
            yield Problem(at, "one of client_secret and private_key", "neither or both")
        if auth.algorithm not in ALGORITHMS:
            yield Problem(f"{at}.algorithm", f"one of {', '.join(ALGORITHMS)}")
        if auth.private_key is not None:
            yield from check_path(f"{at}.private_key", auth.private_key)
    elif isinstance(auth, Exchange | Enterprise):
        if auth.login_for == "caller":
            if auth.subject_token is not None or auth.subject_token_file is not None:
                yield Problem(at, "no subject_token beside login_for: caller, which exchanges the callers' own tokens")
        elif (auth.subject_token is None) == (auth.subject_token_file is None):
            yield Problem(at, "one of subject_token and subject_token_file", "neither or both")
        elif auth.subject_token is not None and not auth.subject_token.strip():
            yield Problem(f"{at}.subject_token", "a token", "got an empty one")
        if auth.subject_token_file is not None:
            yield from check_path(f"{at}.subject_token_file", auth.subject_token_file)
        if isinstance(auth, Enterprise) and not is_issuer(auth.provider.issuer):
            yield Problem(f"{at}.provider.issuer", "the https:// URL of an identity provider, without query")
    elif auth.client_secret is not None and not auth.client_id:
        yield Problem(f"{at}.client_secret", "client_secret beside client_id only")


def logs_in_callers(upstream: Upstream) -> bool:
    """True if each caller has a login of its own at the server."""
    return isinstance(upstream.auth, OAuth | Exchange | Enterprise) and upstream.auth.login_for == "caller"


def exchanges_tokens(upstream: Upstream) -> bool:
    """True if the tokens that callers show are exchanged for tokens for the server."""
    return isinstance(upstream.auth, Exchange | Enterprise) and upstream.auth.login_for == "caller"


def check_callers(key: str, server: Server, auth: Auth) -> Iterator[Problem]:
    """Checks that a server with a login for each caller has callers that are told apart."""
    if not logs_in_callers(server.upstream):
        return
    at = f"{key}.upstream.auth.login_for"
    if not auth.recognises:
        yield Problem(at, "caller beside auth.tokens, auth.issuers or auth.proxy only: else all callers are the same")
    elif exchanges_tokens(server.upstream) and not auth.issuers:
        yield Problem(at, "caller beside auth.issuers only, whose tokens can be exchanged")
    elif auth.anonymous == "allow":
        yield Problem(at, "caller beside auth.anonymous: deny only, since callers without a name have no login")
    if server.share_with == "everyone":
        yield Problem(f"{key}.share_with", "caller beside auth.login_for: caller, as one connection has one login")
