"""What each line of a trace holds, and that what was read of it is what an engine is made with and fed."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any

import msgspec
import pytest
from driving import connect, driver
from isthmus.core.base import effects
from isthmus.core.base.effects import Cause, End
from isthmus.core.base.ids import ChannelId, Ticket
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, Plan, ServerPlan
from isthmus.core.engine import Engine
from isthmus.core.files.store.records import StoredArtifact
from isthmus.core.status import Command
from isthmus.core.trace import Line, Recorder, replay
from stateless_driving import ACCEPT, ask, bridge, modern, rise, rounds

from tests.core.test_trace import FILE, INITIALIZE, PLAN, TASK, changed

MADE = StoredArtifact(
    server="files",
    sid="8" * 32,
    aid="9" * 32,
    principal="",
    blob="a" * 32,
    filename="a.txt",
    mime_type="text/plain",
    size_bytes=5,
    sha256="0" * 64,
    tool="make",
    is_exposed=True,
    expires_at_unix=1.0e9 + 9999.0,
)
GARBAGE = b"{"
GONE = Cause(End.GONE, "gone")
DOWNLOAD = effects.DownloadOpening(server="files", sid="s", artifact="a", filename="f", query={})


def recorded(limits: Limits | None = None, **stored: Any) -> tuple[Recorder, list[bytes]]:
    lines: list[bytes] = []
    entropy = Random(5).randbytes
    return Recorder(PLAN, entropy=entropy, unix_at_zero=1.0e9, limits=limits, write=lines.append, **stored), lines


def lines_of(texts: list[bytes]) -> list[Line]:
    return [msgspec.json.decode(text, type=Line) for text in texts]


# --- The first line ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limits", [None, Limits(drain_s=7.0)])
def test_the_first_line_holds_all_that_the_engine_was_made_with(limits: Limits | None) -> None:
    """A limit that was not given is written out: what it means may be another in later code."""
    _, texts = recorded(limits, stored=[MADE], stored_tasks=[TASK], stored_uploads=[FILE])
    (begin,) = lines_of(texts)
    entropy = Random(5)
    assert begin.drawn
    assert begin == Line(
        "begin",
        drawn=tuple(entropy.randbytes(len(each)) for each in begin.drawn),
        plan=PLAN,
        limits=limits or Limits(),
        unix_at_zero=1.0e9,
        stored=(MADE,),
        stored_tasks=(TASK,),
        stored_uploads=(FILE,),
    )


def test_an_engine_is_recorded_with_what_it_is_given() -> None:
    """Its limits and all that was stored are the engine's, not only the trace's."""
    limits = Limits(start_timeout_s=7.0)
    stored: dict[str, Any] = {"stored": [MADE], "stored_tasks": [TASK], "stored_uploads": [FILE]}
    engine, _ = recorded(limits, **stored)
    bare = Engine(PLAN, entropy=Random(5).randbytes, unix_at_zero=1.0e9, limits=limits, **stored)
    assert engine.tasks() == bare.tasks() != ()
    assert len(engine.files()) == 2
    assert engine.files() == bare.files()
    for each in (engine, bare):
        each.receive_open(each.new_channel(), effects.PipeOpening(server="files"), 0.0)
        each.receive_message(ChannelId(1), INITIALIZE, 0.0)
    assert engine.next_timeout() == bare.next_timeout()
    assert engine.earliest_at == bare.earliest_at == 7.0


# --- The lines of inputs ----------------------------------------------------------------------------------------------

# Each on an engine whose channel 1 is a client's pipe, and 3 is new.
INPUTS: list[tuple[Callable[[Recorder], Any], Line]] = [
    (lambda e: e.new_channel(), Line("new_channel", channel=5)),
    (
        lambda e: e.receive_open(ChannelId(3), DOWNLOAD, 2.0),
        Line("receive_open", 2.0, 3, opening=DOWNLOAD),
    ),
    (
        lambda e: e.receive_message(ChannelId(1), GARBAGE, 2.0),
        Line("receive_message", 2.0, 1, message=GARBAGE),
    ),
    (
        lambda e: e.receive_messages(ChannelId(1), [GARBAGE, b"["], 2.0),
        Line("receive_messages", 2.0, 1, messages=(GARBAGE, b"[")),
    ),
    (
        lambda e: e.receive_pieces(ChannelId(1), (GARBAGE, b"["), 2.0),
        Line("receive_pieces", 2.0, 1, pieces=(GARBAGE, b"[")),
    ),
    (
        lambda e: e.receive_part(ChannelId(1), (GARBAGE,), 2.0, cause=GONE),
        Line("receive_part", 2.0, 1, pieces=(GARBAGE,), size_bytes=0, cause=GONE),
    ),
    (
        lambda e: e.receive_close(ChannelId(1), GONE, 2.0),
        Line("receive_close", 2.0, 1, cause=GONE),
    ),
    (
        lambda e: e.receive_answer(Ticket(7), effects.Saved(), 2.0),
        Line("receive_answer", 2.0, ticket=7, answer=effects.Saved()),
    ),
    (
        lambda e: e.receive_sent(ChannelId(1), 0, 2.0),
        Line("receive_sent", 2.0, 1, size_bytes=0),
    ),
    (
        lambda e: e.receive_at_once(ChannelId(3), 2.0, opening=DOWNLOAD),
        Line("receive_at_once", 2.0, 3, opening=DOWNLOAD, size_bytes=0),
    ),
    (
        lambda e: e.receive_at_once(ChannelId(1), 2.0, message=GARBAGE, cause=GONE),
        Line("receive_at_once", 2.0, 1, message=GARBAGE, size_bytes=0, cause=GONE),
    ),
    (lambda e: e.receive_drain(2.0), Line("receive_drain", 2.0)),
    (lambda e: e.receive_stop(2.0), Line("receive_stop", 2.0)),
    (
        lambda e: e.receive_command("web", Command.STOP, 2.0),
        Line("receive_command", 2.0, server="web", command=Command.STOP),
    ),
    (lambda e: e.receive_task_cancel(TASK.id, 2.0), Line("receive_task_cancel", 2.0, task=TASK.id)),
    (lambda e: e.receive_file_delete(FILE.id, 2.0), Line("receive_file_delete", 2.0, file=FILE.id)),
    (lambda e: e.handle_timeout(2.0), Line("handle_timeout", 2.0)),
]


@pytest.mark.parametrize(("say", "expected"), INPUTS, ids=lambda value: getattr(value, "input", ""))
def test_a_line_holds_its_input_and_what_came_of_it(say: Callable[[Recorder], Any], expected: Line) -> None:
    """All that the method was called with and nothing else, the effects that it returned, and what was drawn then."""
    drawn: list[bytes] = []

    def entropy(size: int) -> bytes:
        drawn.append(bytes([len(drawn) % 256]) * size)
        return drawn[-1]

    texts: list[bytes] = []
    engine = Recorder(
        PLAN,
        entropy=entropy,
        unix_at_zero=1.0e9,
        stored_tasks=[TASK],
        stored_uploads=[FILE],
        write=texts.append,
    )
    engine.receive_open(engine.new_channel(), effects.PipeOpening(server="files"), 1.0)
    engine.receive_message(ChannelId(1), INITIALIZE, 1.0)
    engine.new_channel()
    engine.new_channel()
    before = len(drawn)
    said = say(engine)
    line = msgspec.json.decode(texts[-1], type=Line)
    if expected.input == "new_channel":
        assert line == msgspec.structs.replace(expected, channel=said)
    else:
        effects_raw = msgspec.Raw(msgspec.json.encode(said))
        assert line == msgspec.structs.replace(expected, effects=effects_raw, drawn=tuple(drawn[before:]))
    assert list(replay(texts)) == []


def test_a_command_that_draws_is_recorded_with_what_it_drew() -> None:
    """In the order in which it was drawn, and each byte in one line only."""
    source, texts, drawn = Random(9), list[bytes](), list[bytes]()

    def entropy(size: int) -> bytes:
        drawn.append(source.randbytes(size))
        return drawn[-1]

    engine = Recorder(PLAN, entropy=entropy, unix_at_zero=1.0e9, write=texts.append)
    for number in range(3):
        engine.receive_open(engine.new_channel(), effects.PipeOpening(server="files"), float(number))
        engine.receive_message(ChannelId(number + 1), INITIALIZE, float(number))
    found = [each for line in lines_of(texts) for each in line.drawn]
    assert found == drawn
    assert sum(bool(line.drawn) for line in lines_of(texts)) > 1


# --- Reading it -------------------------------------------------------------------------------------------------------


def test_what_passes_in_parts_is_recorded_in_parts() -> None:
    """Whether it may is the engine's own word, and nothing is written for asking."""
    world = driver(ServerPlan(id="http", kind=Kind.HTTP))
    texts: list[bytes] = []
    world.engine = Recorder(  # type: ignore[assignment]
        Plan(servers=(ServerPlan(id="http", kind=Kind.HTTP),), link_key=b"k" * 16, workspaces_path="/w"),
        entropy=Random(1).randbytes,
        unix_at_zero=1.0e9,
        write=texts.append,
    )
    client = connect(world, "http", "http")
    channel = client.request("7", "tools/call", '{"name":"a"}')
    heard = world.hear("tools/call")
    message = b'{"jsonrpc":"2.0","id":%d,"result":{"content":[],"x":"%b"}}' % (heard.id, b"y" * 300_000)
    world.open(heard.channel, effects.Connected())
    before = len(texts)
    assert not world.engine.passes(heard.channel, message[:4096], 10)
    assert world.engine.passes(heard.channel, message[:4096], len(message))
    assert len(texts) == before
    world.say_part(heard.channel, message[:5000], message[5000:9000], size_bytes=len(message))
    world.say_part(heard.channel, message[9000:], is_last=True)
    assert world.said(channel)["id"] == 7
    first, last = lines_of(texts)[-2:]
    assert first.size_bytes == len(message)
    assert first.opening == effects.Connected()
    assert first.pieces == (message[:5000], message[5000:9000])
    assert (last.pieces, last.cause) == ((message[9000:],), Cause(End.DONE))
    assert list(replay(texts)) == []


