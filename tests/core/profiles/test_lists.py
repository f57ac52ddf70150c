"""The bounds of lists at a profile, and what servers may do to them."""

from __future__ import annotations

from typing import Any

import pytest
from dialogue import Dialogue
from dialogue_peers import Client, Server
from expected_values import Containing
from isthmus.core import Kind, Profile, ProfileServer, ServerPlan
from isthmus.core.profiles import fetches, lists
from isthmus.core.profiles.fetches import LIST_MAX_BYTES, LIST_MAX_ENTRIES, PAGES_MAX, TTL_MAX_S, TTL_MIN_S
from isthmus.core.profiles.lists import CHANGE_JOIN_S, KINDS_MAX
from isthmus.core.profiles.pages import PAGE_MAX_BYTES

CAN: dict[str, Any] = {"tools": {}, "prompts": {}, "resources": {}}


def meeting(**rest: Any) -> tuple[Dialogue, Client, Server]:
    play = Dialogue(
        ServerPlan(id="alpha", kind=Kind.PIPE), profiles=(Profile("all", (ProfileServer("alpha"),)),), **rest
    )
    return play, greeted(play, "alice"), play.server


def greeted(play: Dialogue, name: str, **rest: Any) -> Client:
    client = play.client(name, "pipe", server="all", **rest)
    client.is_answered(client.greets(), ...)
    client.notifies("initialized")
    return client


def tools_of(play: Dialogue, client: Client, **params: Any) -> dict[str, Any]:
    """Returns the answer to a request for tools, which needs no server."""
    request = client.asks("tools/list", params or None)
    (came,) = play.unexpected
    client.is_answered(request, ...)
    found: dict[str, Any] = came.what["result"]
    return found


def test_pages_of_a_server_are_bounded() -> None:
    """A cursor that never ends is followed `PAGES_MAX` times."""
    play, alice, alpha = meeting()
    tools = alice.asks("tools/list")
    alpha.starts(able=CAN)
    for number in range(PAGES_MAX):
        alpha.answers(alpha.is_asked("tools/list"), {"tools": [{"name": f"t{number:03}"}], "nextCursor": f"c{number}"})
    alice.is_answered(tools, ...)
    assert len(tools_of(play, alice)["tools"]) == PAGES_MAX


