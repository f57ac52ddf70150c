"""Tests of the error after several attempts to reach a server: it has the server's own words of the first refusal, and
names settings as the command that runs the proxy has them."""

from __future__ import annotations

import pytest
from dialogue import Dialogue
from expected_values import Containing
from isthmus.core import Cause, End, Kind, ServerPlan
from isthmus.core.base.revisions import Era
from isthmus.core.base.setting_names import KEYS, OPTIONS, SettingNames


def test_the_first_words_outlast_the_fall_back_to_another_transport() -> None:
    play = Dialogue(ServerPlan(id="s", kind=Kind.HTTP, era=Era.HANDSHAKE, may_fall_back=True))
    alice = play.client("alice", "http")
    greeting = alice.greets()
    play.server.refuses(play.server.is_asked("initialize"), 400, b"Missing tenant")
    play.server.is_started()
    play.server.breaks_off(play.server.channel, Cause(End.REFUSED, status=405))
    text = "HTTP status 400 and said 'Missing tenant'; over HTTP+SSE it answered with HTTP status 405"
    alice.is_answered(greeting, error={"code": -31004, "message": Containing(text)})
    play.finish()


def test_the_first_words_outlast_the_change_to_another_era() -> None:
    play = Dialogue(ServerPlan(id="s", kind=Kind.HTTP))
    alice = play.client("alice", "http", era=Era.STATELESS)
    call = alice.asks("tools/list")
    play.server.refuses(play.server.is_asked("server/discover"), 400, b"Missing tenant")
    play.server.refuses(play.server.is_asked("initialize"), 405)
    alice.is_answered(call, error={"code": -31004, "message": Containing("405; first it said 'Missing tenant'")})
    play.finish()


@pytest.mark.parametrize("names", [KEYS, OPTIONS], ids=["configuration", "wrap"])
def test_missing_credentials_are_set_as_the_command_has_it(names: SettingNames) -> None:
    play = Dialogue(ServerPlan(id="s", kind=Kind.HTTP, era=Era.HANDSHAKE, names=names))
    alice = play.client("alice", "http")
    greeting = alice.greets()
    play.server.refuses(play.server.is_asked("initialize"), 401)
    text = f"(HTTP status 401): they are set with {names.headers}"
    alice.is_answered(greeting, error={"code": -31004, "message": Containing(text)})
    play.finish()


def test_no_name_of_a_command_is_one_of_a_configuration() -> None:
    """The list of variables is a pattern, and `isthmus wrap` has no option for trusted proxies."""
    for name in set(SettingNames.__struct_fields__) - {"variable_list", "trusted_proxies"}:
        assert getattr(OPTIONS, name).startswith("--")
        assert "--" not in getattr(KEYS, name)
