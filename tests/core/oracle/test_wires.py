"""A trace of the engine as the wires it is, and logs of pipes."""

from __future__ import annotations

import json
from random import Random

import msgspec
import pytest
from driving import GONE, connect, driver, newcomer, request
from isthmus.core.base.effects import (
    Cause,
    Close,
    Connected,
    Delete,
    Dial,
    Effect,
    End,
    EventPipeOpening,
    GetOpening,
    Join,
    Listen,
    MessageOpening,
    Note,
    Pass,
    PipeOpening,
    Post,
    PostOpening,
    Send,
    SendEvents,
)
from isthmus.core.base.ids import ChannelId
from isthmus.core.base.plan import Kind, Plan, ServerPlan
from isthmus.core.oracle import Ended, Head, Opened, Oracle, Role, Said, Transport, Verb
from isthmus.core.oracle.wires import Wire, Wires, read_log, read_trace
from isthmus.core.trace import Recorder
from overheard import Overheard
from stateless_driving import bridge, emerge, modern
from wire_scenes import K

INFO = {"name": "n", "version": "1"}
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": INFO}
WELCOME = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": INFO}
META = {K + "protocolVersion": "2026-07-28", K + "clientCapabilities": {}, K + "clientInfo": INFO}


def said(**members: object) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **members}).encode()


class Taken:
    """Wires, and what they told: each wire's observations and the rules that were broken."""

    def __init__(self, *, knows_origin: bool = False) -> None:
        self.by_wire: dict[Wire, list[object]] = {}
        self.rules: list[tuple[str, str]] = []
        self.wires = Wires(self._told, (lambda channel: "same") if knows_origin else None)

    def _told(self, wire: Wire, observation: object, found: list[object]) -> None:
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
    taken = Taken()
    taken.post(1, said(id=1, method="initialize", params=HELLO))
    taken.order(send(1, said(id=1, result=WELCOME), session="S", is_last=True))
    taken.post(2, said(method="notifications/initialized"), "S", "2025-11-25")
    taken.order(Close(ChannelId(2), status=202))
    taken.wires.receive_open(3, GetOpening("s", session="S", revision="2025-11-25"))
    taken.order(send(3, b"", event_id="e1"), Note("info", "this is on no wire"))
    taken.wires.receive_close(3, GONE)
    taken.wires.receive_open(4, GetOpening("s", session="T"))
    (wire, other) = taken.by_wire
    assert (wire.proxy, wire.server, wire.transport) == (Role.SERVER, "s", Transport.HTTP)
    assert [o.channel for o in taken.by_wire[wire] if isinstance(o, Opened)] == [1, 2, 3]  # type: ignore[attr-defined]
    assert taken.by_wire[wire][-1] == Ended(3, Role.CLIENT)
    assert taken.by_wire[other] == [Opened(4, Verb.GET, "T")]
    assert taken.rules == []


def test_several_messages_at_once_are_seen_one_by_one() -> None:
    """In a trace: what one side said, and what it was told."""
    opened = msgspec.json.encode({"input": "receive_open", "channel": 1, "opening": PipeOpening("s"), "effects": []})
    steps = [said(method="notifications/progress", params={"progressToken": 1, "progress": n}) for n in (1, 2)]
    line = {"input": "receive_messages", "channel": 1, "messages": steps, "effects": []}
    told = {"input": "receive_sent", "channel": 1, "effects": [SendEvents(ChannelId(1), tuple(steps), ("1-1", "1-2"))]}
    seen = list(read_trace([b'{"input":"begin"}', opened, msgspec.json.encode(line), msgspec.json.encode(told)]))
    assert [each.message for _, each, _ in seen if isinstance(each, Said)] == 2 * steps
    assert [each.event_id for _, each, _ in seen if isinstance(each, Said)] == [None, None, "1-1", "1-2"]


