"""Requests to a token endpoint: how the client authenticates, and what the response says.

Source: RFC 6749, 2.3.1, 4.1.3, 5 and 6; RFC 7521, 4.2; RFC 7523, 2.2; RFC 8707, 2.2.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Generator, Mapping
from typing import Any, Final
from urllib.parse import quote_plus, urlencode

import msgspec

from .challenges import split_scope
from .metadata import origin_of, read_object
from .requests import Fetch, Fetched, FetchFailed, LoginFailed, Registration, Tokens

BASIC: Final = "client_secret_basic"
POST: Final = "client_secret_post"
NO_AUTHENTICATION: Final = "none"
KEY: Final = "private_key_jwt"

ASSERTION_TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
ASSERTION_TTL_S: Final = 120
"""The lifetime of an assertion of a client: one request, and clocks that differ by a minute."""

KNOWN_ERRORS: Final = frozenset(
    [
        # RFC 6749, 4.1.2.1 and 5.2
        *("invalid_request", "invalid_client", "invalid_grant", "unauthorized_client", "unsupported_grant_type"),
        *("invalid_scope", "access_denied", "unsupported_response_type", "server_error", "temporarily_unavailable"),
        # RFC 7591, 3.2.2; RFC 8628, 3.5; RFC 8707, 2
        *("invalid_redirect_uri", "invalid_client_metadata", "authorization_pending", "slow_down", "expired_token"),
        "invalid_target",
        # OpenID Connect Core 1.0, 3.1.2.6
        *("interaction_required", "login_required", "account_selection_required", "consent_required"),
    ]
)
"""The codes that are shown. Another may hold anything, also what was sent."""

Sign = Callable[[Mapping[str, str | int]], str]
"""A function that signs claims with the client's key. It returns a JWT."""

Requesting = Generator[Fetch, Fetched | FetchFailed, Tokens]

_TOKEN: Final = re.compile(r"[\x21-\x7e]{1,65536}")


class Assertion(msgspec.Struct, frozen=True):
    """An assertion of a client in place of a secret. `audience`: the issuer of the authorization server."""

    sign: Sign
    audience: str
    entropy: Callable[[int], bytes]
    now: float


def request_tokens(
    endpoint: str,
    registration: Registration,
    grant: Mapping[str, str],
    *,
    resource: str = "",
    assertion: Assertion | None = None,
) -> Requesting:
    """Sends a grant to the token endpoint.

    Args:
        grant: `grant_type` and what belongs to it.
        resource: the `resource` parameter; "": none.
        assertion: how a client with the method `private_key_jwt` authenticates.

    Raises:
        LoginFailed: there are no tokens.
    """
    found = yield from request_grant(endpoint, registration, grant, resource=resource, assertion=assertion)
    return read_tokens(found, endpoint)


def request_grant(
    endpoint: str,
    registration: Registration,
    grant: Mapping[str, str],
    *,
    resource: str = "",
    assertion: Assertion | None = None,
    renewable: str = "",
) -> Generator[Fetch, Fetched | FetchFailed, dict[str, Any]]:
    """Sends a grant to an endpoint of the authorization server. Returns the JSON object of a successful response.

    Args:
        renewable: what the grant rests on, for people, if another one may come: it is no use to log in again.
    """
    reply = yield token_request(endpoint, registration, grant, resource=resource, assertion=assertion)
    if isinstance(reply, FetchFailed):
        raise LoginFailed(reply.text, is_unanswered=True)
    found = read_object(reply.body)
    if reply.status == 200 and found is not None:
        return found
    code = known_error(found)
    seen = f"{origin_of(endpoint)} gave no token ({code or f'HTTP status {reply.status}'})"
    if renewable and code in _RENEWABLE:
        raise LoginFailed(f"{seen}: it does not take {renewable}, expected a valid one", is_unanswered=True)
    raise LoginFailed(
        f"{seen}: {_ADVICE.get(code, 'try again later')}",
        is_refused=code == "invalid_grant",
        is_unanswered=code in _PASSING or (not code and (reply.status >= 500 or reply.status in (200, 429))),
    )


