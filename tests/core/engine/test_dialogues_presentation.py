"""Dialogues about the way in which clients are shown what a server lists."""

from __future__ import annotations

import pytest
from definition_scenes import DELETE, DENIED, ENDS, EVIL, FOUND, SEARCH, UNKNOWN, began, called, list_of, pins, refused
from dialogue import Dialogue
from expected_values import Containing
from isthmus.core import Era, Kind, NameFilter, ServerPlan
from isthmus.core.base.governance import Cleaning, Override, Shown
from isthmus.core.base.plan import AccessRule, AccessRules

# --- Invisible characters ---------------------------------------------------------------------------------------------

HIDDEN = SEARCH | {"description": "Sear\u200bches.\u202e\U000e0041"}


def test_g11_invisible_characters_are_dropped_from_texts_alone() -> None:
    schema = {
        "type": "object",
        "properties": {
            "na\u200bme": {"type": "string", "enum": ["a\u200b"], "description": "Na\u200bme", "default": "\u200b"}
        },
    }
    play, alice = began(clean=Cleaning.CLEAN)
    (shown,) = list_of(play, alice, HIDDEN | {"inputSchema": schema})
    assert shown["description"] == "Searches."
    expected = {"type": "string", "enum": ["a\u200b"], "description": "Name", "default": "\u200b"}
    assert shown["inputSchema"]["properties"] == {"na\u200bme": expected}
    called(play, alice)


def test_g11_a_tool_with_invisible_characters_can_be_blocked() -> None:
    play, alice = began(clean=Cleaning.BLOCK)
    assert list_of(play, alice, HIDDEN, DELETE) == [DELETE]
    refused(alice, code=DENIED, data={"outcome": "not_executed", "reason": "definition_invisible"})
    called(play, alice, "delete")


def test_a_cleaned_tool_is_pinned_as_the_server_has_it() -> None:
    play, alice = began(pins(HIDDEN), clean=Cleaning.CLEAN)
    assert list_of(play, alice, HIDDEN) == [SEARCH]
    assert list_of(play, alice, SEARCH) == []


def test_instructions_are_cleaned() -> None:
    play = Dialogue(ServerPlan(id="files", kind=Kind.PIPE, era=Era.HANDSHAKE, clean=Cleaning.CLEAN))
    alice = play.client("alice", "pipe")
    greeting = alice.greets()
    play.server.is_started()
    play.server.connects()
    received = play.server.is_asked("initialize", ...)
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}}
    play.server.answers(received, hello | {"instructions": "Be\u200b good."})
    play.server.is_notified("initialized", ...)
    alice.is_answered(greeting, Containing({"instructions": "Be good."}))


# --- Other names and texts --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("down", "era"), ENDS)
def test_a_renamed_tool_is_called_by_its_new_name_alone(down: str, era: Era) -> None:
    shown = Shown(overrides=(Override(tool="search", rename="find", title="Find", description="Finds."),))
    play, alice = began(pins(SEARCH), down, era, shown=shown)
    assert list_of(play, alice, SEARCH) == [SEARCH | {"name": "find", "title": "Find", "description": "Finds."}]
    call = alice.asks("tools/call", {"name": "find", "arguments": {"x": 1}})
    received = play.server.is_asked("tools/call", ...)
    assert received.params["name"] == "search"
    play.server.answers(received, FOUND)
    alice.is_answered(call, ...)
    refused(alice, "search", code=UNKNOWN, message="Unknown tool: search")


def test_two_tools_may_swap_their_names() -> None:
    shown = Shown(overrides=(Override(tool="search", rename="delete"), Override(tool="delete", rename="search")))
    play, alice = began(shown=shown)
    assert [tool["name"] for tool in list_of(play, alice, SEARCH, DELETE)] == ["delete", "search"]
    call = alice.asks("tools/call", {"name": "delete", "arguments": {}})
    received = play.server.is_asked("tools/call", Containing({"name": "search"}))
    play.server.answers(received, FOUND)
    alice.is_answered(call, ...)


def test_a_tool_whose_name_was_given_away_does_not_exist() -> None:
    play, alice = began(shown=Shown(overrides=(Override(tool="search", rename="delete"),)))
    assert [tool["description"] for tool in list_of(play, alice, SEARCH, DELETE)] == ["Searches."]
    call = alice.asks("tools/call", {"name": "delete", "arguments": {}})
    received = play.server.is_asked("tools/call", Containing({"name": "search"}))
    play.server.answers(received, FOUND)
    alice.is_answered(call, ...)


@pytest.mark.parametrize(("down", "era"), ENDS)
def test_g12_filters_speak_of_the_servers_name(down: str, era: Era) -> None:
    shown = Shown(overrides=(Override(tool="delete", rename="tidy"), Override(tool="search", rename="delete_all")))
    play, alice = began(None, down, era, shown=shown, tools=NameFilter(exclude=("del*",)))
    assert [tool["name"] for tool in list_of(play, alice, SEARCH, DELETE)] == ["delete_all"]
    refused(alice, "tidy", code=UNKNOWN)
    called(play, alice, "delete_all")


@pytest.mark.parametrize(("down", "era"), ENDS)
def test_g12_access_rules_speak_of_the_servers_name(down: str, era: Era) -> None:
    rules = AccessRules(tools=(("del*", AccessRule(groups=("admin",))),))
    shown = Shown(overrides=(Override(tool="delete", rename="tidy"),))
    play, alice = began(None, down, era, shown=shown, access=rules)
    assert list_of(play, alice, SEARCH, DELETE) == [SEARCH]
    refused(alice, "tidy", code=UNKNOWN)


@pytest.mark.parametrize(("down", "era"), ENDS)
def test_g12_decisions_and_pins_speak_of_the_servers_name(down: str, era: Era) -> None:
    shown = Shown(overrides=(Override(tool="search", rename="find"),))
    play = Dialogue(
        ServerPlan(id="files", kind=Kind.PIPE, era=Era.HANDSHAKE, pins=pins(SEARCH), shown=shown, decides=True)
    )
    alice = play.client("alice", down, era=era)
    if era is Era.HANDSHAKE:
        alice.meets(play.server)
    else:
        discovery = alice.asks("server/discover")
        play.allows(alice.waits_for_decision("server/discover"))
        play.server.starts()
        alice.is_answered(discovery, ...)
    call = alice.asks("tools/call", {"name": "find", "arguments": {}})
    play.allows(alice.waits_for_decision("tools/call", "search"))
    play.server.answers(play.server.is_asked("tools/list", ...), {"tools": [EVIL]})
    alice.is_answered(call, error={"code": DENIED})


def test_descriptions_are_cut_to_their_first_sentence() -> None:
    play, alice = began(shown=Shown(first_sentence=True))
    (shown,) = list_of(play, alice, EVIL)
    assert shown["description"] == "Searches."


def test_what_is_not_shown_otherwise_keeps_its_bytes() -> None:
    play, alice = began(pins(SEARCH), clean=Cleaning.CLEAN, shown=Shown(description_max_chars=1000))
    assert list_of(play, alice, SEARCH) == [SEARCH]
