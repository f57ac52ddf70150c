"""Tables that the oracle's rules rest on, row by row."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from each_row import each_row
from isthmus.core.oracle import Role, Transport, Verb
from oracle_case import acknowledge, breaks, detailed
from wire_scenes import CLIENT, SERVER, K, Wire

V4, V5 = "2025-11-25", "2026-07-28"


# --- Codes ------------------------------------------------------------------------------------------------------------


def test_codes_of_errors() -> None:
    """Reserved codes have a meaning or are not used, and two are withdrawn. Source: 2026-07-28 basic, "Error Codes"."""
    expected = {code: ["error-code-reserved"] for code in range(-32099, -32019)}
    expected |= {-32020: [], -32021: [], -32022: [], -32002: ["error-code-withdrawn"], -32042: ["error-code-withdrawn"]}
    for code in (*range(-32103, -31998), -32603, -32602, -32700, -1, 0, 1):
        wire = Wire(V5)
        wire.answer(wire.call(), error={"code": code, "message": ""})
        assert breaks(wire) == expected.get(code, []), code


@pytest.mark.parametrize("code", [-32002, -32042, -32050])
def test_a_handshake_has_other_codes(code: int) -> None:
    wire = Wire(V4)
    wire.handshake()
    wire.answer(wire.call(), error={"code": code, "message": ""})
    assert breaks(wire) == []


# --- Log messages -----------------------------------------------------------------------------------------------------

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


@pytest.mark.parametrize("least", LEVELS)
def test_a_log_message_has_at_least_the_requested_level(least: str) -> None:
    for level in LEVELS:
        wire = Wire(V5)
        wire.call(meta=wire.meta(**{K + "logLevel": least}))
        wire.call(meta=wire.meta(**{K + "logLevel": "emergency"}))  # the lowest counts
        wire.tell("notifications/message", level=level, data="x")
        is_wanted = LEVELS.index(level) >= LEVELS.index(least)
        assert breaks(wire) == ([] if is_wanted else ["log-unasked"]), level


@pytest.mark.parametrize("level", [..., "loud", 7, None], ids=str)
def test_a_request_without_a_level_gets_no_log_messages(level: Any) -> None:
    wire = Wire(V5)
    wire.call(meta=wire.meta(**{K + "logLevel": level}))
    wire.tell("notifications/message", level="emergency", data="x")
    assert breaks(wire) == ["log-unasked"]


# --- Subscriptions ----------------------------------------------------------------------------------------------------

# A filter, and the notification that it covers.
REQUESTED: list[tuple[dict[str, Any], str, dict[str, Any]]] = [
    ({"toolsListChanged": True}, "notifications/tools/list_changed", {}),
    ({"promptsListChanged": True}, "notifications/prompts/list_changed", {}),
    ({"resourcesListChanged": True}, "notifications/resources/list_changed", {}),
    ({"resourceSubscriptions": ["x:a", 1]}, "notifications/resources/updated", {"uri": "x:a"}),
    ({"resourceSubscriptions": ["x:b", "x:a"]}, "notifications/resources/updated", {"uri": "x:a/b"}),
    ({"taskIds": ["a"]}, "notifications/tasks", detailed("a")),
]
NOT_REQUESTED: list[tuple[dict[str, Any], str, dict[str, Any]]] = [
    ({"toolsListChanged": False}, "notifications/tools/list_changed", {}),
    ({"resourceSubscriptions": ["x:a"]}, "notifications/resources/updated", {"uri": "x:"}),
    ({"resourceSubscriptions": ["x:a"]}, "notifications/resources/updated", {"uri": 7}),
    ({"resourceSubscriptions": "x:a"}, "notifications/resources/updated", {"uri": "x:a"}),
    ({"taskIds": "a"}, "notifications/tasks", detailed("a")),
    ({"taskIds": ["b"]}, "notifications/tasks", detailed("a")),
    ({"resourceSubscriptions": ["a"]}, "notifications/tasks", detailed("a")),
]
NOT_REQUESTED += [
    (requested, method, params) for requested, own, _ in REQUESTED for _, method, params in REQUESTED if own != method
]


def subscribed(requested: dict[str, Any], honoured: dict[str, Any]) -> tuple[Wire, Any]:
    wire = Wire(V5)
    id = wire.request("subscriptions/listen", notifications=requested)
    acknowledge(wire, id, honoured)
    return wire, id


@pytest.mark.parametrize(("requested", "method", "params"), REQUESTED)
def test_a_requested_and_acknowledged_change_is_allowed(
    requested: dict[str, Any], method: str, params: dict[str, Any]
) -> None:
    wire, id = subscribed(requested, requested)
    before = len(wire.seen)
    wire.tell(method, **params, _meta={K + "subscriptionId": id})
    assert breaks(wire, before) == []
    wire, id = subscribed(requested, {})
    wire.tell(method, **params, _meta={K + "subscriptionId": id})
    assert breaks(wire, before) == ["listen-unrequested"]
    wire.tell(method, **params)
    assert breaks(wire, before + 1) == ["subscription-id"]


@each_row(("requested", "method", "params"), NOT_REQUESTED)
def test_a_change_that_was_not_requested_breaks_a_rule(
    requested: dict[str, Any], method: str, params: dict[str, Any]
) -> None:
    wire, id = subscribed(requested, {})
    before = len(wire.seen)
    wire.tell(method, **params, _meta={K + "subscriptionId": id})
    assert "listen-unrequested" in breaks(wire, before)


@pytest.mark.parametrize(
    ("requested", "honoured", "is_right"),
    [
        ({"toolsListChanged": True}, {"toolsListChanged": True}, True),
        ({"toolsListChanged": True}, {"toolsListChanged": False}, True),
        ({"toolsListChanged": True}, {}, True),
        ({"toolsListChanged": False}, {"toolsListChanged": True}, False),
        ({}, {"toolsListChanged": True}, False),
        ({}, {"toolsListChanged": False, "taskIds": []}, True),
        ({"taskIds": ["a", "b"]}, {"taskIds": ["b"]}, True),
        ({"taskIds": ["a"]}, {"taskIds": ["a", "b"]}, False),
        ({"taskIds": "ab"}, {"taskIds": ["a"]}, False),
        ({}, {"taskIds": ["a"]}, False),
    ],
    ids=str,
)
def test_only_requested_changes_are_acknowledged(
    requested: dict[str, Any], honoured: dict[str, Any], is_right: bool
) -> None:
    wire, _ = subscribed(requested, honoured)
    assert breaks(wire) == ([] if is_right else ["listen-acknowledged"])


# --- Capabilities -----------------------------------------------------------------------------------------------------

# A message, its sender, its params, and the capability that its receiver declares, or for notifications its sender.
NEEDS: list[tuple[str, Role, dict[str, Any], dict[str, Any]]] = [
    ("tools/list", CLIENT, {}, {"tools": {}}),
    ("tools/call", CLIENT, {"name": "t"}, {"tools": {}}),
    ("prompts/list", CLIENT, {}, {"prompts": {}}),
    ("prompts/get", CLIENT, {"name": "p"}, {"prompts": {}}),
    ("resources/list", CLIENT, {}, {"resources": {}}),
    ("resources/templates/list", CLIENT, {}, {"resources": {}}),
    ("resources/read", CLIENT, {"uri": "x:"}, {"resources": {}}),
    ("resources/subscribe", CLIENT, {"uri": "x:"}, {"resources": {"subscribe": True}}),
    ("resources/unsubscribe", CLIENT, {"uri": "x:"}, {"resources": {"subscribe": True}}),
    ("logging/setLevel", CLIENT, {"level": "info"}, {"logging": {}}),
    ("completion/complete", CLIENT, {}, {"completions": {}}),
    ("tasks/get", CLIENT, {"taskId": "a"}, {"tasks": {}}),
    ("tasks/result", CLIENT, {"taskId": "a"}, {"tasks": {}}),
    ("tasks/list", CLIENT, {}, {"tasks": {"list": {}}}),
    ("tasks/cancel", CLIENT, {"taskId": "a"}, {"tasks": {"cancel": {}}}),
    ("sampling/createMessage", SERVER, {}, {"sampling": {}}),
    ("roots/list", SERVER, {}, {"roots": {}}),
    ("elicitation/create", SERVER, {}, {"elicitation": {}}),
    ("notifications/message", SERVER, {"level": "info", "data": ""}, {"logging": {}}),
    ("notifications/tools/list_changed", SERVER, {}, {"tools": {"listChanged": True}}),
    ("notifications/prompts/list_changed", SERVER, {}, {"prompts": {"listChanged": True}}),
    ("notifications/resources/list_changed", SERVER, {}, {"resources": {"listChanged": True}}),
    ("notifications/resources/updated", SERVER, {"uri": "x:"}, {"resources": {"subscribe": True}}),
    ("notifications/roots/list_changed", CLIENT, {}, {"roots": {"listChanged": True}}),
]


def broken_rules(method: str, sender: Role, params: dict[str, Any], declared: dict[str, Any]) -> list[str]:
    """The rules that the message breaks, if its capability's owner has declared just that."""
    wire = Wire(V4)
    is_notification = method.startswith("notifications/")
    owner = sender if is_notification else sender.other
    wire.handshake(**{"client_can" if owner is CLIENT else "server_can": declared})
    before = len(wire.seen)
    if sender is SERVER:
        wire.tell(method, id=None if is_notification else 1, **params)
    elif is_notification:
        wire.notify(method, **params)
    else:
        wire.request(method, **params)
    return breaks(wire, before)


