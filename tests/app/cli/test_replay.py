"""Tests of `isthmus replay`: a record goes to the server, a trace to an engine, and any other file is refused."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from conforming import Run, on_stdio
from isthmus.app.cli.replay import DIFFERENCES_MAX
from isthmus.core.base.events import PipeOpening
from isthmus.core.base.plan import Kind, Plan, ServerPlan
from isthmus.core.trace import Recorder

PING = {"body": '{"jsonrpc":"2.0","id":1,"method":"ping"}'}
RECORD = {
    "rule": "unanswered",
    "text": "",
    "clause": "",
    "conversation": {"revision": "2025-06-18", "steps": [{"body": "{"}, PING]},
}
"""A record of a server that dies when it gets invalid JSON."""


def trace() -> list[bytes]:
    """The trace of a client that connects, sends a few messages and is refused."""
    lines: list[bytes] = []
    plan = Plan(servers=(ServerPlan(id="server", kind=Kind.PIPE),))
    engine = Recorder(plan, entropy=random.Random(1).randbytes, unix_at_zero=0.0, write=lines.append)
    client = engine.new_channel()
    engine.receive_open(client, PipeOpening("server"), 0.0)
    for _ in range(DIFFERENCES_MAX + 1):
        engine.receive_message(client, b"{}", 1.0)
    return lines


def test_a_record_is_played_with_the_server(replay: Run) -> None:
    Path("broken.jsonl").write_text(json.dumps(RECORD) + "\n")
    code, out, _ = replay("broken.jsonl", *on_stdio("fragile"))
    assert code == 1
    assert "unanswered (MUST)" in out
    code, out, _ = replay("broken.jsonl", *on_stdio("none"))
    assert code == 0
    assert "unanswered: not broken any more" in out
    code, out, _ = replay("--ignore", "unanswered", "broken.jsonl", *on_stdio("fragile"))
    assert (code, out) == (0, "no rules broken\n")


def test_a_record_of_nothing_is_one(replay: Run) -> None:
    Path("broken.jsonl").touch()
    assert replay("broken.jsonl", *on_stdio("none"))[:2] == (0, "no rules broken\n")


def test_a_trace_is_played_with_an_engine(replay: Run) -> None:
    lines = trace()
    Path("trace.jsonl").write_bytes(b"".join(line.rstrip(b"\n") + b"\n" for line in lines))
    assert replay("trace.jsonl")[:2] == (0, "0 lines differ\n")


def test_the_differences_of_a_trace_are_shown_up_to_a_limit(replay: Run) -> None:
    changed = [line.rstrip(b"\n").replace(b'"effects":[{', b'"effects":["odd",{') for line in trace()]
    Path("trace.jsonl").write_bytes(b"\n".join(changed))
    code, out, _ = replay("trace.jsonl")
    assert code == 1
    assert out.count("\n  became ") == DIFFERENCES_MAX
    assert '["odd"' in out
    assert max(map(len, out.splitlines())) < 400
    assert out.endswith(f"… and 1 more\n{DIFFERENCES_MAX + 1} lines differ\n")


@pytest.mark.parametrize(
    ("content", "arguments", "code", "complaint"),
    [
        (b'{"rule":"unanswered"}', ("-",), 2, "line 1"),
        (b'{"input":"begin"}', ("-",), 2, "a trace of isthmus, which is played without one"),
        (b'{"input":"begin"}', (), 1, "line 1 begins a trace without a plan"),
        (json.dumps(RECORD).encode(), (), 2, "got nothing to test"),
        (json.dumps(RECORD).encode(), ("--only", "no-rule", "-"), 2, "got --only 'no-rule'"),
        (b"{}", (), 2, "is neither a trace of isthmus nor a record"),
        (b"\xff", (), 2, "is neither a trace of isthmus nor a record"),
        (b"[" * 20_000, (), 2, "is neither a trace of isthmus nor a record"),
        (b"", (), 2, "is neither a trace of isthmus nor a record"),
        (None, (), 2, "cannot be read"),
    ],
)
def test_an_unreadable_recording_is_refused(
    content: bytes | None, arguments: tuple[str, ...], code: int, complaint: str, replay: Run
) -> None:
    if content is not None:
        Path("file").write_bytes(content)
    server = on_stdio("none") if "-" in arguments else ()
    seen, out, err = replay(*(word for word in arguments if word != "-"), "file", *server)
    assert (seen, out) == (code, "")
    assert complaint in err
