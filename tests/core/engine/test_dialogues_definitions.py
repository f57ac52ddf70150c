"""Dialogues about definitions that differ from the approved ones."""

from __future__ import annotations

import json
from typing import Any

import pytest
from definition_scenes import (
    CHANGED,
    DELETE,
    DENIED,
    ENDS,
    EVIL,
    FOUND,
    NO_METHOD,
    SEARCH,
    UNKNOWN,
    approved,
    began,
    called,
    list_of,
    pins,
    refused,
)
from dialogue import Dialogue
from isthmus.core import Era, Kind, Limits, ServerPlan
from isthmus.core.base.governance import Cleaning
from isthmus.core.governance.lock import RECORD_KEY, format_lock


@pytest.mark.parametrize(("down", "era"), ENDS)
def test_g1_a_description_that_changes_at_the_second_list_is_left_out_and_refused(down: str, era: Era) -> None:
    play, alice = began(pins(SEARCH, DELETE), down, era)
    assert list_of(play, alice, SEARCH, DELETE) == [SEARCH, DELETE]
    called(play, alice)
    assert list_of(play, alice, EVIL, DELETE) == [DELETE]
    refused(alice)
    called(play, alice, "delete")
    assert list_of(play, alice, SEARCH, DELETE) == [SEARCH, DELETE]
    called(play, alice)


@pytest.mark.parametrize(("down", "era"), ENDS)
def test_g2_a_description_that_changes_during_a_session_is_refused_without_a_list(down: str, era: Era) -> None:
    play, alice = began(pins(SEARCH), down, era)
    list_of(play, alice, SEARCH)
    play.server.notifies("tools/list_changed")
    if era is Era.HANDSHAKE and down == "pipe":
        alice.is_notified("tools/list_changed", ...)
    call = alice.asks("tools/call", {"name": "search", "arguments": {}})
    play.server.answers(play.server.is_asked("tools/list", ...), {"tools": [EVIL]})
    alice.is_answered(call, error={"code": DENIED, "data": CHANGED})
    refused(alice)


def test_g3_a_tool_under_another_name_is_a_new_one() -> None:
    renamed = SEARCH | {"name": "find"}
    play, alice = began(pins(SEARCH, hides_new=True))
    assert list_of(play, alice, renamed) == []
    refused(alice, "find", code=UNKNOWN, message="Unknown tool: find")
    play, alice = began(pins(SEARCH))
    assert list_of(play, alice, renamed) == [renamed]
    called(play, alice, "find")


@pytest.mark.parametrize("hides", [False, True])
def test_g4_a_new_tool_is_shown_or_hidden_as_the_plan_says(hides: bool) -> None:
    play, alice = began(pins(SEARCH, hides_new=hides, blocks=False))
    assert list_of(play, alice, SEARCH, DELETE) == ([SEARCH] if hides else [SEARCH, DELETE])
    if hides:
        refused(alice, "delete", code=UNKNOWN)
    else:
        called(play, alice, "delete")


@pytest.mark.parametrize(
    "changed",
    [
        {"inputSchema": {"type": "object", "additionalProperties": True}},  # G5: a schema that was widened
        {"outputSchema": {"type": "object"}},
        {"title": "Search"},
        {"annotations": {"readOnlyHint": True}},  # G6, the other way round
    ],
)
def test_g5_g6_every_pinned_member_counts(changed: Any) -> None:
    for before, now in ((SEARCH, SEARCH | changed), (SEARCH | changed, SEARCH)):
        play, alice = began(pins(before))
        assert list_of(play, alice, now) == []
        refused(alice)


def test_g6_a_tool_that_was_read_only_and_is_not_any_more() -> None:
    before = SEARCH | {"annotations": {"readOnlyHint": True}}
    play, alice = began(pins(before))
    assert list_of(play, alice, SEARCH | {"annotations": {"readOnlyHint": False}}) == []
    refused(alice)


@pytest.mark.parametrize(("down", "era"), ENDS)
@pytest.mark.parametrize("tool", [SEARCH, EVIL])
def test_g7_a_tool_that_was_never_listed_is_judged_by_a_list_of_our_own(down: str, era: Era, tool: Any) -> None:
    play, alice = began(pins(SEARCH), down, era)
    first = alice.asks("tools/call", {"name": "search", "arguments": {}})
    listed = play.server.is_asked("tools/list", ...)
    second = alice.asks("tools/call", {"name": "search", "arguments": {}})
    play.server.answers(listed, {"tools": [tool]})
    if tool is EVIL:
        alice.is_answered(first, error=DENIED)
        alice.is_answered(second, error=DENIED)
    else:
        for call, received in [(each, play.server.is_asked("tools/call", ...)) for each in (first, second)]:
            play.server.answers(received, FOUND)
            alice.is_answered(call, ...)
        called(play, alice)  # the list is read once


