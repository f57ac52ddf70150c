"""The authorization request, what comes back to the redirect URI, and the token request."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from isthmus.core.logins.challenges import BearerChallenge
from isthmus.core.logins.login import (
    QUERY_MAX_CHARS,
    RETURNS_MAX,
    LoginSettings,
    OpenLogin,
    begin_login,
    end_login,
    log_in,
)
from isthmus.core.logins.registration import ClientSettings
from isthmus.core.logins.requests import Fetched, FetchFailed, LoginFailed, Registration, Returned, Tokens
from isthmus.core.logins.token_requests import KNOWN_ERRORS
from login_world import ISSUER, NOW, PORT, SECRETS, URL, World, challenge_of, header, json_reply

TOKEN = f"{ISSUER}/token"


def test_a_login() -> None:
    world = World()
    login = world.log_in(BearerChallenge(scope=("a", "b")))
    form, asked = world.form(), world.asked
    assert world.pages[0].url.startswith(f"{ISSUER}/authorize?")
    assert asked.pop("code_challenge") == challenge_of(form["code_verifier"])
    assert asked.pop("state") not in ("", form["code_verifier"])
    assert asked == {
        "response_type": "code",
        "client_id": "registered",
        "redirect_uri": "http://127.0.0.1:33418/callback",
        "code_challenge_method": "S256",
        "scope": "a b",
        "resource": URL,
    }
    assert len(form.pop("code_verifier")) == 43
    assert form == {
        "grant_type": "authorization_code",
        "code": "the-code",
        "redirect_uri": "http://127.0.0.1:33418/callback",
        "client_id": "registered",
        "resource": URL,
    }
    assert header(world.requests[-1], b"content-type") == "application/x-www-form-urlencoded"
    assert login.tokens == Tokens("the-access-token", "the-refresh-token", 3600.0)
    assert (login.token_endpoint, login.resource, login.scope) == (TOKEN, URL, ("a", "b"))


def test_each_login_has_its_own_state_and_verifier() -> None:
    world = World()
    world.log_in()
    first = world.asked, world.form()["code_verifier"]
    world.log_in()
    assert world.asked["state"] != first[0]["state"]
    assert world.form()["code_verifier"] != first[1]


def test_a_query_of_the_authorization_endpoint_is_kept() -> None:
    world = World(server={"authorization_endpoint": f"{ISSUER}/authorize?tenant=1"})
    world.log_in()
    assert world.pages[0].url.startswith(f"{ISSUER}/authorize?tenant=1&response_type=code&")
    assert world.asked["tenant"] == "1"


def test_resource_none_is_sent_nowhere() -> None:
    world = World()
    assert world.log_in(resource="none").resource == ""
    assert "resource" not in world.asked
    assert "resource" not in world.form()


# --- S256 -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("methods", [None, [], ["plain"], "S256"])
def test_corner_case_23_without_s256_nothing_is_asked(methods: Any) -> None:
    """2025-11-25: "If `code_challenge_methods_supported` is absent ... MCP clients MUST refuse to proceed"."""
    world = World(server={"code_challenge_methods_supported": methods})
    with pytest.raises(LoginFailed, match="does not list S256"):
        world.log_in()
    assert world.pages == []
    assert not any(each.method == "POST" for each in world.requests)


@pytest.mark.parametrize(("methods", "is_refused"), [(None, False), (["plain"], True)])
def test_without_a_list_a_server_of_2025_03_26_is_asked_with_s256(methods: Any, is_refused: bool) -> None:
    origin = "https://mcp.example"
    world = World(server={"code_challenge_methods_supported": methods, "issuer": origin})
    found = list(world.answers.values())[1]
    world.answers = {f"{origin}/.well-known/oauth-authorization-server": found, **world.answers}
    del world.answers[f"{origin}/.well-known/oauth-protected-resource/v1/mcp"]
    if is_refused:
        with pytest.raises(LoginFailed, match="does not list S256"):
            world.log_in()
    else:
        world.log_in()
        assert world.asked["code_challenge_method"] == "S256"


# --- Scopes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("configured", "challenged", "listed", "earlier", "expected"),
    [
        ((), None, None, (), None),
        ((), None, ["a", "b"], (), "a b"),
        ((), ("c",), ["a", "b"], (), "c"),
        ((), (), ["a"], (), None),
        (("d",), None, ["a"], (), "d"),
        (("d",), ("c",), ["a"], (), "d c"),
        ((), ("c",), None, ("a", "b"), "a b c"),
        ((), ("c", "a"), None, ("a",), "a c"),
        ((), ("c", "offline_access"), None, (), "c"),
        ((), None, ["a", "offline_access"], (), "a"),
        (("a", "offline_access"), None, None, (), "a offline_access"),
    ],
)
def test_the_scopes_that_are_requested(
    configured: tuple[str, ...],
    challenged: tuple[str, ...] | None,
    listed: list[str] | None,
    earlier: tuple[str, ...],
    expected: str | None,
) -> None:
    """2026-07-28, "Scope Selection Strategy": the challenge, else the metadata, else none; with those of earlier
    logins, and `offline_access` only if a person set it."""
    world = World(resource={"scopes_supported": listed})
    login = world.log_in(BearerChallenge(scope=challenged), scope=configured, earlier=earlier)
    assert world.asked.get("scope") == expected
    assert login.scope == tuple((expected or "").split())


@pytest.mark.parametrize(("listed", "expected"), [(["a", "offline_access"], "a offline_access"), (["a"], "a")])
def test_offline_access_is_not_requested_where_the_provider_does_not_list_it(listed: list[str], expected: str) -> None:
    """2026-07-28, "Refresh Tokens"."""
    world = World(server={"scopes_supported": listed})
    world.log_in(scope=("a", "offline_access"))
    assert world.asked["scope"] == expected


# --- The redirect URI -----------------------------------------------------------------------------------------------


def test_a_visit_with_another_state_is_passed_over() -> None:
    """2026-07-28: clients "discard any results that do not include or have a mismatch with the original state"."""
    world = World()
    world.returns_first = ["", "code=evil", "code=evil&state=x", "error=access_denied&state=x", "state=%ff&code=evil"]
    world.log_in()
    assert world.form()["code"] == "the-code"
    assert [page.is_open for page in world.pages] == [False, True, True, True, True, True]


def test_a_query_that_is_too_long_counts_as_another_state() -> None:
    world = World()
    world.returns_first = ["a" * (QUERY_MAX_CHARS + 1)]
    world.log_in()
    assert len(world.pages) == 2


@pytest.mark.parametrize("query", ["&".join(["a=b"] * 65), "code=\xff&state=%C3%28"])
def test_a_query_that_cannot_be_read_counts_as_another_state(query: str) -> None:
    world = World()
    world.returns_first = [query]
    world.log_in()
    assert len(world.pages) == 2


def test_one_visit_less_than_too_many_is_passed_over() -> None:
    world = World()
    world.returns_first = ["state=x"] * (RETURNS_MAX - 1)
    world.log_in()
    assert world.form()["code"] == "the-code"


def test_too_many_visits_with_another_state_end_the_login() -> None:
    world = World()
    world.returns_first = ["code=x&state=y"] * RETURNS_MAX
    with pytest.raises(LoginFailed, match="with another state"):
        world.log_in()
    assert TOKEN not in world.urls


@pytest.mark.parametrize(
    ("says", "issuer", "is_accepted"),
    [
        (True, ISSUER, True),
        (True, None, False),
        (True, "https://evil.example", False),
        (True, ISSUER + "/", False),
        (True, ISSUER.upper(), False),
        (True, "", False),
        (False, ISSUER, True),
        (False, None, True),
        (False, "https://evil.example", False),
        (None, None, True),
        (None, ISSUER + "/", False),
    ],
)
@pytest.mark.parametrize("is_error", [False, True])
def test_corner_case_23_the_issuer_of_the_answer(
    says: bool | None, issuer: str | None, is_accepted: bool, is_error: bool
) -> None:
    """RFC 9207, 2.4, and the table of 2026-07-28: for a wrong issuer nothing is sent, and its error is not shown."""
    returned = {"iss": issuer, "error": "access_denied", "code": None} if is_error else {"iss": issuer}
    world = World(server={"authorization_response_iss_parameter_supported": says}, returned=returned)
    if is_accepted and not is_error:
        world.log_in()
        assert TOKEN in world.urls
        return
    with pytest.raises(LoginFailed) as failed:
        world.log_in()
    assert TOKEN not in world.urls
    assert ("access_denied" in str(failed.value)) is is_accepted
    assert "evil" not in str(failed.value)


@pytest.mark.parametrize(
    ("returned", "text"),
    [
        ({"error": "access_denied", "error_description": "evil"}, r"refused the login \(access_denied\)"),
        ({"error": "evil"}, r"refused the login \(another error\)"),
        ({"error": ""}, r"refused the login \(another error\)"),
        ({"code": None}, "neither code nor error"),
        ({"code": ""}, "neither code nor error"),
    ],
)
def test_an_answer_without_a_code_ends_the_login(returned: dict[str, str | None], text: str) -> None:
    world = World(returned=returned)
    with pytest.raises(LoginFailed, match=text) as failed:
        world.log_in()
    assert TOKEN not in world.urls
    assert "evil" not in str(failed.value)


# --- The token endpoint ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"token_type": "bearer"}, Tokens("the-access-token", "the-refresh-token", 3600.0)),
        ({"expires_in": "60"}, Tokens("the-access-token", "the-refresh-token", 60.0)),
        ({"expires_in": "soon"}, Tokens("the-access-token", "the-refresh-token")),
        ({"expires_in": -1}, Tokens("the-access-token", "the-refresh-token")),
        ({"expires_in": True}, Tokens("the-access-token", "the-refresh-token")),
        ({"refresh_token": None}, Tokens("the-access-token", "", 3600.0)),
        ({"refresh_token": "a\nb"}, Tokens("the-access-token", "", 3600.0)),
        ({"scope": "a b"}, Tokens("the-access-token", "the-refresh-token", 3600.0, ("a", "b"))),
    ],
)
def test_what_a_token_response_says(changes: dict[str, Any], expected: Tokens) -> None:
    world = World()
    world.tokens |= changes
    assert world.log_in().tokens == expected


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"access_token": None}, "without an access_token"),
        ({"access_token": ""}, "without an access_token"),
        ({"access_token": "a\r\nX-Evil: 1"}, "without an access_token"),
        ({"access_token": "a b"}, "without an access_token"),
        ({"token_type": "DPoP"}, "expected Bearer"),
        ({"token_type": None}, "expected Bearer"),
    ],
)
def test_a_token_that_cannot_be_sent_is_none(changes: dict[str, Any], text: str) -> None:
    world = World()
    world.tokens |= changes
    with pytest.raises(LoginFailed, match=text):
        world.log_in()


@pytest.mark.parametrize(
    ("reply", "text", "is_refused", "is_unanswered"),
    [
        (json_reply({"error": "invalid_grant", "error_description": "the-code"}, 400), "invalid_grant", True, False),
        (json_reply({"error": "invalid_client"}, 401), "invalid_client", False, False),
        (json_reply({"error": "invalid_target"}, 400), "set resource: none", False, False),
        (json_reply({"error": "the-code"}, 400), "HTTP status 400", False, False),
        (Fetched(400, b"the-code"), "HTTP status 400", False, False),
        (json_reply({"error": ["invalid_grant"]}, 400), "HTTP status 400", False, False),
        (json_reply({"error": "server_error"}, 500), "server_error", False, True),
        (Fetched(503, b""), "HTTP status 503", False, True),
        (Fetched(429, b""), "HTTP status 429", False, True),
        (Fetched(200, b"the-code"), "HTTP status 200", False, True),
        (Fetched(307, b""), "HTTP status 307", False, False),
        (FetchFailed("https://as.example: lost"), "lost", False, True),
    ],
)
def test_a_refused_token_request(reply: Any, text: str, is_refused: bool, is_unanswered: bool) -> None:
    world = World()
    world.answers[TOKEN] = reply
    with pytest.raises(LoginFailed, match=text) as failed:
        world.log_in()
    assert (failed.value.is_refused, failed.value.is_unanswered) == (is_refused, is_unanswered)
    assert not any(secret in str(failed.value) for secret in world.secrets())


def test_no_error_code_is_a_secret() -> None:
    assert not KNOWN_ERRORS & set(SECRETS)


def test_nothing_secret_is_in_a_repr() -> None:
    """`World.run` looks at the requests; these are the results and settings."""
    world = World(server={"token_endpoint_auth_methods_supported": ["client_secret_post"]})
    login = world.log_in(client_id="c", client_secret="the-client-secret")
    settings = LoginSettings(URL, ClientSettings("c", "the-client-secret"))
    shown = f"{login!r} {settings!r} {Registration(ISSUER, 'c', 'the-client-secret')!r}"
    assert not any(secret in shown for secret in world.secrets())
    assert login.registration.client_secret == "the-client-secret"


def test_another_process_ends_a_login_that_was_begun() -> None:
    """All that is needed is in what the first process stores, and its `repr` shows no secret of it."""
    world = World()
    flow = begin_login(
        LoginSettings(URL), BearerChallenge(), port=PORT, entropy=world.entropy, now=NOW, known={}, earlier=()
    )
    begun = world.run(flow)
    assert not any(secret in repr(begun) for secret in world.secrets())
    assert not any(form.method == "POST" and form.url.endswith("/token") for form in world.requests)
    stored = msgspec.json.decode(msgspec.json.encode(begun), type=OpenLogin)
    login = world.run(end_login(stored, is_open=True))
    assert login.tokens.access_token == "the-access-token"
    assert [page.is_open for page in world.pages] == [True]


def test_a_server_without_an_authorization_endpoint_ends_the_login() -> None:
    with pytest.raises(LoginFailed, match="no authorization_endpoint"):
        World(server={"authorization_endpoint": None}).log_in()


def test_a_double_parameter_with_the_right_state_is_not_used() -> None:
    """RFC 6749, 3.1: parameters "MUST NOT be included more than once". Which of two codes was meant is not known."""
    world = World()

    def twice(asked: Any) -> Any:
        reply = original(asked)
        if isinstance(reply, Returned) and len(world.pages) == 1:
            return Returned(f"{reply.query}&code=another")
        return reply

    original, world.answer = world.answer, twice  # type: ignore[method-assign]
    world.log_in()
    assert len(world.pages) == 2
    assert world.form()["code"] == "the-code"


@pytest.mark.parametrize(("is_asked", "has_metadata"), [(False, False), (True, False), (False, True)])
def test_a_server_that_asks_for_no_login_gets_none(is_asked: bool, has_metadata: bool) -> None:
    """The default endpoints of 2025-03-26 are a guess, for servers that ask for a login."""
    world = World()
    if not has_metadata:
        world.answers.clear()
    flow = log_in(LoginSettings(URL), BearerChallenge(), port=1, entropy=world.entropy, now=0, is_asked=is_asked)
    if has_metadata:
        world.run(flow)
        return
    with pytest.raises(LoginFailed, match="refused a registration" if is_asked else "asks for no login"):
        world.run(flow)
    assert any(each.method == "POST" for each in world.requests) is is_asked
