"""A run and its trace: what was recorded happens again, a difference is told with its line, the rest is no trace."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.base import effects
from isthmus.core.base.effects import Cause, End
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
from isthmus.core.engine import Engine
from isthmus.core.files.store.records import StoredUpload
from isthmus.core.state.task import State
from isthmus.core.status import Command
from isthmus.core.tasks.record import StoredTask
from isthmus.core.trace import Recorder, replay

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
    link_key=b"k" * 32,
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
    status=State.WORKING,
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


def recorder(seed: int, lines: list[bytes], limits: Limits | None = None) -> Recorder:
    entropy = Random(seed).randbytes
    return Recorder(
        PLAN,
        entropy=entropy,
        unix_at_zero=1.0e9,
        limits=limits,
        stored_tasks=(TASK,),
        stored_uploads=(FILE,),
        write=lines.append,
    )


def scripted(seed: int) -> list[bytes]:
    """A run that uses every input once at least: files in both directions, garbage, a death, time and the end."""
    lines: list[bytes] = []
    engine = recorder(seed, lines)
    pipe = engine.new_channel()
    engine.receive_open(pipe, effects.PipeOpening(server="files"), 0.0)
    child = dialled(engine.receive_message(pipe, INITIALIZE, 0.0))
    engine.receive_open(child, effects.Connected(), 0.5)
    engine.receive_message(child, WELCOME, 1.0)
    engine.receive_message(pipe, b'{"jsonrpc":"2.0","method":"notifications/initialized"}', 1.0)
    engine.receive_message(pipe, b"\xff{", 1.5)
    upload = engine.new_channel()
    engine.receive_open(upload, effects.UploadOpening(server="files", query={"sid": "x"}), 1.5)
    download = engine.new_channel()
    opening = effects.DownloadOpening(server="files", sid="s", artifact="a", filename="f", query={})
    engine.receive_open(download, opening, 1.5)
    engine.receive_message(pipe, call(7, "make"), 2.0)
    image = b'{"content":[{"type":"image","data":"aGk=","mimeType":"image/png"}]}'
    orders = engine.receive_message(child, b'{"jsonrpc":"2.0","id":2,"result":' + image + b"}", 2.5)
    collect = next(order for order in orders if isinstance(order, effects.Collect))
    file = effects.CollectedFile(filename="a.png", size_bytes=2, sha256="00", head=b"hi")
    orders = engine.receive_answer(collect.ticket, effects.Collected(files=(file,)), 3.0)
    save = next(order for order in orders if isinstance(order, effects.Save))
    orders = engine.receive_answer(save.ticket, effects.Saved(), 3.0)
    answer = next(order for order in orders if isinstance(order, effects.Send))
    engine.receive_sent(pipe, len(answer.message), 3.0)
    engine.receive_answer(Ticket(99), effects.StorageFailed(reason="late"), 3.0)
    engine.receive_message(pipe, call(8, "other"), 3.5)
    engine.receive_messages(child, (b"no message", b'{"jsonrpc":"2.0","method":"notifications/other"}'), 3.5)
    engine.receive_close(child, Cause(End.BROKEN, "exit code 1"), 4.0)
    engine.handle_timeout(4000.0)
    lost = effects.DownloadOpening(server="files", sid="s", artifact="a", filename="f", query={})
    engine.receive_at_once(engine.new_channel(), 4000.5, opening=lost, cause=Cause(End.GONE))
    engine.receive_pieces(pipe, (WELCOME[:9], WELCOME[9:]), 4000.5)
    engine.receive_part(child, (b"crossed its end",), 4000.5, cause=Cause(End.DONE))
    engine.receive_command("files", Command.RESTART, 4000.5)
    engine.receive_task_cancel(TASK.id, 4000.5)
    engine.receive_file_delete(FILE.id, 4000.5)
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
    """So that the tests below speak of all of them."""
    inputs = {msgspec.json.decode(line)["input"] for line in scripted(1)}
    wanted = {name for name in vars(Engine) if name.startswith("receive_")} | {"begin", "new_channel", "handle_timeout"}
    assert inputs == wanted


def test_a_recorded_run_repeats_without_a_difference() -> None:
    """Twice, since a replay must leave nothing behind."""
    lines = scripted(1)
    assert list(replay(lines)) == []
    assert list(replay(lines)) == []


def test_equal_seeds_give_equal_bytes() -> None:
    """And another seed gives other names."""
    assert scripted(1) == scripted(1)
    assert scripted(1) != scripted(2)


def test_each_line_is_one_line() -> None:
    """JSON Lines: whatever crossed the wire, a line ends only where a record does."""
    for line in scripted(1):
        assert line.endswith(b"\n")
        assert line.count(b"\n") == 1
        assert isinstance(msgspec.json.decode(line), dict)


def test_the_recorder_answers_what_the_engine_answers() -> None:
    """It adds nothing and keeps nothing back."""
    recorded = recorder(3, [])
    bare = Engine(PLAN, entropy=Random(3).randbytes, unix_at_zero=1.0e9, stored_tasks=(TASK,), stored_uploads=(FILE,))
    for engine in (recorded, bare):
        assert engine.new_channel() == 1
    opening = effects.PipeOpening(server="files")
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
    """Whatever happens in whatever order, sensible or not."""
    lines: list[bytes] = []
    engine = recorder(seed, lines, Limits(outbox_high_bytes=50, outbox_low_bytes=10))
    now, known = 0.0, [ChannelId(1)]
    posts: set[ChannelId] = set()
    posted: set[ChannelId] = set()
    engine.receive_open(engine.new_channel(), effects.PipeOpening(server="files"), now)
    for _ in range(data.draw(st.integers(1, 12))):
        now += data.draw(st.sampled_from([0.0, 1.0, 100.0]))
        channel = data.draw(st.sampled_from(known))
        kind = data.draw(st.sampled_from(["message", "message", "connected", "close", "time", "pipe", "post"]))
        orders: list[effects.Effect] = []
        if kind == "message":
            if channel in posted:
                continue  # a POST has one body: a second is the driver's mistake, and raises
            posted |= {channel} & posts
            orders = engine.receive_message(channel, data.draw(st.sampled_from(MESSAGES)), now)
        elif kind == "connected":
            orders = engine.receive_open(channel, effects.Connected(), now)
        elif kind == "close":
            orders = engine.receive_close(channel, Cause(data.draw(st.sampled_from(End))), now)
        elif kind == "time":
            orders = engine.handle_timeout(now)
        else:
            known.append(engine.new_channel())
            server = data.draw(st.sampled_from(["files", "web"]))
            if kind == "post":
                posts.add(known[-1])
                engine.receive_open(known[-1], effects.PostOpening(server=server), now)
            else:
                engine.receive_open(known[-1], effects.PipeOpening(server=server), now)
        known += [order.channel for order in orders if isinstance(order, effects.Dial)]
    assert list(replay(lines)) == []


# --- Differences ----------------------------------------------------------------------------------------------------


def changed(line: bytes, change: Callable[[dict[str, object]], None]) -> bytes:
    record = msgspec.json.decode(line, type=dict[str, object])
    change(record)
    return msgspec.json.encode(record) + b"\n"


def test_a_changed_effect_is_told_with_its_line() -> None:
    """Each line with effects, changed alone, is the one difference there is."""
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


def test_a_changed_input_is_told_where_it_shows() -> None:
    """Another answer than the one recorded: the first difference is on that line, and replay goes on."""
    lines = scripted(1)
    at = next(
        i for i, line in enumerate(lines) if msgspec.json.decode(line).get("answer", {}).get("type") == "Collected"
    )
    nothing = {"type": "Collected", "files": [{"problem": "gone"}]}
    tampered = changed(lines[at], lambda record: record.update(answer=nothing))
    differences = list(replay([*lines[:at], tampered, *lines[at + 1 :]]))
    assert differences[0].line == at + 1


def test_lost_randomness_is_a_difference() -> None:
    """An engine that draws more than was recorded shows it in its effects, and is not stopped by it."""
    lines = [changed(line, lambda record: record.pop("drawn", None)) for line in scripted(1)]
    assert list(replay(lines))


def test_an_input_that_is_refused_now_is_a_difference() -> None:
    """Recorded it can only have been accepted; the difference says what the engine has against it."""
    never_opened = b'{"input":"receive_open","channel":1,"opening":{"type":"PipeOpening","server":"files"}}\n'
    backwards = [b'{"input":"handle_timeout","now":2.0}\n', b'{"input":"handle_timeout","now":1.0}\n']
    for lines, reason in (([never_opened], b"channel 1"), (backwards, b"backwards")):
        (difference,) = replay([BEGIN, *lines])
        assert difference.line == 1 + len(lines)
        assert reason in difference.replayed


# --- What is no trace -----------------------------------------------------------------------------------------------


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
    """With the number of the line that is none."""
    with pytest.raises(ValueError, match=f"line {len(lines)} "):
        list(replay(lines))


@given(noise=st.binary(max_size=20), at=st.integers(0, 30))
def test_noise_within_a_trace_is_refused(noise: bytes, at: int) -> None:
    """Cut in anywhere, it is a ValueError and nothing else."""
    lines = scripted(1)
    at = min(at, len(lines) - 1)
    with pytest.raises(ValueError):
        list(replay([*lines[:at], noise + lines[at][: len(lines[at]) // 2], *lines[at + 1 :]]))


def test_no_line_at_all_is_no_difference() -> None:
    assert list(replay([])) == []