def test_a_line_without_effects_is_not_compared() -> None:
    """What a trace does not say of an input may be anything: it is fed all the same, and the rest compared."""
    engine, texts = recorded()
    engine.receive_open(engine.new_channel(), effects.PipeOpening(server="files"), 1.0)
    engine.receive_message(ChannelId(1), GARBAGE, 1.0)
    engine.receive_message(ChannelId(1), INITIALIZE, 1.0)
    texts[-2] = changed(texts[-2], lambda record: record.pop("effects"))
    assert list(replay(texts)) == []


def test_a_trace_that_begins_twice_is_two_runs() -> None:
    """One after another, each from its own beginning."""
    first, second = recorded(), recorded(Limits(drain_s=7.0), stored_tasks=[TASK])
    for engine, _ in (first, second):
        engine.receive_open(engine.new_channel(), effects.PipeOpening(server="files"), 1.0)
        engine.receive_message(ChannelId(1), INITIALIZE, 1.0)
    second[0].receive_task_cancel(TASK.id, 1.0)
    assert list(replay([*first[1], *second[1]])) == []


def test_what_is_drawn_before_any_input_is_drawn_again() -> None:
    """A state that a client brings back is sealed with it: it is the very same, and is still good in the replay."""
    world = bridge()
    texts: list[bytes] = []
    plan = Plan(servers=(ServerPlan(id="pipe", kind=Kind.PIPE),), link_key=b"k" * 16, workspaces_path="/w")
    recorder = Recorder(plan, entropy=Random(1).randbytes, unix_at_zero=1.0e9, write=texts.append)
    world.engine = recorder  # type: ignore[assignment]
    client = modern(world, "pipe")
    channel = client.call()
    rise(world)
    heard = world.hear("tools/call")
    ask(world, heard)
    world.wait(Limits().collect_s)
    questions, state = rounds(client, channel, client.last_id)
    (key,) = questions
    again = client.call(requestState=state, inputResponses={key: ACCEPT})
    assert world.hear("").frame["result"] == ACCEPT
    world.answer(heard, '{"content":[]}')
    assert client.answered(again)["result"]["content"] == []
    assert list(replay(texts)) == []


@pytest.mark.parametrize("more", [{"server": "a"}, {"command": "start"}, {}])
def test_an_order_needs_a_server_and_what_to_do_with_it(more: dict[str, str]) -> None:
    """A line that lacks one of them is none of a trace; it is not fed as something else."""
    written: list[bytes] = []
    Recorder(PLAN, entropy=bytes, unix_at_zero=0.0, write=written.append)
    line = json.dumps({"input": "receive_command", "now": 1.0, **more}).encode()
    with pytest.raises(ValueError, match="without what it needs"):
        list(replay([*written, line]))