def test_g10_a_description_with_the_date_in_it_can_be_ignored() -> None:
    play, alice = began(pins(SEARCH, ignore=("description",)))
    assert list_of(play, alice, EVIL) == [EVIL]
    called(play, alice)
    wider = EVIL | {"inputSchema": {}}
    assert list_of(play, alice, wider) == []


@pytest.mark.parametrize(("down", "era"), ENDS)
def test_a_change_is_noted_and_reported_where_it_only_warns(down: str, era: Era) -> None:
    play, alice = began(pins(SEARCH, blocks=False), down, era)
    assert list_of(play, alice, EVIL) == [EVIL]
    called(play, alice)
    (status,) = play.engine.report()
    assert dict(status.differences) == {"tools/search": "description changed"}
    assert status.differences_seen == 1
    list_of(play, alice, EVIL)
    assert play.engine.report()[0].differences_seen == 1
    list_of(play, alice, SEARCH)
    assert play.engine.report()[0].differences == ()


def test_no_call_waits_where_a_change_only_warns() -> None:
    play, alice = began(pins(SEARCH, blocks=False))
    call = alice.asks("tools/call", {"name": "search", "arguments": {}})
    listed = play.server.is_asked("tools/list", ...)
    received = play.server.is_asked("tools/call", ...)
    play.server.answers(received, FOUND)
    alice.is_answered(call, ...)
    play.server.answers(listed, {"tools": [EVIL]})
    assert dict(play.engine.report()[0].differences) == {"tools/search": "description changed"}


def test_nothing_is_written_into_descriptions() -> None:
    play, alice = began(pins(SEARCH, blocks=False))
    assert list_of(play, alice, EVIL, DELETE) == [EVIL, DELETE]


def test_the_pages_of_our_own_list_are_read_to_the_end() -> None:
    play, alice = began(pins(SEARCH))
    call = alice.asks("tools/call", {"name": "search", "arguments": {}})
    play.server.answers(play.server.is_asked("tools/list", {}), {"tools": [DELETE], "nextCursor": "2"})
    play.server.answers(play.server.is_asked("tools/list", {"cursor": "2"}), {"tools": [EVIL]})
    alice.is_answered(call, error=DENIED)


def test_a_list_that_cannot_be_read_blocks_what_was_approved_and_is_read_again_later() -> None:
    play, alice = began(pins(SEARCH))
    call = alice.asks("tools/call", {"name": "search", "arguments": {}})
    play.server.answers(play.server.is_asked("tools/list", ...), error={"code": -32603, "message": "no"})
    alice.is_answered(call, error={"code": DENIED})
    refused(alice, code=DENIED)
    called(play, alice, "other")  # never approved, and new ones are allowed
    play.waits(11.0)
    call = alice.asks("tools/call", {"name": "search", "arguments": {}})
    play.server.answers(play.server.is_asked("tools/list", ...), {"tools": [SEARCH]})
    play.server.answers(play.server.is_asked("tools/call", ...), FOUND)
    alice.is_answered(call, ...)


def test_a_list_that_does_not_come_holds_a_call_up_to_the_limit() -> None:
    play, alice = began(pins(SEARCH), limits=Limits(lookup_s=3.0))
    call = alice.asks("tools/call", {"name": "search", "arguments": {}})
    late = play.server.is_asked("tools/list", ...)
    play.waits(3.0)
    alice.is_answered(call, error={"code": DENIED})
    play.server.answers(late, {"tools": [SEARCH]})
    refused(alice, code=DENIED)


def test_pages_of_our_own_list_are_bounded() -> None:
    play, alice = began(pins(SEARCH), limits=Limits(schema_pages_max=2))
    call = alice.asks("tools/call", {"name": "search", "arguments": {}})
    for cursor in ("2", "3"):
        play.server.answers(play.server.is_asked("tools/list", ...), {"tools": [], "nextCursor": cursor})
    alice.is_answered(call, error={"code": DENIED})


def test_more_tools_than_are_remembered_block_the_approved_ones() -> None:
    play, alice = began(pins(SEARCH), limits=Limits(tools_known_max=1))
    call = alice.asks("tools/call", {"name": "search", "arguments": {}})
    play.server.answers(play.server.is_asked("tools/list", ...), {"tools": [SEARCH, DELETE]})
    alice.is_answered(call, error={"code": DENIED})


