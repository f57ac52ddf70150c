"""The device grant: what is shown, how often is polled, and how it ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from isthmus.core.logins.challenges import BearerChallenge
from isthmus.core.logins.device import EXPIRES_MAX_S, INTERVAL_MAX_S, log_in_device
from isthmus.core.logins.login import LoginSettings
from isthmus.core.logins.requests import Fetch, Fetched, FetchFailed, Login, LoginFailed, ShowCode
from login_world import ISSUER, NOW, URL, Reply, World, json_reply

DEVICE = f"{ISSUER}/device"
CODE = {
    "device_code": "the-code",
    "user_code": "ABCD-EFGH",
    "verification_uri": f"{ISSUER}/activate",
    "verification_uri_complete": f"{ISSUER}/activate?user_code=ABCD-EFGH",
    "expires_in": 600,
    "interval": 2,
}
PENDING = json_reply({"error": "authorization_pending"}, 400)


def run(world: World, given: Any, polls: list[Reply]) -> Login:
    world.answers[DEVICE] = given if isinstance(given, Fetched) else json_reply(given)
    done = world.answers[f"{ISSUER}/token"]
    assert isinstance(done, Callable)  # type: ignore[arg-type]

    def poll(request: Fetch) -> Reply:
        return polls.pop(0) if polls else done(request)  # type: ignore[operator,no-any-return]

    world.answers[f"{ISSUER}/token"] = poll
    login: Login = world.run(log_in_device(LoginSettings(URL, scope=("a",)), BearerChallenge(), now=NOW))
    return login


def device_world(**server: Any) -> World:
    return World(server={"device_authorization_endpoint": DEVICE, **server})


def test_a_login() -> None:
    world = device_world()
    login = run(world, CODE, [PENDING, PENDING])
    assert world.codes == [ShowCode(CODE["verification_uri"], "ABCD-EFGH", CODE["verification_uri_complete"], 600.0)]
    assert world.pauses == [2.0, 2.0, 2.0]
    asked = next(each for each in range(len(world.requests)) if world.urls[each] == DEVICE)
    assert world.form(asked) == {"client_id": "registered", "scope": "a", "resource": URL}
    assert world.form() == {
        "grant_type": "urn:ietf:params:oauth:grant-type:device_code",
        "device_code": "the-code",
        "client_id": "registered",
        "resource": URL,
    }
    assert login.tokens.access_token == "the-access-token"
    registered = msgspec.json.decode(world.requests[world.urls.index(f"{ISSUER}/register")].body)
    assert registered["grant_types"] == ["urn:ietf:params:oauth:grant-type:device_code", "refresh_token"]
    assert world.pages == []


def test_slow_down_adds_five_seconds_and_a_lost_poll_doubles() -> None:
    world = device_world()
    run(world, {**CODE, "interval": None}, [json_reply({"error": "slow_down"}, 400), FetchFailed("lost"), PENDING])
    assert world.pauses == [5.0, 10.0, 20.0, 20.0]


def test_the_pause_is_bounded() -> None:
    world = device_world()
    run(world, CODE, [FetchFailed("lost")] * 8)
    assert max(world.pauses) == INTERVAL_MAX_S


@pytest.mark.parametrize("expires_in", [600, 10**9, 10**400, "600", None])
def test_a_code_that_nobody_types_ends_the_login(expires_in: int | str | None) -> None:
    world = device_world()
    with pytest.raises(LoginFailed, match="nobody typed the code"):
        run(world, {**CODE, "interval": 60, "expires_in": expires_in}, [PENDING] * 100)
    assert sum(world.pauses) == min(int(expires_in or EXPIRES_MAX_S), EXPIRES_MAX_S)


@pytest.mark.parametrize("code", ["access_denied", "expired_token", "evil", None])
def test_a_refusal_ends_the_login(code: str | None) -> None:
    world = device_world()
    with pytest.raises(LoginFailed, match="refused the login") as failed:
        run(world, CODE, [json_reply({"error": code}, 400)])
    assert "evil" not in str(failed.value)
    assert len(world.pauses) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"device_code": None},
        {"user_code": "\x1b[2J"},
        {"user_code": "x" * 65},
        {"verification_uri": "javascript:alert(1)"},
        {"verification_uri": "http://as.example/activate"},
    ],
)
def test_a_code_that_cannot_be_shown_ends_the_login(changes: dict[str, Any]) -> None:
    world = device_world()
    with pytest.raises(LoginFailed, match="no code that can be shown"):
        run(world, {**CODE, **changes}, [])
    assert world.codes == []


def test_a_complete_url_that_must_not_be_opened_is_left_out() -> None:
    world = device_world()
    run(world, {**CODE, "verification_uri_complete": "file:///etc/passwd"}, [])
    assert world.codes[0].complete_url == ""


def test_a_server_without_device_codes_says_so() -> None:
    with pytest.raises(LoginFailed, match="without --device"):
        World().run(log_in_device(LoginSettings(URL), BearerChallenge(), now=NOW))
