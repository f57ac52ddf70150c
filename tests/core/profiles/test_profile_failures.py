"""Dialogues with a profile of which a server fails, is slow, comes and goes, or lists what is none: F1 to F11.

Each is about what the others have of it: nothing.
"""

from __future__ import annotations

from typing import Any, Final

import pytest
from dialogue_peers import Server
from each_row import each_row
from expected_values import Containing
from isthmus.core import Cause, End, Era, Kind
from isthmus.core.profiles.fetches import PAGES_MAX
from profile_scenes import CAN, NO_CONTENT, OPEN, greeted, meeting, serve

ERAS = pytest.mark.parametrize("era", [Era.HANDSHAKE, Era.STATELESS], ids=["handshake", "stateless"])
SERVER_ERAS = pytest.mark.parametrize("server_era", [Era.HANDSHAKE, Era.STATELESS], ids=["handshake", "stateless"])
T: Final = {"name": "t", "inputSchema": OPEN}
LISTED: Final = {"ttlMs": 300_000, "cacheScope": "private", "resultType": "complete"}
DISCOVERY: Final = {"supportedVersions": ["2026-07-28"], "capabilities": CAN, **LISTED}
LISTEN: Final = "subscriptions/listen"


def started(*servers: Server) -> None:
    """Expects servers to be started at once."""
    for server in servers:
        server.is_started()


def shown(*names: str) -> Containing:
    return Containing({"tools": [Containing({"name": name}) for name in names]})


def test_f2_a_list_that_takes_ten_seconds_holds_up_nobody_for_long() -> None:
    """Calls of the others, and of that server itself, are answered meanwhile. The list is remembered once it is there,
    and each list that waited is answered in time."""
    play, alice, (alpha, beta) = meeting(down="pipe")
    first = alice.asks("tools/list")
    started(alpha, beta)
    alpha.connects()
    alpha.is_greeted(able=CAN)
    late = alpha.is_asked("tools/list")
    beta.connects()
    beta.is_greeted(able=CAN)
    beta.answers(beta.is_asked("tools/list"), {"tools": [T]})
    for server in (alpha, beta):
        call = alice.asks("tools/call", {"name": f"{server.name}__t"})
        server.answers(server.is_asked("tools/call"), {"content": []})
        alice.is_answered(call, {"content": []})
    missing = Containing({"_meta": {"dev.isthmus/servers": {"alpha": "it has not answered yet"}}})
    play.waits(3.0)
    alice.is_answered(first, shown("beta__t"))
    second = alice.asks("tools/list")
    play.waits(3.0)
    alice.is_answered(second, missing)
    play.waits(4.0)
    alpha.answers(late, {"tools": [T]})
    alice.is_notified("tools/list_changed")
    for client in (alice, greeted(play, "bob", down="pipe")):
        client.is_answered(client.asks("tools/list"), shown("alpha__t", "beta__t"))
    play.finish()


@SERVER_ERAS
@pytest.mark.parametrize("uris", [[], ["alpha+memo:x"]], ids=["lists", "lists and a resource"])
def test_f5_of_a_server_that_comes_and_goes_only_a_list_that_differs_is_told(server_era: Era, uris: list[str]) -> None:
    """Each time that the server is back its list is read again. Several notifications of it are one change."""
    play, alice, (alpha,) = meeting("alpha", era=Era.STATELESS, server_era=server_era)
    wanted = {"toolsListChanged": True} | ({"resourceSubscriptions": uris} if uris else {})
    listen = alice.asks(LISTEN, {"notifications": wanted})
    tools = {"alpha": [T]}
    serve(play, tools)
    alice.is_granted(listen, wanted)
    listing = alice.asks("tools/list")
    serve(play, tools)
    alice.is_answered(listing, shown("alpha__t"))
    for name in ("t", "t", "new", "new"):
        differs, tools["alpha"] = tools["alpha"][0]["name"] != name, [T | {"name": name}]
        alpha.dies()
        asked = []
        for _ in range(5):
            received = [request.method for request in serve(play, tools)["alpha"]]
            play.unexpected = [each for each in play.unexpected if each.what[0] != "notifications/resources/updated"]
            if "tools/list" in received and differs:
                alice.is_told(listen, "tools/list_changed", {})
            asked += received
            play.waits(1.0)
        assert asked.count("tools/list") == 1
    tools["alpha"] = [T]
    for _ in range(3):
        if server_era is Era.STATELESS:
            alpha.tells(alpha.listen, "tools/list_changed")
        else:
            alpha.notifies("tools/list_changed")
    play.waits(0.3)
    serve(play, tools)
    alice.is_told(listen, "tools/list_changed", {})
    play.finish()


