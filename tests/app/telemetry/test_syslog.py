"""Tests of records that go to a syslog server."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from isthmus.app.config.audit_checks import SyslogAddress, syslog_address
from isthmus.app.telemetry import syslog
from isthmus.app.telemetry.syslog import Syslog

HEADER = rb"<110>1 20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z [!-~]+ isthmus \d+ audit - "


@contextmanager
def listening(kind: int, address: object, family: int = socket.AF_INET) -> Iterator[socket.socket]:
    with socket.socket(family, kind) as made:
        made.settimeout(10)
        made.bind(address)  # type: ignore[arg-type]
        if kind == socket.SOCK_STREAM:
            made.listen()
        yield made


def test_datagrams(tmp_path: Path) -> None:
    path = str(tmp_path / "log")
    with (
        listening(socket.SOCK_DGRAM, path, socket.AF_UNIX) as unix,
        listening(socket.SOCK_DGRAM, ("127.0.0.1", 0)) as udp,
    ):
        for server, address in (
            (unix, SyslogAddress("unix", path=path)),
            (udp, SyslogAddress("udp", "127.0.0.1", udp.getsockname()[1])),
        ):
            target, lines = Syslog(address), [b'{"a":1}\n', b'{"b":2}\n']
            target.write(lines)
            assert lines == []
            for text in (rb'\{"a":1\}', rb'\{"b":2\}'):
                assert re.fullmatch(HEADER + text, server.recv(1000))
            target.close()


def test_a_stream_has_frames_and_is_opened_again() -> None:
    with listening(socket.SOCK_STREAM, ("127.0.0.1", 0)) as server:
        target = Syslog(SyslogAddress("tcp", *server.getsockname()))
        for _ in range(2):
            target.write([b'{"a":1}\n', b'{"a":1}\n'])
            connection = server.accept()[0]
            received = b""
            while received.count(b"{") < 2:
                received += connection.recv(1000)
            size, _, rest = received.partition(b" ")
            assert re.fullmatch(HEADER + rb'\{"a":1\}', rest[: int(size)])
            assert rest[int(size) :].startswith(size + b" <110>1 ")
            connection.close()
            target.close()


def test_a_server_that_was_started_again_gets_the_record(tmp_path: Path) -> None:
    path = tmp_path / "log"
    target = Syslog(SyslogAddress("unix", path=str(path)))
    for text in (b"1", b"2"):
        with listening(socket.SOCK_DGRAM, str(path), socket.AF_UNIX) as server:
            target.write([text])
            assert server.recv(1000).endswith(b" - " + text)
        path.unlink()
    lines = [b"3", b"4"]
    with pytest.raises(FileNotFoundError):
        target.write(lines)
    assert lines == [b"3", b"4"]


def test_addresses() -> None:
    assert syslog_address("udp://[::1]:514") == SyslogAddress("udp", "::1", 514)
    assert syslog_address("unix:/dev/log") == SyslogAddress("unix", path="/dev/log")
    for text in (
        "/dev/log",
        "unix:log",
        "udp://host",
        "udp://host:0",
        "tcp://host:99999",
        "tls://host:1",
        "udp://h:1/x",
    ):
        assert syslog_address(text) is None


def test_a_server_that_reads_nothing_holds_up_a_write_for_a_while_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syslog, "TIMEOUT_S", 0.05)
    with listening(socket.SOCK_STREAM, ("127.0.0.1", 0)) as server:
        target = Syslog(SyslogAddress("tcp", *server.getsockname()))
        lines = [b"x" * 1_000_000] * 100
        with pytest.raises(TimeoutError):
            target.write(lines)
        assert lines, "the rest is not taken for written"


def test_the_name_of_the_host_is_bounded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "h\n" * 300)
    path = str(tmp_path / "log")
    with listening(socket.SOCK_DGRAM, path, socket.AF_UNIX) as server:
        Syslog(SyslogAddress("unix", path=path)).write([b"1"])
        assert server.recv(1000).split(b" ")[2] == b"h" * syslog.HOST_MAX_CHARS
