"""The wires in a trace of the engine and in logs of pipes: how observations are grouped, and what each one holds."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any

import msgspec
import pytest
from checked_engine import CheckedEngine
from driving import GONE, connect, driver, new_client, request
from isthmus.core.base.effects import (
    Close,
    Delete,
    Dial,
    Effect,
    Join,
    Listen,
    Note,
    Pass,
    Post,
    Send,
    SendEvents,
    Spawn,
)
from isthmus.core.base.events import (
    Cause,
    Connected,
    DeleteOpening,
    End,
    EventPipeOpening,
    GetOpening,
    MessageOpening,
    PipeOpening,
    PostOpening,
)
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.plan import Kind, Plan, ServerPlan
from isthmus.core.oracle import Ended, Head, Opened, Oracle, Role, Said, Transport, Verb
from isthmus.core.oracle.wires import Wire, Wires, _is_stateless, _method, read_log, read_trace
from isthmus.core.trace import Recorder
from stateless_driving import bridge, modern, start_stateless_server
from wire_scenes import K

INFO = {"name": "n", "version": "1"}
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": INFO}
WELCOME = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": INFO}
META = {K + "protocolVersion": "2026-07-28", K + "clientCapabilities": {}, K + "clientInfo": INFO}


def encoded(**members: object) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **members}).encode()


class Recorded:
    """Records the observations of each wire and the broken rules."""

    def __init__(self, *, knows_origin: bool = False) -> None:
        self.by_wire: dict[Wire, list[object]] = {}
        self.rules: list[tuple[str, str]] = []
        self.wires = Wires(self._record, (lambda channel: "same") if knows_origin else None)

    def _record(self, wire: Wire, observation: object, found: list[object]) -> None:
        self.by_wire.setdefault(wire, []).append(observation)
        self.rules += [(each.who.value, each.rule) for each in found]  # type: ignore[attr-defined]

    def order(self, *effects: Effect) -> None:
        self.wires.receive_effects(effects)

    def post(self, channel: int, message: bytes, session: str | None = None, revision: str | None = None) -> None:
        opening = PostOpening("s", session=session, revision=revision)
        self.wires.receive_open(channel, opening)
        self.wires.receive_message(channel, message)


def send(channel: int, message: bytes, **more: object) -> Send:
    return Send(ChannelId(channel), message, **more)  # type: ignore[arg-type]


def dial(channel: int, target: object) -> Dial:
    return Dial(ChannelId(channel), target)  # type: ignore[arg-type]


def test_a_session_over_http_is_one_wire() -> None:
    recorded = Recorded()
    recorded.post(1, encoded(id=1, method="initialize", params=HELLO))
    recorded.order(send(1, encoded(id=1, result=WELCOME), session="S", is_last=True))
    recorded.post(2, encoded(method="notifications/initialized"), "S", "2025-11-25")
    recorded.order(Close(ChannelId(2), status=202))
    recorded.wires.receive_open(3, GetOpening("s", session="S", revision="2025-11-25"))
    recorded.order(send(3, b"", event_id="e1"), Note("info", "this is on no wire"))
    recorded.wires.receive_close(3, GONE)
    recorded.wires.receive_open(4, GetOpening("s", session="T"))
    (wire, other) = recorded.by_wire
    assert (wire.proxy, wire.server, wire.transport) == (Role.SERVER, "s", Transport.HTTP)
    assert [o.channel for o in recorded.by_wire[wire] if isinstance(o, Opened)] == [1, 2, 3]  # type: ignore[attr-defined]
    assert recorded.by_wire[wire][-1] == Ended(3, Role.CLIENT)
    assert recorded.by_wire[other] == [Opened(4, Verb.GET, "T")]
    assert recorded.rules == []


def test_several_messages_at_once_are_seen_one_by_one() -> None:
    """Inputs and effects of a trace may hold several messages."""
    opened = msgspec.json.encode({"input": "receive_open", "channel": 1, "opening": PipeOpening("s"), "effects": []})
    steps = [encoded(method="notifications/progress", params={"progressToken": 1, "progress": n}) for n in (1, 2)]
    line = {"input": "receive_messages", "channel": 1, "messages": steps, "effects": []}
    sent = {"input": "receive_sent", "channel": 1, "effects": [SendEvents(ChannelId(1), tuple(steps), ("1-1", "1-2"))]}
    seen = list(read_trace([b'{"input":"begin"}', opened, msgspec.json.encode(line), msgspec.json.encode(sent)]))
    assert [each.message for _, each, _ in seen if isinstance(each, Said)] == 2 * steps
    assert [each.event_id for _, each, _ in seen if isinstance(each, Said)] == [None, None, "1-1", "1-2"]


def test_an_event_stream_of_2024_and_its_posts_are_one_wire() -> None:
    recorded = Recorded()
    recorded.wires.receive_open(1, EventPipeOpening("s", endpoint="/m"))
    recorded.order(send(1, b"/m?sessionId=T", event="endpoint"))
    recorded.wires.receive_open(2, MessageOpening("s", "T"))
    recorded.wires.receive_message(
        2, encoded(id=1, method="initialize", params={**HELLO, "protocolVersion": "2024-11-05"})
    )
    recorded.order(
        Close(ChannelId(2), status=202), send(1, encoded(id=1, result={**WELCOME, "protocolVersion": "2024-11-05"}))
    )
    recorded.wires.receive_open(3, MessageOpening("s", "nobody's"))
    recorded.wires.receive_message(3, b"{}")
    assert len(recorded.by_wire) == 1
    assert recorded.rules == []


def test_each_pipe_to_a_server_is_a_wire_and_the_proxy_its_client() -> None:
    recorded = Recorded()
    recorded.order(dial(1, Join("s")), send(1, encoded(id=1, method="tools/list")))
    recorded.wires.receive_open(1, Connected())
    recorded.wires.receive_message(1, encoded(id=2, result={}))
    recorded.wires.receive_close(1, Cause(End.BROKEN))
    recorded.wires.receive_message(1, encoded(id=3, result={}))
    (wire,) = recorded.by_wire
    assert wire.proxy is Role.CLIENT
    assert recorded.rules == [("client", "initialize-first"), ("server", "response-unknown")]
    assert recorded.by_wire[wire][-1] == Ended(0, None)


def test_a_session_with_a_server_is_a_wire() -> None:
    """The wire has the handshake, the posts of the session, its stream, its end, and a refusal with a body."""
    recorded = Recorded()
    recorded.order(dial(1, Post("s", encoded(id=1, method="initialize", params=HELLO))))
    recorded.wires.receive_open(1, Connected(session="S"))
    recorded.wires.receive_message(1, encoded(id=1, result=WELCOME))
    recorded.wires.receive_close(1, Cause(End.DONE))
    recorded.order(dial(2, Post("s", encoded(method="notifications/initialized"), "S", "2025-11-25")))
    recorded.wires.receive_close(2, Cause(End.DONE))
    recorded.order(
        dial(3, Listen("s", "S", "2025-11-25")), dial(4, Post("s", encoded(id=2, method="ping"), "S", "2025-11-25"))
    )
    refusal = encoded(id=2, error={"code": -32000, "message": "no"})
    recorded.wires.receive_close(4, Cause(End.REFUSED, status=404, body=refusal))
    recorded.order(Close(ChannelId(3)), dial(5, Delete("s", "S", "2025-11-25")))
    (wire,) = recorded.by_wire
    assert recorded.rules == [("client", "session-id-lost")]
    assert recorded.by_wire[wire][-2] == Ended(3, Role.CLIENT)


def test_a_message_in_parts_is_seen_once_it_is_whole() -> None:
    """A server's response and one passed on to a client are both joined; a second message on the channel begins
    anew."""
    recorded = Recorded()
    recorded.order(dial(1, Post("s", encoded(id=1, method="initialize", params=HELLO))))
    recorded.wires.receive_open(1, Connected(session="S"))
    whole = encoded(id=1, result=WELCOME)
    recorded.wires.receive_part(1, (whole[:5], whole[5:9]), len(whole))
    (wire,) = recorded.by_wire
    before = len(recorded.by_wire[wire])
    recorded.wires.receive_part(1, (whole[9:20],), 0)
    assert len(recorded.by_wire[wire]) == before
    recorded.wires.receive_part(1, (whole[20:],), 0)
    assert [o.message for o in recorded.by_wire[wire][before:] if isinstance(o, Said)] == [whole]
    recorded.wires.receive_part(1, (b"",), 0)
    assert len(recorded.by_wire[wire]) == before + 1, "it was over"
    recorded.post(7, encoded(id=3, method="initialize", params=HELLO))
    answer = encoded(id=3, result=WELCOME)
    recorded.order(Pass(ChannelId(7), (answer[:4],), len(answer)), Pass(ChannelId(7), (answer[4:],)))
    down = next(wire for wire in recorded.by_wire if wire.proxy is Role.SERVER)
    assert [o.message for o in recorded.by_wire[down] if isinstance(o, Said)][1:] == [answer]


def test_a_client_that_is_refused_before_its_body_came_is_on_no_wire() -> None:
    recorded = Recorded()
    recorded.wires.receive_open(1, PostOpening("s"))
    recorded.order(send(1, b"too large", status=413, is_last=True))
    recorded.wires.receive_open(2, PostOpening("s"))
    recorded.order(Close(ChannelId(2), status=400))
    recorded.wires.receive_open(3, PostOpening("s"))
    recorded.wires.receive_close(3, GONE)
    assert recorded.by_wire == {}


@pytest.mark.parametrize("message", [b"{", b"1", b'{"params":1}', b"[" * 20_000])
def test_a_client_may_post_any_bytes(message: bytes) -> None:
    recorded = Recorded()
    recorded.post(1, message)
    recorded.order(send(1, encoded(error={"code": -32700, "message": ""}), status=400, is_last=True))
    assert {who for who, _ in recorded.rules} == {"client"}


@pytest.mark.parametrize(("knows_origin", "rules"), [(False, []), (True, [("client", "id-reused")])])
def test_ids_of_indistinguishable_sessions_are_not_compared(knows_origin: bool, rules: list[tuple[str, str]]) -> None:
    recorded = Recorded(knows_origin=knows_origin)
    for channel in (1, 2):
        mirrored = (("Mcp-Method", "tools/list"),)
        message = encoded(id=1, method="tools/list", params={"_meta": META})
        recorded.order(dial(channel, Post("s", message, None, "2026-07-28", mirrored=mirrored)))
    assert len(recorded.by_wire) == 1
    assert recorded.rules == rules


NOTICE = encoded(method="notifications/initialized")
ACCUSED = [("server", "accepted-status")]
EARLY = [("server", "stream-ended-early")]


@pytest.mark.parametrize(
    ("message", "status", "rules"),
    [
        (NOTICE, 202, []),
        (NOTICE, 200, ACCUSED),
        (NOTICE, 204, ACCUSED),
        (NOTICE, None, []),
        (encoded(id=2, method="ping"), 200, EARLY),
        (encoded(id=2, method="ping"), 202, [("server", "content-type"), *EARLY]),
        (encoded(id=2, method="ping"), None, EARLY),
    ],
)
def test_the_status_of_a_success_is_judged_if_it_is_known(
    message: bytes, status: int | None, rules: list[tuple[str, str]]
) -> None:
    """A driver that does not tell the status gets no server accused of a wrong one."""
    recorded = Recorded()
    recorded.order(dial(1, Post("s", encoded(id=1, method="initialize", params=HELLO))))
    recorded.wires.receive_open(1, Connected("S", status=200))
    recorded.wires.receive_message(1, encoded(id=1, result=WELCOME))
    recorded.wires.receive_close(1, Cause(End.DONE))
    recorded.order(dial(2, Post("s", message, "S", "2025-11-25")))
    recorded.wires.receive_open(2, Connected(status=status))
    recorded.wires.receive_close(2, Cause(End.DONE))
    assert recorded.rules == rules


def test_a_stateless_post_belongs_to_no_session() -> None:
    recorded = Recorded()
    recorded.post(1, encoded(id=1, method="tools/list", params={"_meta": META}), session="S")
    assert recorded.rules == [("client", "version-header-missing"), ("client", "mirrored-method")]


# --- Traces and logs --------------------------------------------------------------------------------------------------


def test_a_trace_is_read_as_wires() -> None:
    lines: list[bytes] = []
    plan = Plan(servers=(ServerPlan(id="s", kind=Kind.PIPE),))
    engine = Recorder(plan, entropy=Random(1).randbytes, unix_at_zero=0.0, write=lines.append)
    client = engine.new_channel()
    engine.receive_open(client, PipeOpening("s"), 0.0)
    (order,) = engine.receive_message(client, encoded(id=1, method="initialize", params=HELLO), 1.0)
    assert isinstance(order, Dial)
    engine.receive_open(order.channel, Connected(), 2.0)
    engine.receive_message(order.channel, encoded(id=1, result=WELCOME), 3.0)
    engine.receive_message(order.channel, encoded(id="q", method="tools/list"), 3.0)
    engine.receive_close(client, GONE, 4.0)
    seen = list(read_trace(lines))
    assert {wire.proxy for wire, _, _ in seen} == {Role.CLIENT, Role.SERVER}
    broken = [(wire.proxy, violation.who, violation.rule) for wire, _, found in seen for violation in found]
    assert broken == [(Role.CLIENT, Role.SERVER, "method-direction")]


def test_a_trace_has_messages_whole_in_pieces_and_in_parts() -> None:
    """Each form is seen as one message; one in parts is seen when the last has come."""
    whole = encoded(id=1, result=WELCOME)
    hello = Post("s", encoded(id=1, method="initialize", params=HELLO))
    inputs: list[dict[str, object]] = [
        {"input": "receive_sent", "channel": 9, "effects": [dial(channel, hello) for channel in (1, 2, 3)]},
        {"input": "receive_message", "channel": 1, "message": whole},
        {"input": "receive_pieces", "channel": 2, "pieces": (whole[:7], whole[7:])},
        {"input": "receive_part", "channel": 3, "pieces": (whole[:7], whole[7:9]), "size_bytes": len(whole)},
        {"input": "receive_part", "channel": 3, "pieces": (whole[9:],), "size_bytes": 0},
    ]
    lines = [msgspec.json.encode({"effects": [], **each}) for each in inputs]
    servers = [each for _, each, _ in read_trace(lines) if isinstance(each, Said) and each.sender is Role.SERVER]
    assert [(each.channel, each.message) for each in servers] == [(1, whole), (2, whole), (3, whole)]
    assert not [each for _, each, _ in read_trace(lines[:-1]) if isinstance(each, Said) and each.channel == 3][1:]


@pytest.mark.parametrize("line", [b"", b"{}", b"\xff", b'{"input":"x","effects":[{"type":"Send"}]}'])
def test_a_malformed_trace_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match="line 2 is no line of a trace"):
        list(read_trace([b'{"input":"begin"}', line]))


def test_a_log_of_a_pipe_is_read() -> None:
    """A message stands there as an object, and a line that was no JSON as a text."""
    lines = [b'{"from":"client","message":{"jsonrpc":"2.0"},"at":1.5}', b'{"from":"server","message":"a \\u00fc"}']
    assert list(read_log(lines)) == [
        Said(0, Role.CLIENT, b'{"jsonrpc":"2.0"}', at=1.5),
        Said(0, Role.SERVER, "a ü".encode()),
    ]
    oracle = Oracle(None, Transport.PIPE)
    rules = [violation.rule for each in read_log(lines) for violation in oracle.receive(each)]
    assert rules == ["not-jsonrpc", "not-json"]


@pytest.mark.parametrize("line", [b"", b'{"from":"nobody","message":{}}', b'{"from":"client"}', b"\xff"])
def test_a_malformed_log_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match="line 1 is no line of a log"):
        list(read_log([line]))


# --- The engine -------------------------------------------------------------------------------------------------------


def test_the_engines_own_faults_are_reported() -> None:
    """The tests of the engine fail if it breaks a rule; here its messages are changed on their way."""
    world = driver()
    assert isinstance(world.engine, CheckedEngine)
    client = new_client(world, "pipe", "pipe")
    assert client.pipe is not None
    client.initialize(json.dumps(HELLO))
    world.engine.wires.receive_effects([send(client.pipe, encoded(id=0, result=WELCOME))])
    with pytest.raises(AssertionError, match="response-twice"):
        world.engine._checked([send(client.pipe, encoded(id=0, result=WELCOME))])


def test_the_proxy_may_pass_on_a_peers_fault() -> None:
    """The servers of this test leave out required members."""
    world = driver()
    client = connect(world, "pipe", "pipe")
    assert client.pipe is not None
    assert isinstance(world.engine, CheckedEngine)
    assert "initialize-result" in world.engine.blame.by_peers


def test_both_eras_may_meet_on_one_pipe() -> None:
    world = bridge(ServerPlan(id="s", kind=Kind.PIPE))
    client = modern(world, "s", "pipe")
    assert client.pipe is not None
    channel = client.request("server/discover")
    start_stateless_server(world)
    world.send(client.pipe, request('"0"', "initialize", json.dumps(HELLO)))
    assert client.answered(channel)["result"]["supportedVersions"] == ["2026-07-28"]


@pytest.mark.parametrize("end", list(End))
@pytest.mark.parametrize("body", [b"", b'{"jsonrpc":"2.0","id":2,"error":{"code":-32000,"message":"no"}}'])
def test_the_end_of_a_reply_is_seen(end: End, body: bytes) -> None:
    """A refusal has a head, and a body if one came; an orderly end without a message is a 202. The side that ended it
    is known only if the other side saw it, not after a broken connection or a timeout."""
    recorded = Recorded()
    recorded.order(dial(1, Post("s", encoded(id=2, method="ping"), "S", "2025-11-25")))
    recorded.wires.receive_close(1, Cause(end, status=404, body=body))
    (wire,) = recorded.by_wire
    heads = {End.REFUSED: [Head(1, 404)], End.DONE: [Head(1, 202)]}.get(end, [])
    bodies = [Said(1, Role.SERVER, body)] if end is End.REFUSED and body else []
    by = Role.SERVER if end in (End.DONE, End.GONE, End.REFUSED) else None
    assert recorded.by_wire[wire][2:] == [*heads, *bodies, Ended(1, by)]


@pytest.mark.parametrize("end", list(End))
def test_the_end_of_a_client_is_seen(end: End) -> None:
    """The end has no head and no message."""
    recorded = Recorded()
    recorded.wires.receive_open(1, PipeOpening("s"))
    recorded.wires.receive_message(1, encoded(id=1, method="initialize", params=HELLO))
    recorded.wires.receive_close(1, Cause(end, status=404, body=b"{}"))
    (wire,) = recorded.by_wire
    by = Role.CLIENT if end in (End.DONE, End.GONE, End.REFUSED) else None
    assert recorded.by_wire[wire][1:] == [Ended(0, by)]
    recorded.wires.receive_close(1, Cause(end))
    assert len(recorded.by_wire[wire]) == 2, "it was over"


CLIENT, SERVER = Role.CLIENT, Role.SERVER
V4, V5 = "2025-11-25", "2026-07-28"
PING = encoded(id=1, method="ping")
LISTS = encoded(id=1, method="tools/list", params={"_meta": META})


def wire_of(recorded: Recorded, channel: int) -> Wire:
    """The wire on which a channel was opened."""
    found = [
        wire
        for wire, seen in recorded.by_wire.items()
        if any(isinstance(each, Opened) and each.channel == channel for each in seen)
    ]
    (wire,) = found
    return wire


def groups(recorded: Recorded, *channels: int) -> list[int]:
    """Returns equal numbers for channels that are on one wire."""
    wires = [wire_of(recorded, channel) for channel in channels]
    return [wires.index(wire) for wire in wires]


# --- Grouping ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("revision", "message", "is_stateless"),
    [
        (None, PING, False),
        (V4, PING, False),
        (V5, PING, True),
        ("2099-01-01", PING, False),
        (None, LISTS, True),
        (V4, LISTS, True),
        (None, encoded(method="x", params={"_meta": {}}), False),
        (None, encoded(method="x", params={"_meta": 7}), False),
        (None, encoded(method="x", params=7), False),
        (None, b"{", False),
        (None, b"[]", False),
        (None, b"\xff", False),
    ],
)
def test_the_head_or_the_body_makes_a_post_stateless(revision: str | None, message: bytes, is_stateless: bool) -> None:
    assert _is_stateless(revision, message) is is_stateless


@pytest.mark.parametrize(
    ("message", "method"), [(PING, "ping"), (encoded(id=1, result={}), ""), (b"{", ""), (b"7", ""), (b"[]", "")]
)
def test_the_method_of_a_message(message: bytes, method: str) -> None:
    assert _method(message) == method


def test_clients_are_distinguished_by_server_principal_and_session() -> None:
    """Requests with one session's id are one wire. Requests without an id are a wire each, except stateless ones, which
    are one wire for each principal."""
    recorded = Recorded()
    posts = [
        PostOpening("s", session="S"),
        PostOpening("s", session="S"),
        PostOpening("s", session="T"),
        PostOpening("t", session="S"),
        PostOpening("s", "ann", session="S"),
        PostOpening("s"),
        PostOpening("s"),
        PostOpening("s", revision=V5),
        PostOpening("s", revision=V5, session="S"),
        PostOpening("s", "ann", revision=V5),
        PostOpening("t", revision=V5),
    ]
    for channel, opening in enumerate(posts, 1):
        recorded.wires.receive_open(channel, opening)
        recorded.wires.receive_message(channel, LISTS if opening.revision == V5 else PING)
    assert groups(recorded, *range(1, 12)) == [0, 0, 2, 3, 4, 5, 6, 7, 7, 9, 10]
    others = [GetOpening("s", session="S"), DeleteOpening("s", session="S"), GetOpening("s"), DeleteOpening("s")]
    for channel, other in enumerate(others, 21):
        recorded.wires.receive_open(channel, other)
    assert groups(recorded, 1, 21, 22, 23, 24) == [0, 0, 0, 3, 4]
    assert {wire.server for wire in recorded.by_wire} == {"s", "t"}
    assert {wire.proxy for wire in recorded.by_wire} == {SERVER}


def test_sessions_with_servers_are_distinguished_by_server_and_id() -> None:
    recorded = Recorded()
    targets: list[Any] = [
        Post("s", PING, "S", V4),
        Post("s", PING, "S", V4),
        Post("s", PING, "T", V4),
        Post("t", PING, "S", V4),
        Listen("s", "S", V4),
        Delete("s", "S", V4),
        Listen("s", None, V4),
        Post("s", PING, None, V4),
        Post("s", LISTS, None, V5),
        Post("s", LISTS, None, V5),
        Post("t", LISTS, None, V5),
        Post("s", encoded(id=0, method="initialize", params=HELLO)),
        Post("s", encoded(id=0, method="initialize", params=HELLO)),
    ]
    recorded.order(*(dial(channel, target) for channel, target in enumerate(targets, 1)))
    assert groups(recorded, *range(1, 14)) == [0, 0, 2, 3, 0, 0, 6, 6, 8, 8, 10, 11, 12]
    assert {wire.proxy for wire in recorded.by_wire} == {CLIENT}
    mixed = [wire_of(recorded, channel).is_mixed for channel in range(1, 14)]
    assert mixed == [False] * 8 + [True] * 5


def test_a_session_has_the_id_of_its_handshake() -> None:
    """The rule holds on both sides; a refused handshake gives no id."""
    recorded = Recorded()
    recorded.post(1, encoded(id=0, method="initialize", params=HELLO))
    recorded.order(send(1, encoded(id=0, result=WELCOME), session="S", is_last=True))
    recorded.post(2, PING, "S", V4)
    recorded.post(3, encoded(id=0, method="initialize", params=HELLO))
    refused = encoded(id=0, error={"code": -32602, "message": ""})
    recorded.order(send(3, refused, session="T", status=400, is_last=True))
    recorded.post(4, PING, "T", V4)
    assert groups(recorded, 1, 2, 3, 4) == [0, 0, 2, 3]
    for channel, status in ((11, 299), (13, 300)):
        recorded.post(channel, encoded(id=0, method="initialize", params=HELLO))
        recorded.order(send(channel, encoded(id=0, result=WELCOME), session=f"S{status}", status=status, is_last=True))
        recorded.post(channel + 1, PING, f"S{status}", V4)
    assert groups(recorded, 11, 12, 13, 14) == [0, 0, 2, 3]
    recorded = Recorded()
    for channel, session, status in ((1, "S", 200), (3, "T", 299)):
        recorded.order(dial(channel, Post("s", encoded(id=0, method="initialize", params=HELLO))))
        assert status < 300
        recorded.wires.receive_open(channel, Connected(session=session))
        recorded.order(dial(channel + 1, Post("s", PING, session, V4)))
    assert groups(recorded, 1, 2, 3, 4) == [0, 0, 2, 2]


# --- Observations -----------------------------------------------------------------------------------------------------


def test_a_clients_post_is_seen_whole() -> None:
    """The observations hold its head, its body, one head of the reply, each event with its id, and the end."""
    recorded = Recorded()
    mirrored = (("Mcp-Method", "ping"),)
    recorded.wires.receive_open(1, PostOpening("s", session="S", revision=V4, mirrored=mirrored))
    assert recorded.by_wire == {}
    recorded.wires.receive_message(1, PING)
    one, two, three = (encoded(method=f"m{number}") for number in range(3))
    recorded.order(
        send(1, one, event_id="1-1", session="S"),
        SendEvents(ChannelId(1), (two, three), ()),
        send(1, encoded(id=1, result={}), is_last=True),
    )
    (seen,) = recorded.by_wire.values()
    assert seen == [
        Opened(1, Verb.POST, "S", V4, None, None, mirrored),
        Said(1, CLIENT, PING),
        Head(1, 200, None, "S"),
        Said(1, SERVER, one, "message", "1-1"),
        Said(1, SERVER, two),
        Said(1, SERVER, three),
        Said(1, SERVER, encoded(id=1, result={})),
        Ended(1, SERVER),
    ]


def test_a_get_is_seen_with_its_last_event_id() -> None:
    """A DELETE has none; a closed channel has the status it was closed with."""
    recorded = Recorded()
    recorded.wires.receive_open(1, GetOpening("s", session="S", revision=V4, last_event_id="1-1"))
    recorded.order(send(1, b"", event_id="2-1"), Close(ChannelId(1), status=202))
    recorded.wires.receive_open(2, DeleteOpening("s", session="S", revision=V4))
    recorded.order(Close(ChannelId(2), status=204), Close(ChannelId(2), status=204))
    (seen,) = recorded.by_wire.values()
    assert seen == [
        Opened(1, Verb.GET, "S", V4, None, "1-1"),
        Head(1, 200),
        Said(1, SERVER, b"", "message", "2-1"),
        Ended(1, SERVER),
        Opened(2, Verb.DELETE, "S", V4),
        Head(2, 204),
        Ended(2, SERVER),
    ]


def test_a_post_to_a_server_is_seen_whole() -> None:
    """Mirrored headers are seen where the revision has them; the head comes with the first event that shows it."""
    recorded = Recorded()
    mirrored = (("Mcp-Method", "ping"),)
    recorded.order(dial(1, Post("s", PING, "S", V4, mirrored=mirrored)))
    recorded.wires.receive_message(1, encoded(id=1, result={}))
    recorded.wires.receive_close(1, Cause(End.DONE))
    recorded.order(
        dial(2, Listen("s", "S", V4, last_event_id="e7")), dial(3, Delete("s", "S", V4)), Close(ChannelId(2))
    )
    recorded.wires.receive_close(3, Cause(End.DONE))
    (seen,) = recorded.by_wire.values()
    assert seen == [
        Opened(1, Verb.POST, "S", V4),
        Said(1, CLIENT, PING),
        Head(1, 200),
        Said(1, SERVER, encoded(id=1, result={})),
        Ended(1, SERVER),
        Opened(2, Verb.GET, "S", V4, None, "e7"),
        Opened(3, Verb.DELETE, "S", V4),
        Ended(2, CLIENT),
        Head(3, 202),
        Ended(3, SERVER),
    ]
    recorded = Recorded()
    recorded.order(dial(1, Post("s", LISTS, None, V5, mirrored=mirrored)))
    assert next(iter(recorded.by_wire.values()))[0] == Opened(1, Verb.POST, None, V5, None, None, mirrored)


def test_a_process_is_a_pipe_without_an_opening() -> None:
    """The wire has no heads, and one channel; nothing is seen after its end."""
    recorded = Recorded()
    recorded.order(dial(5, Spawn("s", "w")), send(5, PING))
    recorded.wires.receive_open(5, Connected())
    recorded.wires.receive_message(5, encoded(id=1, result={}))
    recorded.order(Close(ChannelId(5)), send(5, PING))
    recorded.wires.receive_message(5, PING)
    recorded.wires.receive_close(5, GONE)
    (wire,) = recorded.by_wire
    assert (wire.proxy, wire.server, wire.is_mixed) == (CLIENT, "s", False)
    assert recorded.by_wire[wire] == [
        Said(0, CLIENT, PING),
        Said(0, SERVER, encoded(id=1, result={})),
        Ended(0, CLIENT),
    ]


@pytest.mark.parametrize("is_cut", [True, False])
def test_a_message_in_parts_is_seen_when_it_is_whole(is_cut: bool) -> None:
    """The head is seen with the first part; a message that is cut off has an end by neither side."""
    recorded = Recorded()
    recorded.post(1, PING, "S", V4)
    whole = encoded(id=1, result={"x": "y" * 50})
    recorded.order(Pass(ChannelId(1), (whole[:9], whole[9:20]), len(whole)))
    (seen,) = recorded.by_wire.values()
    assert seen[2:] == [Head(1, 200)]
    if is_cut:
        recorded.order(Close(ChannelId(1), reason="cut"))
        assert seen[3:] == [Ended(1, None)]
    else:
        recorded.order(Pass(ChannelId(1), (whole[20:],)))
        assert seen[3:] == [Said(1, SERVER, whole), Ended(1, SERVER)]


def test_a_message_in_parts_is_dropped_with_its_channel() -> None:
    """Parts that come later are ignored."""
    recorded = Recorded()
    recorded.order(dial(1, Post("s", PING, "S", V4)))
    whole = encoded(id=1, result={})
    recorded.wires.receive_part(1, (whole[:5],), len(whole))
    recorded.wires.receive_close(1, Cause(End.BROKEN))
    recorded.wires.receive_part(1, (whole[5:],), 0)
    (seen,) = recorded.by_wire.values()
    assert seen[2:] == [Ended(1, None)]


# --- Clients on one wire ----------------------------------------------------------------------------------------------


def send_request(recorded: Recorded, channel: int, id: int, token: str | None = None) -> None:
    """Sends a request to a server without sessions, and begins its reply."""
    meta = META if token is None else {**META, "progressToken": token}
    message = encoded(id=id, method="tools/list", params={"_meta": meta})
    mirrored = (("Mcp-Method", "tools/list"),)
    recorded.order(dial(channel, Post("s", message, None, "2026-07-28", mirrored=mirrored)))
    recorded.wires.receive_open(ChannelId(channel), Connected())


def progress(recorded: Recorded, channel: int, token: str, progress: int) -> None:
    params = {"progressToken": token, "progress": progress}
    recorded.wires.receive_message(ChannelId(channel), encoded(method="notifications/progress", params=params))


def answer(recorded: Recorded, channel: int, id: int) -> None:
    result = {"resultType": "complete", "tools": [], "ttlMs": 0, "cacheScope": "private"}
    recorded.wires.receive_message(ChannelId(channel), encoded(id=id, result=result))


def same_id(recorded: Recorded) -> None:
    send_request(recorded, 1, 1)
    send_request(recorded, 2, 1)


def same_token(recorded: Recorded) -> None:
    send_request(recorded, 1, 1, "t")
    send_request(recorded, 2, 2, "t")


def repeated_progress(recorded: Recorded) -> None:
    send_request(recorded, 1, 1, "t")
    for _ in range(2):
        progress(recorded, 1, "t", 5)


def late_progress(recorded: Recorded) -> None:
    send_request(recorded, 1, 1, "t")
    send_request(recorded, 2, 2)
    answer(recorded, 1, 1)
    progress(recorded, 2, "t", 5)


def unknown_token(recorded: Recorded) -> None:
    send_request(recorded, 1, 1, "t")
    progress(recorded, 1, "u", 5)


CONVERSATIONS: list[tuple[Callable[[Recorded], None], tuple[str, str], bool]] = [
    (same_id, ("client", "id-reused"), True),
    (same_token, ("client", "progress-token-reused"), True),
    (repeated_progress, ("server", "progress-stands"), True),
    (late_progress, ("server", "progress-late"), True),
    (unknown_token, ("server", "progress-unknown"), False),
]


@pytest.mark.parametrize("knows_origin", [True, False])
@pytest.mark.parametrize(("play", "rule", "is_excused"), CONVERSATIONS, ids=[rule for _, (_, rule), _ in CONVERSATIONS])
def test_a_conflict_between_clients_of_one_wire_breaks_no_rule(
    play: Callable[[Recorded], None], rule: tuple[str, str], is_excused: bool, knows_origin: bool
) -> None:
    """Ids and tokens may coincide if several clients share a wire, but not if their origin is known. A token that no
    client sent breaks a rule in either case."""
    recorded = Recorded(knows_origin=knows_origin)
    play(recorded)
    assert len(recorded.by_wire) == 1
    assert recorded.rules.count(rule) == (knows_origin or not is_excused)