def test_f6_a_server_whose_list_has_no_end_is_left_out_or_cut() -> None:
    """Pages, entries and bytes of a list are bounded (`test_lists`), and so are the elements of one page."""
    play, alice, (alpha, beta) = meeting(down="pipe")
    tools = alice.asks("tools/list")
    started(alpha, beta)
    beta.connects()
    beta.is_greeted(able=CAN)
    beta.answers(beta.is_asked("tools/list"), {"tools": [T]})
    alpha.connects()
    alpha.is_greeted(able=CAN)
    reading = alpha.is_asked("tools/list")
    for _ in range(PAGES_MAX - 1):
        alpha.answers(reading, {"tools": [T], "nextCursor": "again"})
        reading = alpha.is_asked("tools/list", {"cursor": "again"})
    alpha.answers(reading, {"tools": [T], "nextCursor": "again"})
    alice.is_answered(tools, shown("alpha__t", "beta__t"))
    prompts = alice.asks("prompts/list")
    reading, other = alpha.is_asked("prompts/list"), beta.is_asked("prompts/list")
    beta.answers(other, {"prompts": [{"name": "p"}]})
    alpha.answers(reading, {"prompts": [1] * 100_000})
    why = "its list cannot be read: got an array of more than 20000 elements, expected that many at most"
    only = {"prompts": [Containing({"name": "beta__p"})], "_meta": {"dev.isthmus/servers": {"alpha": why}}}
    alice.is_answered(prompts, only)
    play.finish()


LEFT_OUT: Final = None
SHAPES: Final[dict[str, tuple[str, Any, Any]]] = {
    "a schema that is none": ("tools/list", {"inputSchema": True}, LEFT_OUT),
    "a schema of texts": ("tools/list", {"inputSchema": {"type": "string"}}, LEFT_OUT),
    "a property that is a text": ("tools/list", {"inputSchema": OPEN | {"properties": {"x": "string"}}}, LEFT_OUT),
    "a required member that is no text": ("tools/list", {"inputSchema": OPEN | {"required": [1]}}, LEFT_OUT),
    "a description of numbers": ("tools/list", {"description": 1}, LEFT_OUT),
    "a hint that is a text": ("tools/list", {"annotations": {"readOnlyHint": "yes"}}, LEFT_OUT),
    "an unknown support of tasks": ("tools/list", {"execution": {"taskSupport": "maybe"}}, LEFT_OUT),
    "arguments by name": ("prompts/list", {"arguments": {"who": {}}}, LEFT_OUT),
    "an argument without a name": ("prompts/list", {"arguments": [{}]}, LEFT_OUT),
    "a size in words": ("resources/list", {"size": "large"}, LEFT_OUT),
    "an unknown audience": ("resources/templates/list", {"annotations": {"audience": ["all"]}}, LEFT_OUT),
    "a property of any kind": (
        "tools/list",
        {"inputSchema": OPEN | {"properties": {"x": True, "y": False, "z": OPEN}}},
        {"inputSchema": OPEN | {"properties": {"x": {}, "y": {"not": {}}, "z": OPEN}}},
    ),
    "members that are null": (
        "tools/list",
        {"title": None, "inputSchema": OPEN | {"required": None, "properties": None, "default": None}},
        {"inputSchema": OPEN | {"default": None}},
    ),
    "hints that are null": (
        "tools/list",
        {"inputSchema": OPEN, "annotations": {"title": None, "readOnlyHint": True}},
        {"inputSchema": OPEN, "annotations": {"readOnlyHint": True}},
    ),
    "an argument whose title is null": (
        "prompts/list",
        {"arguments": [{"name": "a", "title": None}]},
        {"arguments": [{"name": "a"}]},
    ),
    "a schema without its type": ("tools/list", {"inputSchema": {"a": 1}}, {"inputSchema": {"a": 1} | OPEN}),
    "a description that is null": ("prompts/list", {"description": None}, {}),
    "a media type that is null": ("resources/list", {"mimeType": None}, {}),
    "what nobody knows": ("tools/list", {"inputSchema": OPEN, "x": [True]}, {"inputSchema": OPEN, "x": [True]}),
}
"""Members of an entry: the list, those that the server sends, and those that clients see."""
ENTRIES: Final = {
    "tools/list": ("tools", {"name": "t"}, {"name": "alpha__t"}),
    "prompts/list": ("prompts", {"name": "t"}, {"name": "alpha__t"}),
    "resources/list": ("resources", {"uri": "memo:t", "name": "t"}, {"uri": "alpha+memo:t", "name": "t"}),
    "resources/templates/list": ("resourceTemplates", {"uriTemplate": "memo:{x}", "name": "t"}, {}),
}