@pytest.mark.parametrize(("method", "sender", "params", "needed"), NEEDS, ids=lambda value: str(value)[:40])
def test_a_message_needs_its_capability(
    method: str, sender: Role, params: dict[str, Any], needed: dict[str, Any]
) -> None:
    """The capability suffices. An absent one does not, nor does a false or a partial one."""
    assert broken_rules(method, sender, params, needed) == []
    assert broken_rules(method, sender, params, {}) == ["capability-undeclared"]
    ((name, inner),) = needed.items()
    for none in (None, False):
        assert broken_rules(method, sender, params, {name: none}) == ["capability-undeclared"]
    for part in inner:
        for half in ({}, {part: False}, {part: None}, True):
            assert broken_rules(method, sender, params, {name: half}) == ["capability-undeclared"]


def test_capabilities_are_judged_on_every_transport() -> None:
    """Transports differ only in the channels of messages."""
    wire = Wire(V4, Transport.HTTP)
    wire.handshake(server_can={})
    before = len(wire.seen)
    wire.call()
    assert breaks(wire, before) == ["capability-undeclared"]


# --- Headers ----------------------------------------------------------------------------------------------------------

SCHEMA = {
    "type": "object",
    "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "to": {"type": "object", "properties": {"count": {"type": "integer", "x-mcp-header": "Count"}}},
        "odd": {"type": "string", "x-mcp-header": 7},
        "list": {"items": {"properties": {"no": {"x-mcp-header": "No"}}}},
    },
}
USUAL = (("Mcp-Method", "tools/call"), ("Mcp-Name", "t"))