def test_a_server_that_says_with_each_list_that_it_changed_is_asked_three_times() -> None:
    play, alice = began(pins(SEARCH))
    call = alice.asks("tools/call", {"name": "search", "arguments": {}})
    for _ in range(3):
        listed = play.server.is_asked("tools/list", ...)
        play.server.notifies("tools/list_changed")
        alice.is_notified("tools/list_changed", ...)
        play.server.answers(listed, {"tools": [SEARCH]})
    play.server.answers(play.server.is_asked("tools/call", ...), FOUND)
    alice.is_answered(call, ...)


def test_a_list_that_changed_on_its_way_to_a_client_is_not_relied_on() -> None:
    play, alice = began(pins(SEARCH))
    asked = alice.asks("tools/list")
    received = play.server.is_asked("tools/list", ...)
    play.server.notifies("tools/list_changed")
    alice.is_notified("tools/list_changed", ...)
    play.server.answers(received, {"tools": [SEARCH]})
    alice.is_answered(asked, ...)
    call = alice.asks("tools/call", {"name": "search", "arguments": {}})
    play.server.answers(play.server.is_asked("tools/list", ...), {"tools": [EVIL]})
    alice.is_answered(call, error=DENIED)


def test_a_call_that_waits_for_the_list_survives_the_loss_of_its_server() -> None:
    play, alice = began(pins(SEARCH))
    call = alice.asks("tools/call", {"name": "search", "arguments": {}})
    play.server.is_asked("tools/list", ...)
    play.server.dies()
    play.server.starts()
    play.server.answers(play.server.is_asked("tools/list", ...), {"tools": [SEARCH]})
    play.server.answers(play.server.is_asked("tools/call", ...), FOUND)
    alice.is_answered(call, ...)


def test_a_call_that_is_cancelled_while_it_waits_is_never_written() -> None:
    play, alice = began(pins(SEARCH))
    call = alice.asks("tools/call", {"name": "search", "arguments": {}})
    listed = play.server.is_asked("tools/list", ...)
    alice.cancels(call)
    play.server.answers(listed, {"tools": [SEARCH]})
    called(play, alice)


def test_a_server_without_sessions_is_listed_again_when_the_time_is_over() -> None:
    shown = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    rules = pins(SEARCH)
    play = Dialogue(
        ServerPlan(id="files", kind=Kind.PIPE, era=Era.STATELESS, pins=rules), limits=Limits(definitions_ttl_s=60.0)
    )
    alice = play.client("alice", "http", era=Era.STATELESS)
    alice.meets(play.server)
    for tool in (SEARCH, EVIL):
        call = alice.asks("tools/call", {"name": "search", "arguments": {}})
        play.server.answers(play.server.is_asked("tools/list", ...), {"tools": [tool], **shown})
        if tool is SEARCH:
            play.server.answers(play.server.is_asked("tools/call", ...), {**FOUND, "resultType": "complete"})
            alice.is_answered(call, ...)
            play.waits(61.0)
        else:
            alice.is_answered(call, error=DENIED)


def test_an_ambiguous_definition_is_left_out_where_changes_are_blocked() -> None:
    play, alice = began(pins(SEARCH))
    twice = '{"name":"search","description":"Searches.","Description":"Evil.","inputSchema":{"type":"object"}}'
    asked = alice.asks("tools/list")
    received = play.server.is_asked("tools/list", ...)
    play.server.answers(received, {"tools": [json.loads(twice)]})
    alice.is_answered(asked, {"tools": []})
    refused(alice, code=DENIED, data={"outcome": "not_executed", "reason": "definition_unreadable"})


PROMPT = {"name": "greet", "description": "Greets.", "arguments": [{"name": "who"}]}
README = {"uri": "file:///readme", "name": "readme", "description": "Read me."}
LOGS = {"uriTemplate": "log:///{day}", "name": "logs", "description": "Logs."}


def test_prompts_are_judged_as_tools_are() -> None:
    play, alice = began(pins(prompts=[PROMPT]))
    asked = alice.asks("prompts/get", {"name": "greet"})
    play.server.answers(play.server.is_asked("prompts/list", ...), {"prompts": [PROMPT | {"description": "Evil."}]})
    alice.is_answered(asked, error={"code": DENIED, "data": CHANGED})
    completion = {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "who", "value": ""}}
    alice.is_answered(alice.asks("completion/complete", completion), error=DENIED)


