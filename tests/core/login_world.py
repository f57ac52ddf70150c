"""An MCP server and its authorization server, as scripted answers to the requests of a login."""

from __future__ import annotations

import base64
import hashlib
import random
from collections.abc import Callable, Generator, Mapping
from typing import Any, Final
from urllib.parse import parse_qs, parse_qsl, unquote_plus, urlencode, urlsplit

import msgspec
from isthmus.core.logins.challenges import BearerChallenge
from isthmus.core.logins.login import LoginSettings, log_in
from isthmus.core.logins.registration import ClientSettings
from isthmus.core.logins.requests import (
    Browse,
    Fetch,
    Fetched,
    FetchFailed,
    Login,
    Pause,
    Registration,
    Returned,
    ShowCode,
)

URL: Final = "https://mcp.example/v1/mcp"
ISSUER: Final = "https://as.example/realms/a"
PORT: Final = 33418
NOW: Final = 1_800_000_000.0
NO_CHALLENGE: Final = BearerChallenge()

RESOURCE_AT_PATH: Final = "https://mcp.example/.well-known/oauth-protected-resource/v1/mcp"
RESOURCE_AT_ROOT: Final = "https://mcp.example/.well-known/oauth-protected-resource"
OAUTH_AT_PATH: Final = "https://as.example/.well-known/oauth-authorization-server/realms/a"
OPENID_AT_PATH: Final = "https://as.example/.well-known/openid-configuration/realms/a"
OPENID_BEHIND: Final = "https://as.example/realms/a/.well-known/openid-configuration"

SECRETS: Final = ("the-code", "the-access-token", "the-refresh-token", "the-client-secret")
"""Texts that must not appear in a `repr` or an error. Verifiers and states are looked for by `World.secrets`."""

Reply = Fetched | FetchFailed
Answer = Reply | Callable[[Fetch], Reply]


def json_reply(value: object, status: int = 200) -> Fetched:
    return Fetched(status, msgspec.json.encode(value))


class World:
    """The two servers. `answers` has an answer for each URL that exists; others get 404. `requests` is what was asked.

    Args:
        resource: members of the protected-resource metadata to change; None leaves one out.
        server: members of the authorization server's metadata to change; None leaves one out.
        issuer: the authorization server.
        returned: parameters of the redirect URI to change; None leaves one out.
    """

    def __init__(
        self,
        *,
        resource: Mapping[str, Any] | None = None,
        server: Mapping[str, Any] | None = None,
        issuer: str = ISSUER,
        returned: Mapping[str, str | None] | None = None,
    ) -> None:
        self.issuer = issuer
        self.requests: list[Fetch] = []
        self.pages: list[Browse] = []
        self.pauses: list[float] = []
        self.codes: list[ShowCode] = []
        self.returned = dict(returned or {})
        self.returns_first: list[str] = []
        self.tokens: dict[str, Any] = {
            "access_token": "the-access-token",
            "token_type": "Bearer",
            "refresh_token": "the-refresh-token",
            "expires_in": 3600,
        }
        self.answers: dict[str, Answer] = {
            RESOURCE_AT_PATH: json_reply(
                _changed({"resource": URL, "authorization_servers": [issuer]}, resource or {})
            ),
            OAUTH_AT_PATH: json_reply(_changed(server_metadata(issuer), server or {})),
            f"{issuer}/token": lambda _: json_reply(self.tokens),
            f"{issuer}/register": json_reply({"client_id": "registered"}, 201),
        }
        self._random = random.Random(0)
        self.drawn: list[bytes] = []

    def entropy(self, size: int) -> bytes:
        self.drawn.append(self._random.randbytes(size))
        return self.drawn[-1]

    def answer(self, asked: Fetch | Browse | ShowCode | Pause) -> Reply | Returned | None:
        """Answers a request of a flow."""
        if isinstance(asked, Fetch):
            self.requests.append(asked)
            found = self.answers.get(asked.url, Fetched(404, b""))
            return found(asked) if callable(found) else found
        if isinstance(asked, Browse):
            self.pages.append(asked)
            if self.returns_first:
                return Returned(self.returns_first.pop(0))
            state = parse_qs(urlsplit(asked.url).query)["state"][0]
            return Returned(urlencode(_changed({"code": "the-code", "state": state}, self.returned)))
        if isinstance(asked, Pause):
            self.pauses.append(asked.seconds)
        else:
            self.codes.append(asked)
        return None

    def run(self, flow: Generator[Any, Any, Any]) -> Any:
        """Runs a flow to its end."""
        reply = None
        while True:
            try:
                asked = flow.send(reply)
            except StopIteration as end:
                return end.value
            assert not any(secret in repr(asked) for secret in self.secrets()), asked
            reply = self.answer(asked)

    def log_in(
        self, challenge: BearerChallenge = NO_CHALLENGE, *, known: Mapping[str, Registration] = {}, **settings: Any
    ) -> Login:
        """Logs in with a browser. `earlier` aside, `settings` are those of `LoginSettings` and `ClientSettings`."""
        earlier = settings.pop("earlier", ())
        of_client = {name: settings.pop(name) for name in ClientSettings.__struct_fields__ if name in settings}
        login_settings = LoginSettings(**{"url": URL, "client": ClientSettings(**of_client), **settings})
        login: Login = self.run(
            log_in(login_settings, challenge, port=PORT, entropy=self.entropy, now=NOW, known=known, earlier=earlier)
        )
        return login

    def secrets(self) -> list[str]:
        drawn = [base64.urlsafe_b64encode(each).rstrip(b"=").decode() for each in self.drawn]
        return [*SECRETS, *drawn]

    @property
    def urls(self) -> list[str]:
        return [each.url for each in self.requests]

    def form(self, index: int = -1) -> dict[str, str]:
        """The form of one of the requests."""
        return dict(parse_qsl(self.requests[index].body.decode(), keep_blank_values=True))

    @property
    def asked(self) -> dict[str, str]:
        """The parameters of the last authorization request."""
        return dict(parse_qsl(urlsplit(self.pages[-1].url).query, keep_blank_values=True))


def server_metadata(issuer: str) -> dict[str, Any]:
    return {
        "issuer": issuer,
        "authorization_endpoint": f"{issuer}/authorize",
        "token_endpoint": f"{issuer}/token",
        "registration_endpoint": f"{issuer}/register",
        "code_challenge_methods_supported": ["S256"],
        "token_endpoint_auth_methods_supported": ["none"],
    }


def header(request: Fetch, name: bytes) -> str:
    return dict(request.headers).get(name, b"").decode()


def basic(request: Fetch) -> tuple[str, str]:
    """The client id and secret of an Authorization header."""
    scheme, _, value = header(request, b"authorization").partition(" ")
    assert scheme == "Basic"
    name, _, secret = base64.b64decode(value).decode().partition(":")
    return unquote_plus(name), unquote_plus(secret)


def challenge_of(verifier: str) -> str:
    """The challenge of a verifier, as RFC 7636, 4.2 says."""
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()


def _changed(value: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: each for name, each in {**value, **changes}.items() if each is not None}
