"""Tests of the file of the audit log: whole lines, whatever happens to the disk or to other processes."""

from __future__ import annotations

import multiprocessing
import os
import resource
from pathlib import Path

import pytest
from isthmus.app.telemetry.audit_file import BEGINNING, TORN_MAX_BYTES, AuditFile

LINE = BEGINNING + b'2026"}\n'


def opened(path: Path, *, is_durable: bool = False) -> AuditFile:
    file = AuditFile(str(path), is_durable=is_durable)
    file.open()
    return file


@pytest.mark.parametrize("is_durable", [False, True])
def test_lines_are_appended(tmp_path: Path, is_durable: bool) -> None:
    path = tmp_path / "audit"
    path.write_bytes(b"old\n")
    lines = [LINE, LINE]
    opened(path, is_durable=is_durable).write(lines)
    assert path.read_bytes() == b"old\n" + 2 * LINE
    assert lines == []


@pytest.mark.parametrize("cut", [1, 5, len(BEGINNING), len(LINE) - 1])
def test_a_record_that_was_cut_off_is_removed(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "audit"
    path.write_bytes(LINE + LINE[:cut])
    opened(path).write([LINE])
    assert path.read_bytes() == 2 * LINE


@pytest.mark.parametrize("text", [b"a note of somebody", b"x" * TORN_MAX_BYTES, BEGINNING + b"x" * TORN_MAX_BYTES])
def test_another_text_stays_and_ends_its_line(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "audit"
    path.write_bytes(LINE + text)
    opened(path).write([LINE])
    assert path.read_bytes() == LINE + text + b"\n" + LINE


@pytest.mark.parametrize("room", [0, 1, len(LINE), len(LINE) + 1])
def test_a_block_that_does_not_fit_leaves_nothing(tmp_path: Path, room: int) -> None:
    path = tmp_path / "audit"
    file = opened(path)
    file.write([LINE] * 10)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10 * len(LINE) + room, hard))
    try:
        lines = [LINE, LINE]
        with pytest.raises(OSError, match="File too large"):
            file.write(lines)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert lines == [LINE, LINE]
    assert path.read_bytes() == 10 * LINE
    file.write(lines)
    assert path.read_bytes() == 12 * LINE


def test_a_file_that_is_moved_or_removed_is_begun_anew(tmp_path: Path) -> None:
    path, moved = tmp_path / "audit", tmp_path / "audit.1"
    file = opened(path, is_durable=True)
    file.write([LINE])
    path.rename(moved)
    file.write([LINE, LINE])
    path.unlink()
    file.write([LINE])
    assert (moved.read_bytes(), path.read_bytes()) == (LINE, LINE)
    os.truncate(path, 0)  # as `copytruncate` does
    file.write([LINE])
    assert path.read_bytes() == LINE


def _write_many(path: str, name: bytes) -> None:
    file = AuditFile(path, is_durable=False)
    file.open()
    for _ in range(200):
        file.write([BEGINNING + name * 3000 + b"\n", BEGINNING + name * 9 + b"\n"])


def test_lines_of_several_processes_stay_whole(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    context = multiprocessing.get_context("fork")
    names = [b"a", b"b", b"c"]
    processes = [context.Process(target=_write_many, args=(str(path), name)) for name in names]
    for process in processes:
        process.start()
    for process in processes:
        process.join(30)
        assert process.exitcode == 0
    found = sorted(path.read_bytes().splitlines())
    assert found == sorted(BEGINNING + name * count for name in names for count in (3000, 9) for _ in range(200))
