"""A login of a person at another device: the device shows a code that the person types into a browser elsewhere.

Source: RFC 8628.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Mapping
from typing import Any, Final

from .challenges import BearerChallenge
from .login import LoginSettings, find_login, select_scope
from .metadata import is_requestable, read_object, show_url
from .registration import find_registration
from .requests import Fetch, Fetched, FetchFailed, Login, LoginFailed, Pause, Registration, ShowCode
from .token_requests import known_error, read_tokens, request_grant, seconds_of, token_request

GRANT: Final = "urn:ietf:params:oauth:grant-type:device_code"
INTERVAL_S: Final = 5.0
"""Seconds between two polls, if the server names none, and what `slow_down` adds to them (RFC 8628, 3.2 and 3.5)."""
INTERVAL_MAX_S: Final = 60.0
"""The longest pause between two polls. At it: it is polled after that pause."""
EXPIRES_MAX_S: Final = 1800.0
"""The longest time that a code is polled for; servers give 5 to 30 minutes. At it: the login fails."""

Flow = Generator[Fetch | ShowCode | Pause, Fetched | FetchFailed | None, Login]


def log_in_device(
    settings: LoginSettings,
    challenge: BearerChallenge,
    *,
    now: float,
    known: Mapping[str, Registration] = {},
    earlier: Iterable[str] = (),
) -> Flow:
    """Logs a person in with a code, and returns the login.

    Raises:
        LoginFailed: there is no login.
    """
    found = yield from find_login(settings, challenge, known=known)
    server = found.server
    if not server.device_endpoint:
        raise LoginFailed(f"{show_url(server.issuer)} has no codes for devices: log in without --device")
    scope = select_scope(settings.scope, challenge, found, earlier)
    redirect = settings.client.redirect(None)
    registration = yield from find_registration(server, settings.client, redirect, known, scope, now, grant=GRANT)
    asked = {"scope": " ".join(scope)} if scope else {}
    given = yield from request_grant(server.device_endpoint, registration, asked, resource=found.resource)
    device_code, shown, interval_s = _read_code(given, server.issuer)
    yield shown
    waited_s = 0.0
    while waited_s < shown.expires_in_s:
        yield Pause(interval_s)
        waited_s += interval_s
        grant = {"grant_type": GRANT, "device_code": device_code}
        reply = yield token_request(server.token_endpoint, registration, grant, resource=found.resource)
        if isinstance(reply, FetchFailed):  # "SHOULD ... exponential backoff" (RFC 8628, 3.5)
            interval_s = min(2 * interval_s, INTERVAL_MAX_S)
            continue
        assert isinstance(reply, Fetched)
        body = read_object(reply.body)
        if reply.status == 200 and body is not None:
            tokens = read_tokens(body, server.token_endpoint)
            return Login(registration, server.token_endpoint, found.resource, scope, tokens)
        code = known_error(body)
        if code == "slow_down":
            interval_s = min(interval_s + INTERVAL_S, INTERVAL_MAX_S)
        elif code != "authorization_pending":
            raise LoginFailed(f"{show_url(server.issuer)} refused the login ({code or 'another error'}): log in again")
    raise LoginFailed("nobody typed the code in time: log in again")


def _read_code(given: Mapping[str, Any], issuer: str) -> tuple[str, ShowCode, float]:
    device_code, user_code, url = (given.get(name) for name in ("device_code", "user_code", "verification_uri"))
    if (
        not isinstance(device_code, str)
        or not device_code
        or not isinstance(user_code, str)
        or not re.fullmatch(r"[ -~]{1,64}", user_code)
        or not isinstance(url, str)
        or not is_requestable(url)
    ):
        raise LoginFailed(f"{show_url(issuer)} gave no code that can be shown: log in without --device")
    complete = given.get("verification_uri_complete")
    complete = complete if isinstance(complete, str) and is_requestable(complete) else ""
    expires_in_s = seconds_of(given.get("expires_in")) or EXPIRES_MAX_S
    interval_s = max(seconds_of(given.get("interval")) or INTERVAL_S, 1.0)
    shown = ShowCode(url, user_code, complete, min(expires_in_s, EXPIRES_MAX_S))
    return device_code, shown, min(interval_s, INTERVAL_MAX_S)
