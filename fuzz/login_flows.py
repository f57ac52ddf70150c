"""Any providers answer a login: it asks only where it may, tells no secret, and ends with a login or a reason.

The first byte says which login it is, and the second one its settings. The rest are replies, separated by zero bytes:
a digit for the status, and the body. Where the login waits for a browser they are the query that it comes with, in
which `{state}` stands for the right state. Accepted outcomes: a `Login`; or `LoginFailed`, with a printable text.
"""

from __future__ import annotations

import json
import random
from collections.abc import Generator
from typing import Any, Final
from urllib.parse import parse_qs, parse_qsl, urlsplit

from isthmus.core.logins.challenges import BearerChallenge
from isthmus.core.logins.device import EXPIRES_MAX_S, INTERVAL_MAX_S, log_in_device
from isthmus.core.logins.grants import log_in_client
from isthmus.core.logins.login import LoginSettings, log_in
from isthmus.core.logins.registration import ClientSettings
from isthmus.core.logins.requests import (
    Browse,
    Fetch,
    Fetched,
    FetchFailed,
    Login,
    LoginFailed,
    Pause,
    Registration,
    Returned,
    ShowCode,
)

URL: Final = "https://mcp.example/mcp"
ISSUER: Final = "https://as.example"
SECRET: Final = "the-secret-of-the-client"
NOW: Final = 1_800_000_000.0
STATUSES: Final = (200, 201, 302, 400, 401, 403, 404, 429, 500, 503)
CLIENTS: Final = (
    ClientSettings(),
    ClientSettings("by-hand", SECRET, ISSUER),
    ClientSettings("https://client.example/id.json"),
    ClientSettings("by-hand", redirect_host="127.0.0.1"),
)
KNOWN: Final = {ISSUER: Registration(ISSUER, "known", SECRET, "client_secret_post", "http://127.0.0.1:33418/callback")}
STEPS_MAX: Final = 2000


def begun(kind: int, settings: LoginSettings, *, is_known: bool) -> Generator[Any, Any, Login]:
    challenge = BearerChallenge(scope=("read",))
    known = KNOWN if is_known else {}
    entropy = random.Random(1).randbytes
    if kind == 1:
        return log_in_device(settings, challenge, now=NOW, known=known)
    if kind == 2:
        return log_in_client(settings, challenge, entropy=entropy, now=NOW)
    return log_in(settings, challenge, port=33418, entropy=entropy, now=NOW, known=known)


class Provider:
    """Answers with the replies of an input, and checks what is asked."""

    def __init__(self, replies: list[bytes]) -> None:
        self._replies = iter(replies)
        self._state = ""
        self._codes: list[str] = []
        self._named: set[str] = set()  # the issuers that metadata have named
        self.paused_s = 0.0

    def answer(self, asked: object) -> Fetched | FetchFailed | Returned | None:
        if isinstance(asked, Fetch):
            return self._fetch(asked)
        if isinstance(asked, Browse):
            return self._browse(asked)
        if isinstance(asked, ShowCode):
            check_url(asked.url)
            assert not asked.complete_url or check_url(asked.complete_url)
            assert asked.code.isprintable() and asked.code.isascii()
            return None
        assert isinstance(asked, Pause)
        assert 1 <= asked.seconds <= INTERVAL_MAX_S
        self.paused_s += asked.seconds
        return None

    def _fetch(self, asked: Fetch) -> Fetched | FetchFailed:
        check_url(asked.url)
        sent = asked.body.decode() + repr(asked.headers)
        assert SECRET not in sent or ISSUER in self._named, "the secret is for the provider that gave it"
        form = dict(parse_qsl(asked.body.decode()))
        if form.get("grant_type") == "authorization_code":
            assert form["code"] in self._codes, "the code came with the right state"
        reply = next(self._replies, None)
        if not reply or not reply[:1].isdigit():
            return FetchFailed("https://as.example: no answer")
        body = reply[1:]
        try:
            found = json.loads(body)
            self._named |= {found["issuer"]} if isinstance(found["issuer"], str) else set()
        except (ValueError, TypeError, KeyError, RecursionError):
            pass
        return Fetched(STATUSES[int(reply[:1])], body)

    def _browse(self, asked: Browse) -> Returned:
        check_url(asked.url)
        query = parse_qs(urlsplit(asked.url).query)
        assert query["code_challenge_method"][-1] == "S256"
        self._state = query["state"][-1]
        text = (next(self._replies, b"") or b"").decode("latin-1").replace("{state}", self._state)
        came = parse_qs(text, keep_blank_values=True) if len(text) < 10_000 else {}
        if came.get("state") == [self._state] and "error" not in came:
            self._codes += came.get("code", [])
        return Returned(text)


def check_url(url: str) -> bool:
    parts = urlsplit(url)
    host = (parts.hostname or "").rstrip(".")
    is_loopback = host == "localhost" or host.startswith("127.") or host.endswith(":1") or ":127." in host
    assert parts.scheme.lower() == "https" or (parts.scheme.lower() == "http" and is_loopback)
    assert "@" not in parts.netloc
    assert not parts.fragment
    return True


def test_one_input(data: bytes) -> None:
    kind, flags = (data + b"\0\0")[:2]
    client = CLIENTS[flags & 3]
    settings = LoginSettings(URL, client, ("write",), issuer=ISSUER if flags & 4 else "")
    flow = begun(kind % 3, settings, is_known=bool(flags & 8))
    provider = Provider(data[2:].split(b"\0"))
    reply: object = None
    try:
        for _ in range(STEPS_MAX):
            reply = provider.answer(flow.send(reply))
        raise AssertionError("the login does not end")
    except StopIteration as end:
        login = end.value
        assert isinstance(login, Login)
        check_url(login.token_endpoint)
        assert login.tokens.access_token not in repr(login.tokens) or len(login.tokens.access_token) < 16
        assert SECRET not in repr(login)
    except LoginFailed as error:
        text = str(error)
        assert text.isprintable()
        assert SECRET not in text
        assert not provider._state or provider._state not in text
        assert not any(len(code) > 16 and code in text for code in provider._codes)
    assert provider.paused_s <= EXPIRES_MAX_S + INTERVAL_MAX_S
