"""Tests of the audit log with real processes: one that is killed under load, and workers that share a file."""

from __future__ import annotations

import http.client
import json
import signal
import sys
import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from command import PATIENCE_S, Run, Session, call_message, is_alive, until
from worker_runs import running

PEERS = Path(__file__).parents[1] / "peers"
CLIENTS = 8
CALLS_EACH = 40
"""Calls before the gateway is killed."""
Json = dict[str, Any]


def configuration(folder: Path, *command: str, **audit: Any) -> tuple[Path, Path]:
    """The paths of a configuration and of its audit log."""
    path, log = folder / "isthmus.json", folder / "audit.jsonl"
    config = {
        "core": {"port": 0, "drain_seconds": 2},
        "storage": {"root": str(folder / "data")},
        "telemetry": {"audit": {"file": str(log), **audit}},
        "servers": [{"id": "a", "upstream": {"command": [sys.executable, *command]}, "warm": 0}],
    }
    path.write_text(json.dumps(config))
    return path, log


def call_until_it_ends(url: str, first: int, has_called: threading.Semaphore) -> None:
    """Calls on one connection, each call with a number of its own, until the gateway is gone."""
    session = Session(url)
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=PATIENCE_S)
    headers = {"Content-Type": "application/json", "Accept": "application/json", "Mcp-Session-Id": str(session.id)}
    number = first
    try:
        while True:
            connection.request("POST", parts.path, json.dumps(call_message(1, "count", number=number)), headers)
            assert b"counted" in connection.getresponse().read()
            number += 1
            has_called.release()
    except (OSError, http.client.HTTPException):
        return
    finally:
        connection.close()


def test_each_call_that_a_server_has_seen_is_recorded_when_the_gateway_is_killed(tmp_path: Path) -> None:
    counted = tmp_path / "counted"
    recorder = str(PEERS / "recorder.py")
    path, log = configuration(tmp_path, recorder, str(counted), arguments="full", on_failure="refuse")
    with Run("serve", str(path)) as gateway:
        url = gateway.wait_url()
        has_called = threading.Semaphore(0)
        threads = [
            threading.Thread(target=call_until_it_ends, args=(url, 1_000_000 * i, has_called), daemon=True)
            for i in range(CLIENTS)
        ]
        for thread in threads:
            thread.start()
        for _ in range(CLIENTS * CALLS_EACH):
            assert has_called.acquire(timeout=PATIENCE_S)
        gateway.signal(signal.SIGKILL)
        gateway.wait_exit()
        for thread in threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
    lines = [line.split() for line in counted.read_text().splitlines()]
    until(lambda: not any(is_alive(int(pid)) for _, pid in lines), "the end of the servers")
    seen = {int(line.split()[0]) for line in counted.read_text().splitlines()}
    whole, _, torn = log.read_text().rpartition("\n")
    records = [json.loads(line) for line in whole.splitlines()]
    started = {each["arguments"]["number"] for each in records if each["event"] == "started"}
    assert len(seen) >= CLIENTS * CALLS_EACH
    assert seen <= started
    assert len(started - seen) <= CLIENTS + 1, torn  # those on their way


def test_workers_write_whole_lines_to_one_file(tmp_path: Path) -> None:
    path, log = configuration(tmp_path, str(PEERS / "toolbox.py"))
    with running(path) as workers:
        sessions = workers.sessions(2)
        for _ in range(20):
            for session in (each for found in sessions.values() for each in found):
                session.call("echo", text="x")
        until(lambda: log.exists(), "the audit log")
    records = [json.loads(line) for line in log.read_text().splitlines()]
    assert {each["worker"] for each in records} == set(sessions)
    for tag, found in sessions.items():
        assert len([each for each in records if each["worker"] == tag and each["target"] == "echo"]) == 20 * len(found)
