"""Tests of `isthmus conform` over HTTP+SSE and WebSocket."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from conforming import KNOWN, QUICK, Run
from faulty_streams import Events, Sockets, serving
from isthmus.app.conform.script.steps import Conversation
from isthmus.app.conform.verdict.report import decode_record

Kind = Callable[[str], Events | Sockets]
ONE = ("--examples", "1", *KNOWN)


def url_of(server: Events | Sockets) -> str:
    scheme = "http" if isinstance(server, Events) else "ws"
    return f"{scheme}://127.0.0.1:{server.server_port}{server.path}"


def test_a_good_server_over_http_sse_passes(conform: Run) -> None:
    """The transport is detected: the server refuses a POST to the URL of its stream."""
    with serving(Events("")) as server:
        code, out, _ = conform(*QUICK, url_of(server))
    assert code == 0, out
    assert "message-on-post " not in out, "its rules are those of 2024-11-05"
    assert "no rules broken" in out


def test_a_good_server_on_a_websocket_passes(conform: Run) -> None:
    with serving(Sockets("pings")) as server:
        code, out, _ = conform(*QUICK, url_of(server))
        assert server.pongs
        assert server.subprotocols == {"mcp"}
    assert code == 0, out
    assert "no rules broken" in out


@pytest.mark.parametrize("kind", [Events, Sockets])
def test_a_fault_is_found_and_made_small(kind: Kind, conform: Run) -> None:
    with serving(kind("twice")) as server:
        code, out, _ = conform("--only", "response-twice", *QUICK, "--record", "found.jsonl", url_of(server))
    assert code == 1, out
    (record,) = decode_record(Path("found.jsonl").read_bytes(), Conversation)
    assert len(record.conversation.steps) <= 4, "a handshake, what shows it, and what ends a conversation"


def test_an_answer_in_the_reply_to_a_post_is_found(conform: Run) -> None:
    with serving(Events("on-post")) as server:
        only = ("--only", "message-on-post", "--examples", "5", "--revision", "2024-11-05")
        code, out, _ = conform(*only, "--log-level", "error", "--transport", "sse", url_of(server))
    assert code == 1, out
    assert "message-on-post (MUST)" in out


@pytest.mark.parametrize("kind", [Events, Sockets])
def test_a_server_that_falls_owes_answers(kind: Kind, conform: Run) -> None:
    steps = [{"body": msgspec.json.encode({"jsonrpc": "2.0", "id": id, "method": "ping"}).decode()} for id in (1, 2)]
    record = {"revision": "2025-06-18", "steps": steps}
    line = {"rule": "unanswered", "text": "", "clause": "", "conversation": record}
    Path("found.jsonl").write_bytes(msgspec.json.encode(line))
    for fault, code in (("falls", 1), ("", 0)):
        with serving(kind(fault)) as server:
            assert conform("--replay", "found.jsonl", "--timeout", "2", url_of(server))[0] == code


@pytest.mark.parametrize(
    "make, fault, complaint",
    [
        (Events, "elsewhere", "names an address to post to that is not of its own origin"),
        (Events, "nowhere", "names no address to post to"),
        (Sockets, "refuses", "the server takes no WebSocket: got HTTP status 403, expected 101"),
    ],
)
def test_a_server_that_cannot_be_spoken_to_is_reported(make: Kind, fault: str, complaint: str, conform: Run) -> None:
    with serving(make(fault)) as server:
        transport = ("--transport", "sse") if isinstance(server, Events) else ()
        timeout = ("--timeout", "0.3" if fault == "nowhere" else "20")
        code, _, err = conform(*ONE, *timeout, *transport, url_of(server))
    assert code == 1
    assert complaint in err


@pytest.mark.parametrize("url", ["ws://127.0.0.1:1/", "wss://127.0.0.1:1/", "sse+http://127.0.0.1:1/"])
def test_where_nobody_listens(url: str, conform: Run) -> None:
    code, _, err = conform(url)
    assert code == 1
    assert "the server cannot be reached" in err
