"""The visit of a browser: it logs in at the caller's issuer, then at the server, and only if both persons are one."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from isthmus.core.connect.browser_login import BrowserClient
from isthmus.core.connect.connection import (
    AnotherCaller,
    CallerKnown,
    Connected,
    LoginPlan,
    OpenVisit,
    begin_visit,
    go_on,
)
from isthmus.core.connect.tickets import Tickets
from isthmus.core.logins.login import LoginSettings
from isthmus.core.logins.registration import ClientSettings
from isthmus.core.logins.requests import Browse, Fetch, Fetched, Login, LoginFailed
from login_world import NOW, URL, World, header, json_reply, server_metadata

INBOUND = "https://people.example"
CLIENT = BrowserClient(INBOUND, "gateway", "the-client-secret")
ALICE = f"jwt:{INBOUND}|alice"
TICKETS = Tickets(b"k" * 32)
PAGE = "https://gateway.example/connect"


def part(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


class Browser(World):
    """The servers, and an issuer whose ID token has these claims."""

    def __init__(self, **claims: Any) -> None:
        super().__init__()
        self.claims = claims
        self.order: list[str] = []
        metadata = server_metadata(INBOUND) | {"token_endpoint_auth_methods_supported": ["client_secret_basic"]}
        self.answers[f"{INBOUND}/.well-known/oauth-authorization-server"] = json_reply(metadata)
        self.answers[f"{INBOUND}/token"] = self.identify

    def identify(self, request: Fetch) -> Fetched:
        usual = {
            "iss": INBOUND,
            "aud": "gateway",
            "sub": "alice",
            "exp": NOW + 60,
            "nonce": self.asked["nonce"],
        }
        claims = {key: value for key, value in {**usual, **self.claims}.items() if value is not None}
        token = f"{part({'alg': 'RS256'})}.{part(claims)}.c2ln"
        return json_reply({"access_token": "x", "token_type": "Bearer", "id_token": token})

    def answer(self, asked: Any) -> Any:
        if isinstance(asked, CallerKnown):
            self.order.append("known")
            return LoginPlan(LoginSettings(URL, ClientSettings(redirect_uri=PAGE)))
        self.order.append(asked.url.partition("?")[0] if isinstance(asked, Fetch | Browse) else "")
        return super().answer(asked)

    def visit(
        self, principal: str = ALICE, *, present: str = "", client: BrowserClient | None = CLIENT
    ) -> tuple[str, Login]:
        ticket = TICKETS.read(TICKETS.make("files", principal, 0, NOW), "files", NOW)
        assert ticket is not None
        clock: Callable[[], float] = lambda: NOW  # noqa: E731
        found: OpenVisit | Connected = self.run(
            begin_visit(
                TICKETS,
                ticket,
                "files",
                redirect=PAGE,
                known_caller=present,
                client=client,
                entropy=self.entropy,
                clock=clock,
            )
        )
        while isinstance(found, OpenVisit):
            assert not any(secret in repr(found) for secret in self.secrets())
            # As another process knows it.
            visit = msgspec.json.decode(msgspec.json.encode(found), type=OpenVisit)
            assert visit == found
            found = self.run(go_on(visit, TICKETS, client=client, entropy=self.entropy, clock=clock))
        return found.principal, found.login


def test_the_person_logs_in_at_both_places() -> None:
    browser = Browser()
    principal, login = browser.visit()
    assert principal == ALICE
    assert login.tokens.access_token == "the-access-token"
    assert [page.redirect for page in browser.pages] == [PAGE, PAGE]
    assert [page.url.partition("?")[0] for page in browser.pages] == [
        f"{INBOUND}/authorize",
        "https://as.example/realms/a/authorize",
    ]
    assert login.registration.redirect == PAGE
    known = browser.order.index("known")
    assert all(INBOUND in each for each in browser.order[:known])
    assert not any(INBOUND in each for each in browser.order[known:])


def test_the_gateway_shows_its_secret_to_the_issuer_alone() -> None:
    browser = Browser()
    browser.visit()
    shown = [request.url for request in browser.requests if header(request, b"authorization")]
    assert shown == [f"{INBOUND}/token"]


def test_a_caller_whom_the_gate_knows_logs_in_at_the_server_only() -> None:
    browser = Browser()
    assert browser.visit("proxy:alice", present="proxy:alice", client=None)[0] == "proxy:alice"
    assert len(browser.pages) == 1


@pytest.mark.parametrize(("claims", "present"), [({"sub": "bob"}, ""), ({}, f"jwt:{INBOUND}|bob"), ({}, "token:alice")])
def test_another_person_is_sent_away_before_the_server_is_asked(claims: dict[str, Any], present: str) -> None:
    """2025-11-25 client/elicitation, "Phishing"."""
    browser = Browser(**claims)
    with pytest.raises(AnotherCaller, match="somebody else"):
        browser.visit(present=present)
    assert "known" not in browser.order
    assert not any("as.example" in url or "mcp.example" in url for url in browser.urls)


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"iss": "https://other.example"}, "another issuer"),
        ({"iss": None}, "names no issuer"),
        ({"aud": "others"}, "another client"),
        ({"aud": ["others", 1]}, "another client"),
        ({"aud": ["gateway", "others"], "azp": "others"}, "another client"),
        ({"exp": NOW - 31}, "expired"),
        ({"exp": None}, "expired"),
        ({"exp": True}, "expired"),
        ({"exp": "later"}, "expired"),
        ({"nonce": None}, "another login"),
        ({"nonce": "x"}, "another login"),
        ({"sub": None}, "names no caller"),
        ({"sub": 7}, "names no caller"),
        ({"sub": ""}, "names no caller"),
        ({"sub": "a\nb"}, "names no caller"),
        ({"sub": "a" * 257}, "names no caller"),
    ],
)
def test_an_id_token_that_must_not_be_believed(claims: dict[str, Any], reason: str) -> None:
    """OpenID Connect Core 1.0, 3.1.3.7."""
    browser = Browser(**claims)
    with pytest.raises(LoginFailed, match=reason):
        browser.visit()
    assert "known" not in browser.order


@pytest.mark.parametrize("claims", [{"aud": ["gateway"]}, {"azp": "gateway"}, {"exp": NOW - 29}, {"exp": NOW + 0.5}])
def test_an_id_token_that_is_believed(claims: dict[str, Any]) -> None:
    assert Browser(**claims).visit()[0] == ALICE


@pytest.mark.parametrize("token", [None, 7, "", "a.b.c", "x" * 20_000])
def test_an_answer_without_an_id_token(token: object) -> None:
    browser = Browser()
    browser.answers[f"{INBOUND}/token"] = json_reply({"access_token": "x", "token_type": "Bearer", "id_token": token})
    with pytest.raises(LoginFailed, match=r"id_token|ID token"):
        browser.visit()


def test_nobody_can_tell_who_sits_there() -> None:
    with pytest.raises(LoginFailed, match="does not know who you are"):
        Browser().visit(client=None)
