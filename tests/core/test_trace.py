"""Tests of traces: a recorded run repeats, a difference is reported with its line, and other input is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

import msgspec
import pytest
from driving import connect, driver
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.base import effects, events, storage
from isthmus.core.base.errors import LocalProtocolError
from isthmus.core.base.events import Cause, End
from isthmus.core.base.ids import ChannelId, Ticket
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import (
    ArtifactProducer,
    Kind,
    LocatorMode,
    OutputLocator,
    Plan,
    ServerPlan,
    UploadConsumer,
)
from isthmus.core.base.telemetry import Tracing
from isthmus.core.bulk import BulkEngine
from isthmus.core.state.records import StoredArtifact, StoredTask, StoredUpload
from isthmus.core.state.task import TaskState
from isthmus.core.status import Command
from isthmus.core.trace import Line, Recorder, replay
from stateless_driving import ACCEPT, ask, bridge, modern, rounds, start_legacy_server

PLAN = Plan(
    servers=(
        ServerPlan(id="web", kind=Kind.HTTP),
        ServerPlan(
            id="files",
            kind=Kind.PIPE,
            consumers=(UploadConsumer(tools=("take",), file_path_argument="path"),),
            producers=(ArtifactProducer(tools=("make",), output_locator=OutputLocator(mode=LocatorMode.EMBEDDED)),),
        ),
    ),
    workspaces_path="/w",
    public_base_url="http://127.0.0.1:1",
    link_keys=(b"k" * 32,),
)
INITIALIZE = (
    b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}'
)
WELCOME = b'{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}}}}'


TASK = StoredTask(
    id="7" * 32,
    server="web",
    tool="dig",
    era="handshake",
    owner="0" * 32,
    status=TaskState.WORKING,
    created_at="2001-09-09T01:46:39Z",
    updated_at="2001-09-09T01:46:39Z",
    expires_at_unix=1.0e9 + 9999.0,
    ttl_ms=10_000_000,
    poll_ms=1000,
    upstream_task="far/7",
    is_remote=True,
)


FILE = StoredUpload(
    server="files",
    sid="8" * 32,
    uid="9" * 32,
    principal="",
    blob="a" * 32,
    filename="a.txt",
    mime_type="text/plain",
    size_bytes=5,
    sha256="0" * 64,
    expires_at_unix=1.0e9 + 9999.0,
)


def recorder(seed: int, lines: list[bytes], limits: Limits | None = None, plan: Plan = PLAN) -> Recorder:
    entropy = Random(seed).randbytes
    return Recorder(
        plan,
        entropy=entropy,
        unix_at_zero=1.0e9,
        has_storage=True,
        limits=limits,
        stored_tasks=(TASK,),
        stored_uploads=(FILE,),
        write=lines.append,
    )


def scripted(seed: int, plan: Plan = PLAN) -> list[bytes]:
    """Returns the trace of a run that uses every input at least once."""
    lines: list[bytes] = []
    engine = recorder(seed, lines, plan=plan)
    pipe = engine.new_channel()
    engine.receive_open(pipe, events.PipeOpening(server="files"), 0.0)
    child = dialled(engine.receive_message(pipe, INITIALIZE, 0.0))
    engine.receive_open(child, events.Connected(), 0.5)
    engine.receive_message(child, WELCOME, 1.0)
    engine.receive_message(pipe, b'{"jsonrpc":"2.0","method":"notifications/initialized"}', 1.0)
    engine.receive_message(pipe, b"\xff{", 1.5)
    upload = engine.new_channel()
    engine.receive_open(upload, events.UploadOpening(server="files", query={"sid": "x"}), 1.5)
    download = engine.new_channel()
    opening = events.DownloadOpening(server="files", sid="s", artifact="a", filename="f", query={})
    engine.receive_open(download, opening, 1.5)
    engine.receive_message(pipe, call(7, "make"), 2.0)
    image = b'{"content":[{"type":"image","data":"aGk=","mimeType":"image/png"}]}'
    orders = engine.receive_message(child, b'{"jsonrpc":"2.0","id":2,"result":' + image + b"}", 2.5)
    collect = next(order for order in orders if isinstance(order, storage.Collect))
    file = storage.CollectedFile(filename="a.png", size_bytes=2, sha256="00", head=b"hi")
    orders = engine.receive_answer(collect.ticket, storage.Collected(files=(file,)), 3.0)
    save = next(order for order in orders if isinstance(order, storage.Save))
    orders = engine.receive_answer(save.ticket, storage.Saved(), 3.0)
    answer = next(order for order in orders if isinstance(order, effects.Send))
    engine.receive_sent(pipe, len(answer.message), 3.0)
    engine.receive_answer(Ticket(99), storage.StorageFailed(reason="late"), 3.0)
    engine.receive_message(pipe, call(8, "other"), 3.5)
    engine.receive_messages(child, (b"no message", b'{"jsonrpc":"2.0","method":"notifications/other"}'), 3.5)
    engine.receive_close(child, Cause(End.BROKEN, "exit code 1"), 4.0)
    engine.handle_timeout(4000.0)
    lost = events.DownloadOpening(server="files", sid="s", artifact="a", filename="f", query={})
    engine.receive_at_once(engine.new_channel(), 4000.5, opening=lost, cause=Cause(End.GONE))
    engine.receive_pieces(pipe, (WELCOME[:9], WELCOME[9:]), 4000.5)
    engine.receive_part(child, (b"crossed its end",), 4000.5, cause=Cause(End.DONE))
    engine.receive_command("files", Command.RESTART, 4000.5)
    engine.receive_task_cancel(TASK.id, 4000.5)
    engine.receive_file_delete(FILE.id, 4000.5)
    engine.receive_records([("task/other", None), ("artifact/s/a", b"{}")], 4000.5)
    engine.receive_drain(4001.0)
    engine.receive_stop(4002.0)
    return lines


def call(number: int, tool: str) -> bytes:
    return b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"%b"}}' % (number, tool.encode())


def dialled(orders: list[effects.Effect]) -> ChannelId:
    return next(order.channel for order in orders if isinstance(order, effects.Dial))


BEGIN = scripted(1)[0]


# --- Runs repeat ----------------------------------------------------------------------------------------------------


def test_a_script_uses_every_input() -> None:
    """The script covers every input, so the tests below do."""
    inputs = {msgspec.json.decode(line)["input"] for line in scripted(1)}
    wanted = {name for name in dir(BulkEngine) if name.startswith("receive_")} | {
        "begin",
        "new_channel",
        "handle_timeout",
    }
    assert inputs == wanted


def test_a_recorded_run_repeats_without_a_difference() -> None:
    """Twice, since a replay must leave nothing behind."""
    lines = scripted(1)
    assert list(replay(lines)) == []
    assert list(replay(lines)) == []


def test_a_run_whose_requests_have_spans_repeats() -> None:
    """The ids of spans are drawn as all random bytes are."""
    lines = scripted(1, msgspec.structs.replace(PLAN, tracing=Tracing(is_recorded=True, ratio=1.0)))
    assert any(b'"span"' in line for line in lines)
    assert list(replay(lines)) == []


def test_equal_seeds_give_equal_bytes() -> None:
    """Another seed gives other names."""
    assert scripted(1) == scripted(1)
    assert scripted(1) != scripted(2)


def test_each_line_is_one_line() -> None:
    """A trace is JSON Lines: no message can end a line early."""
    for line in scripted(1):
        assert line.endswith(b"\n")
        assert line.count(b"\n") == 1
        assert isinstance(msgspec.json.decode(line), dict)


def test_the_recorder_returns_what_the_engine_returns() -> None:
    """The recorder returns the same as an engine to every input and query."""
    recorded = recorder(3, [])
    bare = BulkEngine(
        PLAN,
        entropy=Random(3).randbytes,
        unix_at_zero=1.0e9,
        has_storage=True,
        stored_tasks=(TASK,),
        stored_uploads=(FILE,),
    )
    for engine in (recorded, bare):
        assert engine.new_channel() == 1
    opening = events.PipeOpening(server="files")
    assert recorded.receive_open(ChannelId(1), opening, 0.0) == bare.receive_open(ChannelId(1), opening, 0.0)
    assert recorded.receive_message(ChannelId(1), INITIALIZE, 0.0) == bare.receive_message(
        ChannelId(1), INITIALIZE, 0.0
    )
    assert (recorded.session_count, recorded.exchange_count) == (bare.session_count, bare.exchange_count) == (1, 1)
    assert recorded.next_timeout() == bare.next_timeout()
    assert recorded.next_timeout() is not None
    assert recorded.earliest_at == bare.earliest_at
    assert recorded.report() == bare.report()
    assert [status.id for status in recorded.report()] == ["web", "files"]
    assert [recorded.owes(ChannelId(n)) for n in (1, 2)] == [bare.owes(ChannelId(n)) for n in (1, 2)]
    assert not recorded.passes(ChannelId(1), INITIALIZE, 10**9)
    assert [task.id for task in recorded.tasks()] == [TASK.id]
    assert recorded.tasks() == bare.tasks()
    assert recorded.receive_task_cancel(TASK.id, 1.0) == bare.receive_task_cancel(TASK.id, 1.0)
    assert recorded.tasks() == bare.tasks()
    assert [file.id for file in recorded.files()] == [FILE.id]
    assert recorded.files() == bare.files()
    assert recorded.receive_file_delete(FILE.id, 1.0) == bare.receive_file_delete(FILE.id, 1.0)
    assert recorded.files() == bare.files() == ()
    assert [(end.why, end.count) for end in recorded.file_ends()] == [("deleted", 1)]
    assert recorded.file_ends() == bare.file_ends()


MESSAGES = [INITIALIZE, WELCOME, call(1, "make"), call(1, "take"), b"[]", b"{", b'{"jsonrpc":"2.0","id":2,"result":{}}']
MESSAGES += [
    b'{"jsonrpc":"2.0","id":5,"method":"roots/list"}',
    b'{"jsonrpc":"2.0","method":"notifications/initialized"}',
]


@given(data=st.data(), seed=st.integers(0, 3))
def test_any_run_repeats(data: st.DataObject, seed: int) -> None:
    """A random sequence of inputs, sensible or not, repeats without a difference. Refused ones left nothing."""
    lines: list[bytes] = []
    engine = recorder(seed, lines, Limits(outbox_high_bytes=50, outbox_low_bytes=10))
    now, known = 0.0, [ChannelId(1)]
    posts: set[ChannelId] = set()
    posted: set[ChannelId] = set()
    engine.receive_open(engine.new_channel(), events.PipeOpening(server="files"), now)
    for _ in range(data.draw(st.integers(1, 12))):
        now += data.draw(st.sampled_from([0.0, 1.0, 100.0]))
        channel = data.draw(st.sampled_from(known))
        kind = data.draw(st.sampled_from(["message", "message", "connected", "close", "time", "pipe", "post"]))
        orders: list[effects.Effect] = []
        if kind == "message":
            if channel in posted:
                continue  # a POST has one body: a second is the driver's mistake, and raises
            posted |= {channel} & posts
            message = data.draw(st.sampled_from(MESSAGES))
            with suppress(LocalProtocolError):  # it is too early
                orders = engine.receive_message(channel, message, now)
        elif kind == "connected":
            with suppress(LocalProtocolError):  # it is a client's channel
                orders = engine.receive_open(channel, events.Connected(), now)
        elif kind == "close":
            orders = engine.receive_close(channel, Cause(data.draw(st.sampled_from(End))), now)
        elif kind == "time":
            orders = engine.handle_timeout(now)
        else:
            known.append(engine.new_channel())
            server = data.draw(st.sampled_from(["files", "web"]))
            if kind == "post":
                posts.add(known[-1])
                engine.receive_open(known[-1], events.PostOpening(server=server), now)
            else:
                engine.receive_open(known[-1], events.PipeOpening(server=server), now)
        known += [order.channel for order in orders if isinstance(order, effects.Dial)]
    assert list(replay(lines)) == []


# --- Differences ----------------------------------------------------------------------------------------------------


def changed(line: bytes, change: Callable[[dict[str, object]], None]) -> bytes:
    record = msgspec.json.decode(line, type=dict[str, object])
    change(record)
    return msgspec.json.encode(record) + b"\n"


def test_a_changed_effect_is_reported_with_its_line() -> None:
    """A change of the effects of any one line is the only difference found."""
    lines = scripted(1)
    for number, line in enumerate(lines, 1):
        before = msgspec.json.decode(line).get("effects")
        if before is None:
            continue
        other = [*before, {"type": "Pause", "channel": 12345}]
        tampered = changed(line, lambda record, other=other: record.update(effects=other))
        (difference,) = replay([*lines[: number - 1], tampered, *lines[number:]])
        assert difference.line == number
        assert msgspec.json.decode(difference.recorded) == other
        assert msgspec.json.decode(difference.replayed) == before


def test_a_changed_input_is_reported_where_it_has_an_effect() -> None:
    """A changed storage answer makes a difference on its own line, and the replay goes on."""
    lines = scripted(1)
    at = next(
        i for i, line in enumerate(lines) if msgspec.json.decode(line).get("answer", {}).get("type") == "Collected"
    )
    nothing = {"type": "Collected", "files": [{"problem": "gone"}]}
    tampered = changed(lines[at], lambda record: record.update(answer=nothing))
    differences = list(replay([*lines[:at], tampered, *lines[at + 1 :]]))
    assert differences[0].line == at + 1


def test_lost_randomness_is_a_difference() -> None:
    """An engine that draws more than was recorded differs in its effects, and the replay goes on."""
    lines = [changed(line, lambda record: record.pop("drawn", None)) for line in scripted(1)]
    assert list(replay(lines))


def test_an_input_that_is_refused_now_is_a_difference() -> None:
    """An input was accepted when it was recorded. If the engine refuses it now, the difference has the reason."""
    never_opened = b'{"input":"receive_open","channel":1,"opening":{"type":"PipeOpening","server":"files"}}\n'
    backwards = [b'{"input":"handle_timeout","now":2.0}\n', b'{"input":"handle_timeout","now":1.0}\n']
    for lines, reason in (([never_opened], b"channel 1"), (backwards, b"backwards")):
        (difference,) = replay([BEGIN, *lines])
        assert difference.line == 1 + len(lines)
        assert reason in difference.replayed


# --- Invalid traces -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "lines",
    [
        [b""],
        [b"\n"],
        [b"{}\n"],
        [b"null\n"],
        [b"\xff\xfe\n"],
        [b'{"input":1}\n'],
        [b'{"input":"new_channel"}\n'],
        [b'{"input":"begin"}\n'],
        [b'{"input":"begin","plan":{}}\n'],
        [b'{"input":"begin","plan":{"servers":[]},"limits":{"drain_s":-1}}\n'],
        [BEGIN, b"{"],
        [BEGIN, b'{"input":"receive_nonsense"}\n'],
        [BEGIN, b'{"input":"receive_open","channel":1}\n'],
        [BEGIN, b'{"input":"receive_open","channel":1,"opening":{"type":"Other"}}\n'],
        [BEGIN, b'{"input":"handle_timeout","effects":' + b"[" * 100_000],
    ],
)
def test_garbage_is_refused(lines: list[bytes]) -> None:
    """The error names the number of the bad line."""
    with pytest.raises(ValueError, match=f"line {len(lines)} "):
        list(replay(lines))


@given(noise=st.binary(max_size=20), at=st.integers(0, 30))
def test_noise_within_a_trace_is_refused(noise: bytes, at: int) -> None:
    """Random bytes anywhere in a trace raise ValueError and nothing else."""
    lines = scripted(1)
    at = min(at, len(lines) - 1)
    with pytest.raises(ValueError):
        list(replay([*lines[:at], noise + lines[at][: len(lines[at]) // 2], *lines[at + 1 :]]))


def test_an_empty_trace_has_no_difference() -> None:
    assert list(replay([])) == []


# --- Lines ------------------------------------------------------------------------------------------------------------

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
DOWNLOAD = events.DownloadOpening(server="files", sid="s", artifact="a", filename="f", query={})


def recorded(limits: Limits | None = None, **stored: Any) -> tuple[Recorder, list[bytes]]:
    lines: list[bytes] = []
    entropy = Random(5).randbytes
    return Recorder(
        PLAN, entropy=entropy, unix_at_zero=1.0e9, has_storage=True, limits=limits, write=lines.append, **stored
    ), lines


def lines_of(texts: list[bytes]) -> list[Line]:
    return [msgspec.json.decode(text, type=Line) for text in texts]


# --- The first line ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limits", [None, Limits(drain_s=7.0)])
def test_the_first_line_holds_all_arguments_of_the_engine(limits: Limits | None) -> None:
    """Default limits are written out, since later code may have other defaults."""
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


def test_the_recorder_passes_its_arguments_to_the_engine() -> None:
    """The recorder passes its limits and all stored records on to the engine."""
    limits = Limits(start_timeout_s=7.0)
    stored: dict[str, Any] = {"stored": [MADE], "stored_tasks": [TASK], "stored_uploads": [FILE]}
    engine, _ = recorded(limits, **stored)
    bare = BulkEngine(PLAN, entropy=Random(5).randbytes, unix_at_zero=1.0e9, has_storage=True, limits=limits, **stored)
    assert engine.tasks() == bare.tasks() != ()
    assert len(engine.files()) == 2
    assert engine.files() == bare.files()
    for each in (engine, bare):
        each.receive_open(each.new_channel(), events.PipeOpening(server="files"), 0.0)
        each.receive_message(ChannelId(1), INITIALIZE, 0.0)
    assert engine.next_timeout() == bare.next_timeout()
    assert engine.earliest_at == bare.earliest_at == 7.0


# --- The lines of inputs ----------------------------------------------------------------------------------------------

# Each input runs on an engine whose channel 1 is a client's pipe and whose channel 3 is new.
RECORDS: tuple[tuple[str, bytes | None], ...] = (("x", b"v"), ("y", None))

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
        lambda e: e.receive_answer(Ticket(7), storage.Saved(), 2.0),
        Line("receive_answer", 2.0, ticket=7, answer=storage.Saved()),
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
    (lambda e: e.receive_records(list(RECORDS), 2.0), Line("receive_records", 2.0, records=RECORDS)),
    (lambda e: e.handle_timeout(2.0), Line("handle_timeout", 2.0)),
]


@pytest.mark.parametrize(("feed", "expected"), INPUTS, ids=lambda value: getattr(value, "input", ""))
def test_a_line_holds_its_input_and_its_effects(feed: Callable[[Recorder], Any], expected: Line) -> None:
    """A line holds exactly the arguments of the input, its effects, and the bytes drawn in it."""
    drawn: list[bytes] = []

    def entropy(size: int) -> bytes:
        drawn.append(bytes([len(drawn) % 256]) * size)
        return drawn[-1]

    texts: list[bytes] = []
    engine = Recorder(
        PLAN,
        entropy=entropy,
        unix_at_zero=1.0e9,
        has_storage=True,
        stored_tasks=[TASK],
        stored_uploads=[FILE],
        write=texts.append,
    )
    engine.receive_open(engine.new_channel(), events.PipeOpening(server="files"), 1.0)
    engine.receive_message(ChannelId(1), INITIALIZE, 1.0)
    engine.new_channel()
    engine.new_channel()
    before = len(drawn)
    returned = feed(engine)
    line = msgspec.json.decode(texts[-1], type=Line)
    if expected.input == "new_channel":
        assert line == msgspec.structs.replace(expected, channel=returned)
    else:
        effects_raw = msgspec.Raw(msgspec.json.encode(returned))
        assert line == msgspec.structs.replace(expected, effects=effects_raw, drawn=tuple(drawn[before:]))
    assert list(replay(texts)) == []


def test_drawn_bytes_are_recorded_in_order() -> None:
    """Drawn bytes are recorded in order, each in one line only."""
    source, texts, drawn = Random(9), list[bytes](), list[bytes]()

    def entropy(size: int) -> bytes:
        drawn.append(source.randbytes(size))
        return drawn[-1]

    engine = Recorder(PLAN, entropy=entropy, unix_at_zero=1.0e9, has_storage=True, write=texts.append)
    for number in range(3):
        client = engine.new_channel()
        engine.receive_open(client, events.PipeOpening(server="files"), float(number))
        engine.receive_message(client, INITIALIZE, float(number))
    found = [each for line in lines_of(texts) for each in line.drawn]
    assert found == drawn
    assert sum(bool(line.drawn) for line in lines_of(texts)) > 1


# --- Replay -----------------------------------------------------------------------------------------------------------


def test_a_message_passed_in_parts_is_recorded_in_parts() -> None:
    """The query `passes` is answered by the engine and is not recorded."""
    world = driver(ServerPlan(id="http", kind=Kind.HTTP))
    texts: list[bytes] = []
    world.engine = Recorder(  # type: ignore[assignment]
        Plan(servers=(ServerPlan(id="http", kind=Kind.HTTP),), link_keys=(b"k" * 16,), workspaces_path="/w"),
        entropy=Random(1).randbytes,
        unix_at_zero=1.0e9,
        has_storage=True,
        write=texts.append,
    )
    client = connect(world, "http", "http")
    channel = client.request("7", "tools/call", '{"name":"a"}')
    received = world.take_sent("tools/call")
    message = b'{"jsonrpc":"2.0","id":%d,"result":{"content":[],"x":"%b"}}' % (received.id, b"y" * 300_000)
    world.open(received.channel, events.Connected())
    before = len(texts)
    assert not world.engine.passes(received.channel, message[:4096], 10)
    assert world.engine.passes(received.channel, message[:4096], len(message))
    assert len(texts) == before
    world.send_part(received.channel, message[:5000], message[5000:9000], size_bytes=len(message))
    world.send_part(received.channel, message[9000:], is_last=True)
    assert world.only_message(channel)["id"] == 7
    first, last = lines_of(texts)[-2:]
    assert first.size_bytes == len(message)
    assert first.opening == events.Connected()
    assert first.pieces == (message[:5000], message[5000:9000])
    assert (last.pieces, last.cause) == ((message[9000:],), Cause(End.DONE))
    assert list(replay(texts)) == []


def test_a_line_without_effects_is_not_compared() -> None:
    """A line without effects is fed to the engine all the same, and the other lines are compared."""
    engine, texts = recorded()
    engine.receive_open(engine.new_channel(), events.PipeOpening(server="files"), 1.0)
    engine.receive_message(ChannelId(1), GARBAGE, 1.0)
    engine.receive_message(ChannelId(1), INITIALIZE, 1.0)
    texts[-2] = changed(texts[-2], lambda record: record.pop("effects"))
    assert list(replay(texts)) == []


def test_a_trace_that_begins_twice_is_two_runs() -> None:
    """The runs are replayed one after another, each from its own first line."""
    first, second = recorded(), recorded(Limits(drain_s=7.0), stored_tasks=[TASK])
    for engine, _ in (first, second):
        engine.receive_open(engine.new_channel(), events.PipeOpening(server="files"), 1.0)
        engine.receive_message(ChannelId(1), INITIALIZE, 1.0)
    second[0].receive_task_cancel(TASK.id, 1.0)
    assert list(replay([*first[1], *second[1]])) == []


def test_bytes_drawn_before_any_input_are_replayed() -> None:
    """The key of `requestState` is drawn at the start, so a state is valid in the replay as well."""
    world = bridge()
    texts: list[bytes] = []
    plan = Plan(servers=(ServerPlan(id="pipe", kind=Kind.PIPE),), link_keys=(b"k" * 16,), workspaces_path="/w")
    recorder = Recorder(plan, entropy=Random(1).randbytes, unix_at_zero=1.0e9, has_storage=True, write=texts.append)
    world.engine = recorder  # type: ignore[assignment]
    client = modern(world, "pipe")
    channel = client.call()
    start_legacy_server(world)
    received = world.take_sent("tools/call")
    ask(world, received)
    world.wait(Limits().collect_s)
    questions, state = rounds(client, channel, client.last_id)
    (key,) = questions
    again = client.call(requestState=state, inputResponses={key: ACCEPT})
    assert world.take_sent("").frame["result"] == ACCEPT
    world.answer(received, '{"content":[]}')
    assert client.answered(again)["result"]["content"] == []
    assert list(replay(texts)) == []


@pytest.mark.parametrize("more", [{"server": "a"}, {"command": "start"}, {}])
def test_a_command_line_needs_a_server_and_a_command(more: dict[str, str]) -> None:
    """A `receive_command` line that lacks a server or a command is refused."""
    written: list[bytes] = []
    Recorder(PLAN, entropy=bytes, unix_at_zero=0.0, has_storage=True, write=written.append)
    line = json.dumps({"input": "receive_command", "now": 1.0, **more}).encode()
    with pytest.raises(ValueError, match="without what it needs"):
        list(replay([*written, line]))