@pytest.mark.parametrize("changed", [None, "resource", "template"])
def test_resources_are_judged_by_their_own_definitions_and_by_templates(changed: str | None) -> None:
    play, alice = began(pins(resources=[README], templates=[LOGS], hides_new=True))
    evil = {"description": "Evil."}
    resource = README | (evil if changed == "resource" else {})
    template = LOGS | (evil if changed == "template" else {})
    contents = {"contents": []}
    asked = alice.asks("resources/read", {"uri": "file:///readme"})
    play.server.answers(play.server.is_asked("resources/list", ...), {"resources": [resource]})
    listed = play.server.is_asked("resources/templates/list", ...)
    play.server.answers(listed, {"resourceTemplates": [template]})
    for request, is_changed in (
        (asked, changed == "resource"),
        (None, changed == "template"),
    ):
        read = request or alice.asks("resources/read", {"uri": "log:///monday"})
        if is_changed:
            alice.is_answered(read, error=DENIED)
        else:
            play.server.answers(play.server.is_asked("resources/read", ...), contents)
            alice.is_answered(read, ...)
    other = alice.asks("resources/read", {"uri": "secret:x"})
    alice.is_answered(other, error=-32002)  # nothing of that URI was approved


def test_a_server_without_templates_still_has_resources() -> None:
    play, alice = began(pins(resources=[README]))
    asked = alice.asks("resources/read", {"uri": "file:///readme"})
    play.server.answers(play.server.is_asked("resources/list", ...), {"resources": [README]})
    play.server.answers(play.server.is_asked("resources/templates/list", ...), error=NO_METHOD)
    play.server.answers(play.server.is_asked("resources/read", ...), {"contents": []})
    alice.is_answered(asked, ...)


# --- A lock that replicas share -------------------------------------------------------------------------------------


def changed_lock(play: Dialogue, *tools: Any, server: str = "files") -> None:
    """Another process has changed the lock."""
    lock = format_lock({server: approved(*tools)}).encode()
    play.happens(play.engine.receive_records, [(RECORD_KEY, lock)])


@pytest.mark.parametrize(("down", "era"), ENDS)
def test_a_lock_that_another_replica_changed_is_in_force(down: str, era: Era) -> None:
    play, alice = began(pins(SEARCH, hides_new=True), down, era)
    assert list_of(play, alice, SEARCH, DELETE) == [SEARCH]
    refused(alice, "delete", code=UNKNOWN)
    changed_lock(play, SEARCH, DELETE)
    if era is Era.HANDSHAKE and down == "pipe":
        alice.is_notified("tools/list_changed", ...)
    assert list_of(play, alice, SEARCH, DELETE) == [SEARCH, DELETE]
    called(play, alice, "delete")
    changed_lock(play, EVIL)
    if era is Era.HANDSHAKE and down == "pipe":
        alice.is_notified("tools/list_changed", ...)
    assert list_of(play, alice, SEARCH, DELETE) == []
    refused(alice)


def test_a_use_after_a_changed_lock_waits_until_the_list_was_read() -> None:
    """A reading under way is begun anew."""
    play, alice = began(pins(SEARCH), "http", Era.STATELESS)
    call = alice.asks("tools/call", {"name": "search", "arguments": {}})
    first = play.server.is_asked("tools/list", ...)
    changed_lock(play, EVIL)
    play.server.answers(first, {"tools": [SEARCH]})
    play.server.answers(play.server.is_asked("tools/list", ...), {"tools": [SEARCH]})
    alice.is_answered(call, error={"code": DENIED, "data": CHANGED})


@pytest.mark.parametrize("lock", [None, b"no lock", b"\xff", b"version = 2"])
def test_a_lock_that_cannot_be_read_or_is_the_same_changes_nothing(lock: bytes | None) -> None:
    play, alice = began(pins(SEARCH, hides_new=True))
    assert list_of(play, alice, SEARCH, DELETE) == [SEARCH]
    play.happens(play.engine.receive_records, [(RECORD_KEY, lock)])
    changed_lock(play, SEARCH)
    called(play, alice)
    refused(alice, "delete", code=UNKNOWN)


def test_a_lock_changes_nothing_where_there_are_no_pins() -> None:
    play, alice = began(clean=Cleaning.BLOCK)
    assert list_of(play, alice, SEARCH) == [SEARCH]
    changed_lock(play, DELETE)
    called(play, alice)