def coded(text: str) -> str:
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


def mirrored(arguments: Any, *lines: tuple[str, str], usual: tuple[tuple[str, str], ...] = USUAL) -> list[str]:
    """The rules that a call with these headers breaks, once its tool was listed."""
    wire = Wire(V5, Transport.HTTP)
    tools = [{"name": "t", "inputSchema": SCHEMA}, {"name": 7, "inputSchema": SCHEMA}, "odd", {"name": "u"}]
    wire.reply(wire.request("tools/list"), tools=tools)
    before = len(wire.seen)
    wire.call(arguments=arguments, head={"mirrored": (*usual, *lines)})
    return breaks(wire, before)


@each_row(
    ("arguments", "lines", "is_right"),
    [
        ({"region": "eu"}, [("Mcp-Param-Region", "eu")], True),
        ({"region": "eu"}, [("mcp-param-region", " eu ")], True),
        ({"region": "eu"}, [("Mcp-Param-Region", coded("eu"))], True),
        ({"region": "\u00fc"}, [("Mcp-Param-Region", coded("\u00fc"))], True),
        ({"region": "eu"}, [("Mcp-Param-Region", "EU")], False),
        ({"region": "eu"}, [("Mcp-Param-Region", "=?base64?*?=")], False),
        ({"region": "eu"}, [("Mcp-Param-Region", "=?base64?/w==?=")], False),
        ({"region": "eu"}, [], False),
        ({"region": "eu"}, [("Mcp-Param-Region", "eu"), ("Mcp-Param-Region", "eu")], False),
        ({"region": None}, [], True),
        ({}, [], True),
        ([], [], True),
        ({}, [("Mcp-Param-Region", "eu")], False),
        ({"region": "true"}, [("Mcp-Param-Region", "true")], True),
        ({"region": True}, [("Mcp-Param-Region", "true")], True),
        ({"region": True}, [("Mcp-Param-Region", "1")], False),
        ({"region": False}, [("Mcp-Param-Region", "false")], True),
        ({"region": False}, [("Mcp-Param-Region", "true")], False),
        ({"to": {"count": 3}}, [("Mcp-Param-Count", "3")], True),
        ({"to": {"count": 3}}, [("Mcp-Param-Count", "3.0")], True),
        ({"to": {"count": 3}}, [("Mcp-Param-Count", "4")], False),
        ({"to": {"count": 3}}, [("Mcp-Param-Count", "three")], False),
        ({"to": {"count": 3}}, [], False),
        ({"to": 3}, [], True),
        ({"to": 3}, [("Mcp-Param-Count", "3")], False),
        ({"odd": "x", "list": [{"no": 1}]}, [], True),
        ({"odd": "x"}, [("Mcp-Param-Odd", "y"), ("Mcp-Param-No", "1")], True),
    ],
)
def test_a_header_equals_its_argument(arguments: Any, lines: list[tuple[str, str]], is_right: bool) -> None:
    """An argument is reached through `properties` alone, occurs once, and is compared by value. Source: 2026-07-28
    basic/transports/streamable-http."""
    assert mirrored(arguments, *lines) == ([] if is_right else ["mirrored-argument"])


