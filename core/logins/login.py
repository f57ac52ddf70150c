"""A login of a person with a browser: discovery, registration, authorization, token.

One flow has one `state` and one verifier, and both are forgotten with it. What comes to the redirect URI is judged in
this order: its state, its issuer, its error, its code. Whatever fails the first two is not acted on, and nothing of it
is shown.

Source: 2026-07-28 basic/authorization; RFC 6749, 4.1; RFC 7636; RFC 9207, 2.4; RFC 8252, 7.3.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Final
from urllib.parse import parse_qsl, urlencode

import msgspec

from .challenges import BearerChallenge
from .discovery import AUTO, Discovered, discover
from .metadata import AuthorizationServer, origin_of, show_url
from .registration import ClientSettings, find_registration
from .requests import Browse, Fetch, Fetched, FetchFailed, Login, LoginFailed, Registration, Returned
from .token_requests import KNOWN_ERRORS, request_tokens, to_text

OFFLINE_ACCESS: Final = "offline_access"
"""The scope of OpenID Connect for refresh tokens. It is requested if a person set it, and never because a server
lists it."""
RETURNS_MAX: Final = 16
"""The most visits to the redirect URI with another state that are passed over. Any page may send a browser there. At
it: the login fails."""
QUERY_MAX_CHARS: Final = 16 * 1024
"""The longest query of a redirect URI that is read; codes have some hundred characters. At it: it counts as one with
another state."""
RANDOM_BYTES: Final = 32

Entropy = Callable[[int], bytes]
Flow = Generator[Fetch | Browse, Fetched | FetchFailed | Returned, Login]


class LoginSettings(msgspec.Struct, frozen=True):
    """The settings of a login at one MCP server.

    Attributes:
        url: the URL of the MCP server.
        scope: the scopes to request in any case.
        resource: `auto`, `none` or a URI: the `resource` parameter.
        issuer: the authorization server; "": the one that the MCP server names.
    """

    url: str
    client: ClientSettings = ClientSettings()
    scope: tuple[str, ...] = ()
    resource: str = AUTO
    issuer: str = ""


class OpenLogin(msgspec.Struct, frozen=True):
    """A login whose page may be opened: all that is needed to end it, also for another process. It has secrets in it.

    Attributes:
        page: the URL for the browser.
        redirect: the redirect URI.
    """

    server: AuthorizationServer
    registration: Registration
    resource: str
    scope: tuple[str, ...]
    page: str
    redirect: str
    state: str
    verifier: str

    def __repr__(self) -> str:
        return f"OpenLogin({self.server.issuer!r}, redirect={self.redirect!r}, …)"


def log_in(
    settings: LoginSettings,
    challenge: BearerChallenge,
    *,
    port: int,
    entropy: Entropy,
    now: float,
    known: Mapping[str, Registration] = {},
    earlier: Iterable[str] = (),
    is_asked: bool = True,
) -> Flow:
    """Logs a person in, and returns the login. See `begin_login`."""
    begun = yield from begin_login(
        settings, challenge, port=port, entropy=entropy, now=now, known=known, earlier=earlier, is_asked=is_asked
    )
    return (yield from end_login(begun))


def begin_login(
    settings: LoginSettings,
    challenge: BearerChallenge,
    *,
    port: int,
    entropy: Entropy,
    now: float,
    known: Mapping[str, Registration] = {},
    earlier: Iterable[str] = (),
    is_asked: bool = True,
) -> Generator[Fetch, Fetched | FetchFailed, OpenLogin]:
    """Finds out all that the page of a login needs.

    Args:
        challenge: the one of the response that asked for a login; empty if it had none.
        is_asked: the server asked for a login. Else it has to have metadata that say so.
        port: the port of the redirect URI, on which the driver listens already.
        known: the registrations that earlier logins made, by issuer.
        earlier: the scopes that were requested before.

    Raises:
        LoginFailed: there is no login.
    """
    found = yield from find_login(settings, challenge, known=known)
    server = found.server
    if found.is_legacy and not is_asked:
        raise LoginFailed(f"{origin_of(settings.url)} asks for no login: use it without")
    check_challenge_methods(found)
    if not server.authorization_endpoint:
        raise LoginFailed(f"{show_url(server.issuer)} has no authorization_endpoint: use another type of login")
    scope = select_scope(settings.scope, challenge, found, earlier)
    redirect = settings.client.redirect(port)
    registration = yield from find_registration(server, settings.client, redirect, known, scope, now)
    return open_page(server, registration, redirect, entropy, scope=scope, resource=found.resource)


def end_login(begun: OpenLogin, *, is_open: bool = False) -> Flow:
    """Waits for the browser, and returns the login.

    Args:
        is_open: the page was opened before.

    Raises:
        LoginFailed: there is no login.
    """
    endpoint = begun.server.token_endpoint
    grant = yield from await_grant(begun, is_open=is_open)
    tokens = yield from request_tokens(endpoint, begun.registration, grant, resource=begun.resource)
    return Login(begun.registration, endpoint, begun.resource, begun.scope, tokens)


def open_page(
    server: AuthorizationServer,
    registration: Registration,
    redirect: str,
    entropy: Entropy,
    *,
    scope: tuple[str, ...],
    resource: str = "",
    extra: Mapping[str, str] = {},
) -> OpenLogin:
    """Makes the page at the authorization endpoint where a person logs in.

    Args:
        extra: further parameters of the request.
    """
    state, verifier = to_text(entropy(RANDOM_BYTES)), to_text(entropy(RANDOM_BYTES))
    asked = {
        "response_type": "code",
        "client_id": registration.client_id,
        "redirect_uri": redirect,
        "state": state,
        "code_challenge": to_text(hashlib.sha256(verifier.encode()).digest()),
        "code_challenge_method": "S256",
        **({"scope": " ".join(scope)} if scope else {}),
        **({"resource": resource} if resource else {}),
        **extra,
    }
    endpoint = server.authorization_endpoint
    page = f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(asked)}"
    return OpenLogin(server, registration, resource, scope, page, redirect, state, verifier)


def await_grant(
    begun: OpenLogin, *, is_open: bool = False
) -> Generator[Browse, Fetched | FetchFailed | Returned, dict[str, str]]:
    """Waits for the browser. Returns the grant for the token endpoint.

    Args:
        is_open: the page was opened before.

    Raises:
        LoginFailed: there is no code.
    """
    code = yield from _await_code(begun.server, Browse(begun.page, begun.redirect, is_open), begun.state)
    redirect = begun.redirect
    return {"grant_type": "authorization_code", "code": code, "redirect_uri": redirect, "code_verifier": begun.verifier}


def find_login(
    settings: LoginSettings, challenge: BearerChallenge, *, known: Mapping[str, Registration] = {}
) -> Generator[Fetch, Fetched | FetchFailed, Discovered]:
    """Finds the authorization server as the settings say: of several, the one that knows the client already."""
    wanted = settings.client.client_issuer or next(iter(known), "")
    return (
        yield from discover(
            settings.url, challenge, issuer=settings.issuer, resource=settings.resource, wanted_issuer=wanted
        )
    )


def check_challenge_methods(found: Discovered) -> None:
    """Checks that the authorization server knows S256.

    "If `code_challenge_methods_supported` is absent, the authorization server does not support PKCE and MCP clients
    MUST refuse to proceed" (2025-11-25). In 2025-03-26 a server may have no metadata at all, so an absent list is no
    reason there.

    Raises:
        LoginFailed: it does not.
    """
    methods = found.server.challenge_methods
    if methods is None and found.is_legacy:
        return
    if methods is None or "S256" not in methods:
        raise LoginFailed(
            f"{show_url(found.server.issuer)} does not list S256 in code_challenge_methods_supported, without which a "
            f"code can be stolen: have the provider corrected"
        )


def select_scope(
    configured: tuple[str, ...], challenge: BearerChallenge, found: Discovered, earlier: Iterable[str] = ()
) -> tuple[str, ...]:
    """Returns the scopes to request: those of the settings, of the challenge, else of the metadata, and earlier ones.

    Source: 2026-07-28 basic/authorization, "Scope Selection Strategy" and "Step-Up Authorization Flow".
    """
    asked = challenge.scope
    if asked is None:
        asked = () if configured else found.scopes or ()
    wanted = dict.fromkeys((*earlier, *configured, *asked))
    listed = found.server.scopes
    if OFFLINE_ACCESS not in configured or (listed is not None and OFFLINE_ACCESS not in listed):
        wanted.pop(OFFLINE_ACCESS, None)
    return tuple(wanted)


def _await_code(
    server: AuthorizationServer, browse: Browse, state: str
) -> Generator[Browse, Fetched | FetchFailed | Returned, str]:
    """Waits for a browser at the redirect URI. Returns the code."""
    for _ in range(RETURNS_MAX):
        reply = yield browse
        assert isinstance(reply, Returned)
        answer = _read_query(reply.query)
        if hmac.compare_digest(answer.get("state", "").encode(), state.encode()):
            return _read_code(server, answer)
        browse = Browse(browse.url, browse.redirect, is_open=True)
    raise LoginFailed(f"the redirect URI was visited {RETURNS_MAX} times with another state: log in again")


def _read_code(server: AuthorizationServer, answer: Mapping[str, str]) -> str:
    issuer = answer.get("iss")
    if issuer is None and server.says_issuer:
        raise LoginFailed(
            f"the answer does not say that it is of {show_url(server.issuer)} (iss), which says that it always does: "
            f"log in again, and tell the provider"
        )
    if issuer not in (None, server.issuer):
        raise LoginFailed(f"the answer is of another provider than {show_url(server.issuer)} (iss): log in again")
    if "error" in answer:
        code = answer["error"] if answer["error"] in KNOWN_ERRORS else "another error"
        raise LoginFailed(f"{show_url(server.issuer)} refused the login ({code}): log in again")
    if not answer.get("code"):
        raise LoginFailed(f"the answer of {show_url(server.issuer)} has neither code nor error: log in again")
    return answer["code"]


def _read_query(query: str) -> dict[str, str]:
    """Returns the parameters. None, if one is there twice: it "MUST NOT be included more than once" (RFC 6749, 3.1)."""
    if len(query) > QUERY_MAX_CHARS:
        return {}
    try:
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=64, errors="strict")
    except ValueError:
        return {}
    found = dict(pairs)
    return found if len(found) == len(pairs) else {}