def test_an_event_pipe_and_its_posts_are_one_wire() -> None:
    taken = Taken()
    taken.wires.receive_open(1, EventPipeOpening("s", endpoint="/m"))
    taken.order(send(1, b"/m?sessionId=T", event="endpoint"))
    taken.wires.receive_open(2, MessageOpening("s", "T"))
    taken.wires.receive_message(2, said(id=1, method="initialize", params={**HELLO, "protocolVersion": "2024-11-05"}))
    taken.order(
        Close(ChannelId(2), status=202), send(1, said(id=1, result={**WELCOME, "protocolVersion": "2024-11-05"}))
    )
    taken.wires.receive_open(3, MessageOpening("s", "nobody's"))
    taken.wires.receive_message(3, b"{}")
    assert len(taken.by_wire) == 1
    assert taken.rules == []


def test_each_pipe_to_a_server_is_a_wire_and_the_proxy_its_client() -> None:
    taken = Taken()
    taken.order(dial(1, Join("s")), send(1, said(id=1, method="tools/list")))
    taken.wires.receive_open(1, Connected())
    taken.wires.receive_message(1, said(id=2, result={}))
    taken.wires.receive_close(1, Cause(End.BROKEN))
    taken.wires.receive_message(1, said(id=3, result={}))
    (wire,) = taken.by_wire
    assert wire.proxy is Role.CLIENT
    assert taken.rules == [("client", "initialize-first"), ("server", "response-unknown")]
    assert taken.by_wire[wire][-1] == Ended(0, None)


def test_a_session_with_a_server_is_a_wire() -> None:
    """Its handshake, what is posted in it, its stream, its end, and a refusal with a body."""
    taken = Taken()
    taken.order(dial(1, Post("s", said(id=1, method="initialize", params=HELLO))))
    taken.wires.receive_open(1, Connected(session="S"))
    taken.wires.receive_message(1, said(id=1, result=WELCOME))
    taken.wires.receive_close(1, Cause(End.DONE))
    taken.order(dial(2, Post("s", said(method="notifications/initialized"), "S", "2025-11-25")))
    taken.wires.receive_close(2, Cause(End.DONE))
    taken.order(
        dial(3, Listen("s", "S", "2025-11-25")), dial(4, Post("s", said(id=2, method="ping"), "S", "2025-11-25"))
    )
    refusal = said(id=2, error={"code": -32000, "message": "no"})
    taken.wires.receive_close(4, Cause(End.REFUSED, status=404, body=refusal))
    taken.order(Close(ChannelId(3)), dial(5, Delete("s", "S", "2025-11-25")))
    (wire,) = taken.by_wire
    assert taken.rules == [("client", "session-id-lost")]
    assert taken.by_wire[wire][-2] == Ended(3, Role.CLIENT)


def test_a_message_in_parts_is_seen_once_it_is_whole() -> None:
    """As a server's answer, and as what is passed on to a client; a second on the same channel begins anew."""
    taken = Taken()
    taken.order(dial(1, Post("s", said(id=1, method="initialize", params=HELLO))))
    taken.wires.receive_open(1, Connected(session="S"))
    whole = said(id=1, result=WELCOME)
    taken.wires.receive_part(1, (whole[:5], whole[5:9]), len(whole))
    (wire,) = taken.by_wire
    before = len(taken.by_wire[wire])
    taken.wires.receive_part(1, (whole[9:20],), 0)
    assert len(taken.by_wire[wire]) == before
    taken.wires.receive_part(1, (whole[20:],), 0)
    assert [o.message for o in taken.by_wire[wire][before:] if isinstance(o, Said)] == [whole]
    taken.wires.receive_part(1, (b"",), 0)
    assert len(taken.by_wire[wire]) == before + 1, "it was over"
    taken.post(7, said(id=3, method="initialize", params=HELLO))
    answer = said(id=3, result=WELCOME)
    taken.order(Pass(ChannelId(7), (answer[:4],), len(answer)), Pass(ChannelId(7), (answer[4:],)))
    down = next(wire for wire in taken.by_wire if wire.proxy is Role.SERVER)
    assert [o.message for o in taken.by_wire[down] if isinstance(o, Said)][1:] == [answer]