@pytest.mark.parametrize(
    ("usual", "broken"),
    [
        (USUAL, []),
        ((("mcp-method", "tools/call"), ("MCP-NAME", coded("t"))), []),
        (USUAL[:1], ["mirrored-name"]),
        (USUAL[1:], ["mirrored-method"]),
        ((), ["mirrored-method", "mirrored-name"]),
        ((("Mcp-Method", coded("tools/call")), USUAL[1]), ["mirrored-method"]),
        ((("Mcp-Method", "tools/list"), USUAL[1]), ["mirrored-method"]),
        ((USUAL[0], ("Mcp-Name", "u")), ["mirrored-name"]),
        ((*USUAL, USUAL[1]), ["mirrored-name"]),
    ],
)
def test_headers_name_the_method_and_the_tool(usual: tuple[tuple[str, str], ...], broken: list[str]) -> None:
    assert mirrored({}, usual=usual) == broken


@pytest.mark.parametrize(
    ("verb", "accept", "is_right"),
    [
        (Verb.POST, "application/json, text/event-stream", True),
        (Verb.POST, "text/event-stream;q=0.5,application/json", True),
        (Verb.POST, "application/json", False),
        (Verb.POST, "text/event-stream", False),
        (Verb.POST, "", False),
        (Verb.POST, "*/*", False),
        (Verb.POST, None, True),
        (Verb.GET, "text/event-stream", True),
        (Verb.GET, "application/json", False),
        (Verb.GET, None, True),
        (Verb.DELETE, "", True),
        (Verb.DELETE, None, True),
    ],
)
def test_a_client_accepts_the_types_of_its_responses(verb: Verb, accept: str | None, is_right: bool) -> None:
    """An Accept header that was not seen (None) is not judged."""
    wire = Wire(V4, Transport.HTTP)
    wire.handshake()
    before = len(wire.seen)
    if verb is Verb.POST:
        wire.call(head={"accept": accept})
    else:
        wire.open(verb, accept=accept)
    assert breaks(wire, before) == ([] if is_right else ["accept"])
