"""Tests of the lines of the log about clients: who has them, and what peers can do to them."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from command import INITIALIZE, INITIALIZED, Run, call_message
from isthmus.app.base import logs
from isthmus.app.runtime import request_log
from isthmus.core.base.telemetry import Outcome, RequestEnded, SessionEnded, SessionStarted, TelemetryEvent

TOOLBOX = [sys.executable, str(Path(__file__).parents[1] / "peers" / "toolbox.py")]
EVIL = "nice\x1b[2J\n12:00:00 error   forged"
WHO = ("box", "0123456789", EVIL, "2025-11-25", "token:ci", False)
CALL = (*WHO, (1, 0), "tools/call", "echo")
EVENTS: list[tuple[TelemetryEvent, str | None]] = [
    (SessionStarted(*WHO), "box: session started, revision 2025-11-25 ("),
    (RequestEnded(*WHO, (1, 0), "initialize", "", Outcome.RESULT, 0.1), None),
    (RequestEnded(*CALL, Outcome.RESULT, 0.0004), "box: tools/call echo ok in <1 ms ("),
    (
        RequestEnded(*CALL, Outcome.TOOL_ERROR, 0.5),
        "box: tools/call echo tool error in 500 ms (",
    ),
    (RequestEnded(*WHO, (1, 0), "x", "", Outcome.ERROR, 12.34, code=-32601), "box: x error -32601 in 12.3 s ("),
    (SessionEnded(*WHO, "gone"), "box: session ended: gone ("),
]


@contextlib.contextmanager
def piped_log() -> Iterator[int]:
    """Yields the end of a pipe that the log of `logs.set_up` is written to."""
    logger, stderr = logging.getLogger("isthmus"), sys.stderr
    before = (logger.handlers[:], logger.level, logger.propagate)
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    with os.fdopen(writing, "w") as stream:
        sys.stderr = stream
        try:
            yield reading
        finally:
            sys.stderr = stderr
            logger.handlers[:], level, logger.propagate = before
            logger.setLevel(level)
    os.close(reading)


@pytest.mark.parametrize("format", ["text", "json"])
def test_each_event_has_a_line_that_no_peer_can_forge(format: str) -> None:
    with piped_log() as written:
        logs.set_up("info", format)
        for event, _ in EVENTS:
            request_log.write(event)
        logging.getLogger("isthmus").handlers[0].flush()
        lines = os.read(written, 10_000).decode().splitlines()
    assert all(line.isprintable() for line in lines)
    expected = [text for _, text in EVENTS if text is not None]
    if format == "json":
        told = [json.loads(line) for line in lines]
        assert {one["logger"] for one in told} == {logs.REQUESTS}
        texts = [one["message"] for one in told]
    else:
        texts = [re.sub(r"^\d\d:\d\d:\d\d info    ", "", line) for line in lines]
    assert len(texts) == len(expected)
    assert all(text.startswith(one) and text.endswith(", 012345)") for text, one in zip(texts, expected, strict=True))


@pytest.mark.parametrize(("options", "is_logged"), [((), False), (("--log-level", "info"), True)])
def test_on_stdio_they_are_there_if_they_are_asked_for(options: tuple[str, ...], is_logged: bool) -> None:
    with Run("wrap", *options, "--listen", "stdio", "--", *TOOLBOX) as wrapped:
        wrapped.write(INITIALIZE, INITIALIZED, call_message(2, "echo", text="hidden"), end=True)
        assert wrapped.wait_exit() == 0
        assert ("tools/call echo ok in" in wrapped.stderr) is is_logged
        assert "hidden" not in wrapped.stderr