def test_a_client_that_is_refused_before_its_body_came_is_on_no_wire() -> None:
    taken = Taken()
    taken.wires.receive_open(1, PostOpening("s"))
    taken.order(send(1, b"too large", status=413, is_last=True))
    taken.wires.receive_open(2, PostOpening("s"))
    taken.order(Close(ChannelId(2), status=400))
    taken.wires.receive_open(3, PostOpening("s"))
    taken.wires.receive_close(3, GONE)
    assert taken.by_wire == {}


@pytest.mark.parametrize("message", [b"{", b"1", b'{"params":1}', b"[" * 20_000])
def test_what_a_client_posts_may_be_anything(message: bytes) -> None:
    taken = Taken()
    taken.post(1, message)
    taken.order(send(1, said(error={"code": -32700, "message": ""}), status=400, is_last=True))
    assert {who for who, _ in taken.rules} == {"client"}


@pytest.mark.parametrize(("knows_origin", "rules"), [(False, []), (True, [("client", "id-reused")])])
def test_where_sessions_with_a_server_look_alike_their_ids_are_not_compared(
    knows_origin: bool, rules: list[tuple[str, str]]
) -> None:
    taken = Taken(knows_origin=knows_origin)
    for channel in (1, 2):
        mirrored = (("Mcp-Method", "tools/list"),)
        message = said(id=1, method="tools/list", params={"_meta": META})
        taken.order(dial(channel, Post("s", message, None, "2026-07-28", mirrored=mirrored)))
    assert len(taken.by_wire) == 1
    assert taken.rules == rules


def test_a_post_that_says_all_in_its_body_belongs_to_no_session() -> None:
    taken = Taken()
    taken.post(1, said(id=1, method="tools/list", params={"_meta": META}), session="S")
    assert taken.rules == [("client", "version-header-missing"), ("client", "mirrored-method")]


# --- Traces and logs --------------------------------------------------------------------------------------------------


def test_a_trace_is_read_as_wires() -> None:
    lines: list[bytes] = []
    plan = Plan(servers=(ServerPlan(id="s", kind=Kind.PIPE),))
    engine = Recorder(plan, entropy=Random(1).randbytes, unix_at_zero=0.0, write=lines.append)
    client = engine.new_channel()
    engine.receive_open(client, PipeOpening("s"), 0.0)
    (order,) = engine.receive_message(client, said(id=1, method="initialize", params=HELLO), 1.0)
    assert isinstance(order, Dial)
    engine.receive_open(order.channel, Connected(), 2.0)
    engine.receive_message(order.channel, said(id=1, result=WELCOME), 3.0)
    engine.receive_message(order.channel, said(id="q", method="tools/list"), 3.0)
    engine.receive_close(client, GONE, 4.0)
    seen = list(read_trace(lines))
    assert {wire.proxy for wire, _, _ in seen} == {Role.CLIENT, Role.SERVER}
    broken = [(wire.proxy, violation.who, violation.rule) for wire, _, found in seen for violation in found]
    assert broken == [(Role.CLIENT, Role.SERVER, "method-direction")]


def test_a_trace_has_messages_whole_in_pieces_and_in_parts() -> None:
    """Of each it is seen as one message; of parts, when the last has come."""
    whole = said(id=1, result=WELCOME)
    hello = Post("s", said(id=1, method="initialize", params=HELLO))
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
def test_what_is_no_trace_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match="line 2 is no line of a trace"):
        list(read_trace([b'{"input":"begin"}', line]))