@ERAS
@each_row("case", SHAPES)
def test_f7_one_entry_that_clients_refuse_costs_no_other(era: Era, case: str) -> None:
    """The entry is mended where that changes nothing of what it says, and left out where not."""
    method, said, seen = SHAPES[case]
    array, raw, exposed = ENTRIES[method]
    play, alice, (alpha,) = meeting("alpha", down="pipe" if era is Era.HANDSHAKE else "http", era=era)
    listing = alice.asks(method)
    alpha.starts(able=CAN)
    alpha.answers(alpha.is_asked(method), {array: [raw | said, *([T | {"name": "u"}] if array == "tools" else [])]})
    (came,) = play.unexpected
    alice.is_answered(listing, ...)
    rest = [entry for entry in came.what["result"][array] if entry.get("name") != "alpha__u"]
    assert rest == ([] if seen is LEFT_OUT else [exposed | {"_meta": {"dev.isthmus/server": "alpha"}} | seen])
    assert (len(rest) < len(came.what["result"][array])) is (array == "tools")


@ERAS
def test_f7_a_schema_of_output_is_an_object_of_objects_for_clients_with_sessions_only(era: Era) -> None:
    """Source: 2026-07-28 schema, Tool: "outputSchema" has no fixed type there."""
    play, alice, _ = meeting("alpha", era=era)
    schemas = {"a": {"type": "array"}, "b": {}, "c": True}
    tools = [{"name": name, "inputSchema": OPEN, "outputSchema": schema} for name, schema in schemas.items()]
    listing = alice.asks("tools/list")
    serve(play, {"alpha": tools})
    (came,) = play.unexpected
    alice.is_answered(listing, ...)
    found = {tool["name"]: tool["outputSchema"] for tool in came.what["result"]["tools"]}
    legacy = {"alpha__b": OPEN}
    assert found == ({"alpha__a": {"type": "array"}, "alpha__b": {}} if era is Era.STATELESS else legacy)


def test_f7_a_tool_with_a_wrong_header_is_left_out_alone() -> None:
    _, alice, (alpha,) = meeting("alpha", era=Era.STATELESS, server_era=Era.STATELESS, kind=Kind.HTTP)
    wrong = OPEN | {"properties": {"x": {"type": "string", "x-mcp-header": "a b"}}}
    listing = alice.asks("tools/list")
    alpha.answers(alpha.is_asked("server/discover"), DISCOVERY)
    alpha.answers(alpha.is_asked("tools/list"), {"tools": [T, T | {"name": "u", "inputSchema": wrong}], **LISTED})
    alice.is_answered(listing, shown("alpha__t"))


@ERAS
def test_f10_a_server_that_wants_credentials_is_missing_alone(era: Era) -> None:
    """The reason begins with the outcome, and the calls of the others go on."""
    play, alice, (alpha, beta) = meeting(era=era, kind=Kind.HTTP, logs_in_callers=True)
    listing = alice.asks("tools/list")
    greeting, other = alpha.is_asked("initialize"), beta.is_asked("initialize")
    page = "alpha wants you to log in: open https://gateway.example/connect/alpha"
    alpha.breaks_off(greeting, Cause(End.REFUSED, page, status=401, login=b'{"url":"https://gateway.example/"}'))
    beta.is_greeted(able=CAN, greeting=other)
    beta.answers(beta.is_asked("tools/list"), {"tools": [T]})
    (came,) = play.unexpected
    alice.is_answered(listing, shown("beta__t"))
    assert came.what["result"]["_meta"]["dev.isthmus/servers"] == {"alpha": f"auth_required: {page}"}
    call = alice.asks("tools/call", {"name": "beta__t"})
    beta.answers(beta.is_asked("tools/call"), NO_CONTENT)
    alice.is_answered(call, ...)
    listing = alice.asks("prompts/list")
    greeting, reading = alpha.is_asked("initialize"), beta.is_asked("prompts/list")
    alpha.refuses(greeting, 401)
    beta.answers(reading, {"prompts": []})
    (came,) = play.unexpected
    alice.is_answered(listing, ...)
    (why,) = came.what["result"]["_meta"]["dev.isthmus/servers"].values()
    assert why.startswith("auth_required: the server alpha wants credentials")