_PASSING: Final = ("server_error", "temporarily_unavailable")
"""Codes of a provider that is out of order: they say nothing about the grant."""
_RENEWABLE: Final = ("invalid_grant", "invalid_request")
"""Codes for a subject token "invalid for any reason" (RFC 8693, 2.2.2), and for an assertion (RFC 7521, 4.1.1)."""
_ADVICE: Final = {
    "invalid_grant": "log in again",
    "invalid_client": "correct client_id and client_secret, or log in again for a new registration",
    "unauthorized_client": "allow the client this grant there",
    "unsupported_grant_type": "use another type of login",
    "invalid_scope": "correct scope",
    "invalid_target": "correct resource, or set resource: none",
}


def token_request(
    endpoint: str,
    registration: Registration,
    grant: Mapping[str, str],
    *,
    resource: str = "",
    assertion: Assertion | None = None,
) -> Fetch:
    """Returns the request, with which the client authenticates as it is registered."""
    form = {**grant, **({"resource": resource} if resource else {})}
    headers = [(b"content-type", b"application/x-www-form-urlencoded"), (b"accept", b"application/json")]
    if registration.method == BASIC:
        # "encoded using the application/x-www-form-urlencoded encoding algorithm" (RFC 6749, 2.3.1)
        pair = f"{quote_plus(registration.client_id)}:{quote_plus(registration.client_secret)}"
        headers.append((b"authorization", b"Basic " + base64.b64encode(pair.encode())))
    else:
        form["client_id"] = registration.client_id
    if registration.method == POST:
        form["client_secret"] = registration.client_secret
    elif registration.method == KEY:
        assert assertion is not None
        form["client_assertion_type"] = ASSERTION_TYPE
        form["client_assertion"] = assertion.sign(
            {
                "iss": registration.client_id,
                "sub": registration.client_id,
                "aud": assertion.audience,
                "jti": to_text(assertion.entropy(16)),
                "iat": int(assertion.now),
                "exp": int(assertion.now) + ASSERTION_TTL_S,
            }
        )
    return Fetch("POST", endpoint, tuple(headers), urlencode(form).encode())


def read_tokens(found: Mapping[str, Any], endpoint: str) -> Tokens:
    """Returns the tokens of a response.

    Raises:
        LoginFailed: it has no bearer token.
    """
    where = origin_of(endpoint)
    access, refresh = found.get("access_token"), found.get("refresh_token")
    if not isinstance(access, str) or not _TOKEN.fullmatch(access):
        raise LoginFailed(f"{where} answered without an access_token that can be sent: have the provider corrected")
    kind = found.get("token_type")
    if not isinstance(kind, str) or kind.lower() != "bearer":
        raise LoginFailed(f"{where} gave a token of another token_type, expected Bearer: have the client set to that")
    scope = found.get("scope")
    return Tokens(
        access,
        refresh if isinstance(refresh, str) and _TOKEN.fullmatch(refresh) else "",
        seconds_of(found.get("expires_in")),
        split_scope(scope) if isinstance(scope, str) else None,
    )


def known_error(found: Mapping[str, Any] | None) -> str:
    """Returns the error code of a response; "" if there is none that may be shown."""
    code = None if found is None else found.get("error")
    return code if isinstance(code, str) and code in KNOWN_ERRORS else ""


def to_text(random: bytes) -> str:
    """Returns random bytes as text for a URL. Source: RFC 7636, appendix A."""
    return base64.urlsafe_b64encode(random).rstrip(b"=").decode()


def seconds_of(value: object) -> float | None:
    """Returns seconds of an answer; None if there are none. Some providers write the number as text."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 12:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
        return None
    return float(value)