def test_a_log_of_a_pipe_is_read() -> None:
    """A message is an object; what was no JSON stands there as a text."""
    lines = [b'{"from":"client","message":{"jsonrpc":"2.0"},"at":1.5}', b'{"from":"server","message":"a \\u00fc"}']
    assert list(read_log(lines)) == [
        Said(0, Role.CLIENT, b'{"jsonrpc":"2.0"}', at=1.5),
        Said(0, Role.SERVER, "a ü".encode()),
    ]
    oracle = Oracle(None, Transport.PIPE)
    rules = [violation.rule for each in read_log(lines) for violation in oracle.receive(each)]
    assert rules == ["not-jsonrpc", "not-json"]


@pytest.mark.parametrize("line", [b"", b'{"from":"nobody","message":{}}', b'{"from":"client"}', b"\xff"])
def test_what_is_no_log_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match="line 1 is no line of a log"):
        list(read_log([line]))


# --- The engine -------------------------------------------------------------------------------------------------------


def test_the_engine_is_overheard_and_its_own_faults_are_told() -> None:
    """The tests of the engine fail if it breaks a rule: here its words are changed on their way."""
    world = driver()
    assert isinstance(world.engine, Overheard)
    client = newcomer(world, "pipe", "pipe")
    assert client.pipe is not None
    client.initialize(json.dumps(HELLO))
    world.engine.wires.receive_effects([send(client.pipe, said(id=0, result=WELCOME))])
    with pytest.raises(AssertionError, match="response-twice"):
        world.engine._judged([send(client.pipe, said(id=0, result=WELCOME))])


def test_what_a_peer_breaks_the_proxy_may_pass_on() -> None:
    """The servers played here say less of themselves than they must."""
    world = driver()
    client = connect(world, "pipe", "pipe")
    assert client.pipe is not None
    assert isinstance(world.engine, Overheard)
    assert "initialize-result" in world.engine.blame.by_peers


def test_both_eras_may_meet_on_one_pipe() -> None:
    world = bridge(ServerPlan(id="s", kind=Kind.PIPE))
    client = modern(world, "s", "pipe")
    assert client.pipe is not None
    channel = client.request("server/discover")
    emerge(world)
    world.say(client.pipe, request('"0"', "initialize", json.dumps(HELLO)))
    assert client.answered(channel)["result"]["supportedVersions"] == ["2026-07-28"]


@pytest.mark.parametrize("end", list(End))
@pytest.mark.parametrize("body", [b"", b'{"jsonrpc":"2.0","id":2,"error":{"code":-32000,"message":"no"}}'])
def test_how_a_reply_ends_is_seen(end: End, body: bytes) -> None:
    """A refusal has a head, and a body if one came; an end in order without an answer is a 202. Who ended it is told
    where the other side did: not where the connection broke, or a time limit passed."""
    taken = Taken()
    taken.order(dial(1, Post("s", said(id=2, method="ping"), "S", "2025-11-25")))
    taken.wires.receive_close(1, Cause(end, status=404, body=body))
    (wire,) = taken.by_wire
    heads = {End.REFUSED: [Head(1, 404)], End.DONE: [Head(1, 202)]}.get(end, [])
    bodies = [Said(1, Role.SERVER, body)] if end is End.REFUSED and body else []
    by = Role.SERVER if end in (End.DONE, End.GONE, End.REFUSED) else None
    assert taken.by_wire[wire][2:] == [*heads, *bodies, Ended(1, by)]


@pytest.mark.parametrize("end", list(End))
def test_how_a_client_leaves_is_seen(end: End) -> None:
    """It has no head, and says nothing with it."""
    taken = Taken()
    taken.wires.receive_open(1, PipeOpening("s"))
    taken.wires.receive_message(1, said(id=1, method="initialize", params=HELLO))
    taken.wires.receive_close(1, Cause(end, status=404, body=b"{}"))
    (wire,) = taken.by_wire
    by = Role.CLIENT if end in (End.DONE, End.GONE, End.REFUSED) else None
    assert taken.by_wire[wire][1:] == [Ended(0, by)]
    taken.wires.receive_close(1, Cause(end))
    assert len(taken.by_wire[wire]) == 2, "it was over"
