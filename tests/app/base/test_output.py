"""Tests of output for people: each message is written in one piece."""

from __future__ import annotations

import array
import fcntl
import io
import json
import os
import select
import signal
import subprocess
import sys
import termios
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from isthmus.app.base import output


class Writes(io.RawIOBase):
    """Records each write to it."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        self.writes.append(bytes(data))  # type: ignore[call-overload]
        return len(self.writes[-1])


def test_an_error_message_is_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another writer to stderr, such as the log, cannot come between a line and its end."""
    raw = Writes()
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(raw, encoding="utf-8", write_through=True))
    output.complain("isthmus: no")
    assert [write for write in raw.writes if write] == [b"isthmus: no\n"]


def test_no_byte_is_lost_of_a_process_that_is_stopped_and_goes_on() -> None:
    """Stopping it interrupts its write. Its pipe has taken a part by then."""
    size = 300_000
    program = f"from isthmus.app.base import output; output.set_up(); output.write(b'x' * {size}); output.say('y')"
    environ = os.environ | {"PYTHONUNBUFFERED": "1"}
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, env=environ) as writer:
        assert writer.stdout is not None
        taken = array.array("i", [0])
        while writer.poll() is None and taken[0] < select.PIPE_BUF:
            fcntl.ioctl(writer.stdout, termios.FIONREAD, taken)
            time.sleep(0.01)
        writer.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, writer.pid, os.WSTOPPED)
        writer.send_signal(signal.SIGCONT)
        assert writer.stdout.read() == b"x" * size + b"y\n"


ODD = st.text(st.characters() | st.sampled_from("\\'\"\n\t\r\x1b\x7f\x85\u2028\u202e\ud800\U000e0001"))


def shown(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()


@given(text=ODD)
def test_what_cannot_be_seen_is_an_escape_and_all_else_is_shown_as_it_is(text: str) -> None:
    assert output.plain(text) == "".join(map(shown, text))
    assert output.laid_out(text) == "".join(one if one in "\n\t" else shown(one) for one in text)


@given(text=ODD)
def test_json_for_terminals_is_printable_and_means_the_same(text: str) -> None:
    encoded = json.dumps({text: text}, ensure_ascii=False, indent=2)
    printed = output.plain_json(encoded)
    assert all(line.isprintable() for line in printed.split("\n"))
    assert json.loads(printed) == json.loads(json.dumps({text: text}))