@pytest.mark.parametrize("pages", [1, 2])
def test_bytes_of_a_server_are_bounded(pages: int) -> None:
    """A list of more than `LIST_MAX_BYTES` is not read to its end, even if it is one page."""
    play, alice, alpha = meeting()
    alice.asks("tools/list")
    alpha.starts(able=CAN)
    small, large = ({"name": name, "description": "x" * (LIST_MAX_BYTES // 3)} for name in ("small", "large"))
    large["description"] *= 2
    told = [small, large, {"name": "z"}]
    for page in (told,) if pages == 1 else (told[:1], told[1:]):
        alpha.answers(alpha.is_asked("tools/list"), {"tools": page, "nextCursor": "more"})
    (came,) = play.unexpected
    play.unexpected.clear()
    assert [tool["name"] for tool in came.what["result"]["tools"]] == ["alpha__small"]


def test_entries_of_a_server_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest of a list of more than `LIST_MAX_ENTRIES` is left out, within a page or behind it."""
    assert LIST_MAX_ENTRIES > 3
    monkeypatch.setattr(fetches, "LIST_MAX_ENTRIES", 3)
    play, alice, alpha = meeting()
    tools = alice.asks("tools/list")
    alpha.starts(able=CAN)
    for names in ("ab", "cde"):
        alpha.answers(alpha.is_asked("tools/list"), {"tools": [{"name": name} for name in names], "nextCursor": names})
    shown = [Containing({"name": f"alpha__{name}"}) for name in "abc"]
    alice.is_answered(tools, {"tools": shown})
    play.finish()


def test_clients_get_large_lists_in_pages() -> None:
    """A page has `PAGE_MAX_BYTES` at most, and one entry at least."""
    play, alice, alpha = meeting()
    alice.asks("tools/list")
    alpha.starts(able=CAN)
    size = PAGE_MAX_BYTES // 2 + 1
    entries = [{"name": name, "description": "x" * size} for name in ("c", "a", "b")]
    alpha.answers(alpha.is_asked("tools/list"), {"tools": entries})
    play.unexpected.clear()
    seen, cursor = [], {}
    while True:
        page = tools_of(play, alice, **cursor)
        seen += [tool["name"] for tool in page["tools"]]
        if "nextCursor" not in page:
            break
        cursor = {"cursor": page["nextCursor"]}
    assert seen == ["alpha__a", "alpha__b", "alpha__c"]
    for wrong in ("x", f"{cursor['cursor']}9", "0-0"):
        alice.is_answered(alice.asks("tools/list", {"cursor": wrong}), error=-32602)


def test_the_cursor_of_a_list_that_has_changed_is_refused() -> None:
    play, alice, alpha = meeting()
    alice.asks("tools/list")
    alpha.starts(able=CAN)
    entries = [{"name": name, "description": "x" * PAGE_MAX_BYTES} for name in ("a", "b")]
    alpha.answers(alpha.is_asked("tools/list"), {"tools": entries})
    play.unexpected.clear()
    cursor = tools_of(play, alice)["nextCursor"]
    alpha.notifies("tools/list_changed")
    play.waits(CHANGE_JOIN_S)
    alpha.answers(alpha.is_asked("tools/list"), {"tools": entries[:1]})
    alice.is_notified("tools/list_changed")
    alice.is_answered(alice.asks("tools/list", {"cursor": cursor}), error={"code": -32602})


def test_lists_get_old() -> None:
    """After `TTL_MAX_S` the server is asked again, while what is kept is shown."""
    play, alice, alpha = meeting()
    tools = alice.asks("tools/list")
    alpha.starts(able=CAN)
    alpha.answers(alpha.is_asked("tools/list"), {"tools": [{"name": "t"}]})
    alice.is_answered(tools, ...)
    play.waits(TTL_MAX_S - 1)
    assert tools_of(play, alice)["tools"][0]["name"] == "alpha__t"
    play.waits(1)
    alice.is_answered(alice.asks("tools/list"), Containing({"tools": [Containing({"name": "alpha__t"})]}))
    alpha.answers(alpha.is_asked("tools/list"), {"tools": [{"name": "new"}]})
    alice.is_notified("tools/list_changed")
    assert tools_of(play, alice)["tools"][0]["name"] == "alpha__new"


def test_a_list_that_is_old_at_once_is_kept_for_a_moment() -> None:
    """The server says 0 for the time that its list may be kept."""
    play, alice, alpha = meeting()
    tools = alice.asks("tools/list")
    alpha.starts(able=CAN)
    alpha.answers(alpha.is_asked("tools/list"), {"tools": [{"name": "t"}], "ttlMs": 0})
    alice.is_answered(tools, ...)
    tools_of(play, alice)
    play.waits(TTL_MIN_S)
    alice.is_answered(alice.asks("tools/list"), ...)
    alpha.answers(alpha.is_asked("tools/list"), {"tools": [{"name": "t"}]})
    play.finish()


def test_a_list_goes_on_though_the_client_leaves_for_which_it_is_read() -> None:
    """Another client that waits for the list has it read for itself."""
    play, alice, alpha = meeting()
    alice.asks("tools/list")
    alpha.is_started()
    bob = greeted(play, "bob")
    tools = bob.asks("tools/list")
    before = alpha.channel
    alice.leaves()
    alpha.is_started()
    alpha.is_closed(on=before)
    alpha.connects()
    alpha.is_greeted(able=CAN)
    alpha.answers(alpha.is_asked("tools/list"), {"tools": [{"name": "t"}]})
    bob.is_answered(tools, Containing({"tools": [Containing({"name": "alpha__t"})]}))
    play.finish()


def test_kinds_of_clients_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lists that were used least lately are dropped at `KINDS_MAX`."""
    assert KINDS_MAX > 2
    monkeypatch.setattr(lists, "KINDS_MAX", 2)
    play, alice, alpha = meeting()
    clients = [alice, *(greeted(play, name, principal=f"token:{name}") for name in ("bob", "carol"))]
    for client in clients:
        tools = client.asks("tools/list")
        alpha.starts(able=CAN)
        alpha.answers(alpha.is_asked("tools/list"), {"tools": [{"name": "t"}]})
        client.is_answered(tools, ...)
    tools_of(play, clients[1])
    tools = alice.asks("tools/list")
    alpha.answers(alpha.is_asked("tools/list"), {"tools": []})
    alice.is_answered(tools, {"tools": []})


@pytest.mark.parametrize(
    "result",
    [{}, {"tools": None}, {"tools": {}}, {"tools": [], "nextCursor": 7}],
    ids=["nothing", "null", "an object", "a number as cursor"],
)
def test_a_list_that_is_none_is_a_problem_of_its_server(result: Any) -> None:
    play, alice, alpha = meeting()
    tools = alice.asks("tools/list")
    alpha.starts(able=CAN)
    alpha.answers(alpha.is_asked("tools/list"), result)
    if result.get("tools") == []:
        alpha.answers(alpha.is_asked("tools/list"), {"tools": []})
        alice.is_answered(tools, {"tools": []})
    else:
        alice.is_answered(tools, error=-31004)
    play.finish()


def test_entries_without_a_name_are_left_out() -> None:
    play, alice, alpha = meeting()
    tools = alice.asks("tools/list")
    alpha.starts(able=CAN)
    odd = [{}, 7, None, {"name": 3}, {"name": "t"}, {"name": "t", "description": "again"}]
    alpha.answers(alpha.is_asked("tools/list"), {"tools": odd})
    shown = {"name": "alpha__t", "_meta": {"dev.isthmus/server": "alpha"}, "inputSchema": {"type": "object"}}
    alice.is_answered(tools, {"tools": [shown]})
    play.finish()
