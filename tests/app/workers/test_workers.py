"""Tests of `isthmus serve --workers` with real processes: sessions and files through any worker, deaths and reloads."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from command import Run, Session, is_alive, request, run, until
from file_caller import Caller
from worker_runs import Workers, children, family, running, status_of, tool_pid

Write = Callable[..., Path]


class Load:
    """Clients that call all the time, in a thread. Each call has a connection of its own.

    Attributes:
        failures: the statuses of calls that failed, with their sessions.
        count: the number of calls.
    """

    def __init__(self, sessions: list[Session]) -> None:
        self.failures: list[tuple[str | None, int]] = []
        self.count = 0
        self._sessions = sessions
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @contextmanager
    def running(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._is_over.set()
            self._thread.join(60)

    def wait_more(self, count: int = 20) -> None:
        wanted = self.count + count
        until(lambda: self.count >= wanted, "more calls")

    def _run(self) -> None:
        while not self._is_over.is_set():
            for session in self._sessions:
                try:
                    status = status_of(session)
                except OSError as error:
                    status = -(error.errno or 1)
                if status != 200:
                    self.failures.append((session.id, status))
                self.count += 1


def test_any_worker_serves_sessions_files_and_sockets(write_config: Write, tmp_path: Path) -> None:
    with running(write_config()) as workers:
        found = workers.sessions(3)
        assert sorted(found) == ["w1", "w2"]
        for session in [each[0] for each in found.values()]:
            assert len({tool_pid(session) for _ in range(12)}) == 1, "one process, whichever worker is connected to"
        # Files: the link, the upload and the call meet any worker.
        for number in range(8):
            caller = Caller(workers.url.removesuffix("/mcp/a"))
            content = b"%d" % number
            body = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n%b\r\n--x--\r\n' % content
            form = {"Content-Type": "multipart/form-data; boundary=x"}
            reply = caller.fetch("POST", caller.link(), form, body)
            assert reply.status == 200, reply.body
            assert caller.content(reply.json["upload_handle"]) == content
        for path in ("http.sock", "lines.sock"):
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(tmp_path / path))
        shown = caller.fetch("GET", f"{workers.url.removesuffix('/mcp/a')}/metrics").body.decode()
        sessions = [line for line in shown.splitlines() if line.startswith("isthmus_sessions{")]
        assert sorted(line.partition(",")[0] for line in sessions) == [
            'isthmus_sessions{worker="w1"',
            'isthmus_sessions{worker="w2"',
        ]
        assert 'isthmus_worker_answers{worker="w2"} 1' in shown
        banners = [line for line in workers.stdout.splitlines() if "listens on" in line]
        assert len(banners) == 1
        assert not (tmp_path / "data/workspaces/.lock").stat().st_size
    assert sorted(each.name for each in (tmp_path / "data/workspaces").iterdir()) == [".lock"]
    assert not (tmp_path / "http.sock").exists() and not (tmp_path / "lines.sock").exists()


def test_the_death_of_a_worker_ends_its_sessions_alone(write_config: Write) -> None:
    """Sessions of the other go on, and those of the dead one are told to begin anew. It is started again."""
    with running(write_config()) as workers:
        found = workers.sessions()
        dead, kept = found["w1"][0], found["w2"][0]
        before = tool_pid(dead)
        load = Load([kept])
        with load.running():
            load.wait_more()
            os.kill(workers.pid_of("w1"), signal.SIGKILL)
            until(lambda: status_of(dead) == 404, "its end")  # 503 as long as a connection was open to it
            load.wait_more()
            workers.wait_line("worker w1 has ended by SIGKILL", "stderr")
            until(lambda: not is_alive(before), "the end of its server")
            load.wait_more()
        broken = [status for _, status in load.failures]  # a call on a connection of the dead one
        assert max(broken, default=-1) < 0 and len(broken) <= 1
        assert set(workers.sessions()) == {"w1", "w2"}, "it is back under its tag"
        until(lambda: status_of(dead) == 404, "its end")  # 503 until the other knows of the new run


def test_a_reload_loses_no_request(write_config: Write) -> None:
    """Workers are replaced one after another. Sessions go on at the old ones; new ones have the new configuration."""
    with running(write_config()) as workers:
        found = workers.sessions()
        old = [each[0] for each in found.values()]
        pids = {session.id: tool_pid(session) for session in old}
        load = Load(old)
        with load.running():
            load.wait_more()
            config = json.loads(write_config(drain_seconds=20).read_text())
            config["servers"][0]["tools"] = {"include": ["ec*", "environment"]}
            write_config(**config)
            workers.signal(signal.SIGHUP)
            workers.wait_line("all workers have the new configuration", "stderr")
            load.wait_more()
        assert load.failures == []
        assert {session.id: tool_pid(session) for session in old} == pids
        found = workers.sessions()
        assert sorted(found) == ["w3", "w4"]
        listed = found["w3"][0].post({"jsonrpc": "2.0", "id": 5, "method": "tools/list"})
        names = {tool["name"] for tool in listed["result"]["tools"]}
        assert {"echo", "environment"} < names and "wait" not in names


def test_sessions_of_replaced_workers_end_with_the_time_to_drain(write_config: Write) -> None:
    with running(write_config(drain_seconds=0.5)) as workers:
        old = workers.sessions()["w1"][0]
        before = set(workers.children)
        workers.signal(signal.SIGHUP)
        workers.wait_line("all workers have the new configuration", "stderr")
        until(lambda: not any(map(is_alive, before)), "the end of the old workers")
        assert status_of(old) == 404
        assert len(workers.children) == 2


def test_a_worker_that_is_replaced_waits_for_sessions_of_clients_alone(write_config: Write) -> None:
    """No server is started there any more, and one that an operator has started does not hold it up."""
    with running(write_config(drain_seconds=60)) as workers:
        base_url = workers.url.removesuffix("/mcp/a")
        assert run("start", "a", "--url", base_url)[:2] == (0, "a runs in 2 workers")
        found = workers.sessions()
        kept = found["w1"][0]
        second = workers.pid_of("w2")
        for session in found["w2"]:
            request("DELETE", session.url, headers={"Mcp-Session-Id": str(session.id)})
        workers.signal(signal.SIGHUP)
        workers.wait_line("all workers have the new configuration", "stderr")
        until(lambda: not is_alive(second), "the end of a worker")
        assert status_of(kept) == 200
        assert run("restart", "a", "--url", base_url)[:2] == (0, "a runs again in 2 workers")
        assert status_of(kept) == 200


def test_a_faulty_configuration_changes_nothing(write_config: Write) -> None:
    with running(config := write_config()) as workers:
        session = workers.sessions()["w1"][0]
        before = workers.children
        config.write_text('{"servers": [{"id": "a"}]}')
        workers.signal(signal.SIGHUP)
        workers.wait_line("cannot be used, and the old one stays", "stderr")
        write_config(storage={"root": "elsewhere"})
        workers.signal(signal.SIGHUP)
        workers.wait_line("storage cannot change while workers run", "stderr")
        assert workers.children == before and status_of(session) == 200


def test_workers_have_no_live_page(write_config: Write) -> None:
    code, _, err = run("serve", "--workers", "2", "--ui", str(write_config()))
    assert code == 2 and "got --workers and a live page (--ui, ui.listen), expected one of them" in err


def test_a_reload_at_the_start_waits_until_all_workers_run(write_config: Write) -> None:
    with Run("serve", "--workers", "2", str(write_config())) as supervisor:
        until(lambda: bool(children(supervisor.pid)), "the first worker")
        supervisor.signal(signal.SIGHUP)
        supervisor.wait_line("all workers have the new configuration", "stderr")


def test_a_worker_that_ends_again_and_again_ends_all(write_config: Write, tmp_path: Path) -> None:
    with Workers(write_config()) as workers:
        seen = family(workers.pid)
        folder = tmp_path / "data/workspaces/w1"
        pid = workers.pid_of("w1")
        os.kill(pid, signal.SIGSTOP)
        folder.rename(tmp_path / "w1")
        folder.write_text("no folder")
        os.kill(pid, signal.SIGKILL)
        assert workers.wait_exit() == 1
        assert "isthmus: worker w1 has ended 6 times in a row soon after its start" in workers.stderr
        until(lambda: not any(map(is_alive, seen)), "the end of all processes")


def test_a_second_signal_ends_everything_at_once(write_config: Write, tmp_path: Path) -> None:
    with Workers(write_config(drain_seconds=600)) as workers:
        session = workers.sessions()["w2"][0]
        started = tmp_path / "started"
        waiting = threading.Thread(target=lambda: _wait(session, started, tmp_path / "never"), daemon=True)
        waiting.start()
        until(started.exists, "the call")
        seen = family(workers.pid)
        workers.signal(signal.SIGTERM)
        threading.Event().wait(1.1)  # a repetition of the first one until then
        workers.signal(signal.SIGTERM)
        assert workers.wait_exit() == -signal.SIGTERM
        until(lambda: not any(map(is_alive, seen)), "the end of all processes")
        waiting.join(20)


def _wait(session: Session, started: Path, until: Path) -> None:
    try:
        session.call("wait", started=str(started), until=str(until))
    except (OSError, KeyError, ValueError):
        return


def test_workers_end_with_a_supervisor_that_was_killed(write_config: Write) -> None:
    with Workers(config := write_config()) as workers:
        seen = family(workers.pid)
        os.kill(workers.pid, signal.SIGKILL)
        until(lambda: not any(map(is_alive, seen)), "the end of all processes")
    with running(config) as workers:
        assert set(workers.sessions()) == {"w1", "w2"}


def test_the_folder_has_one_supervisor(write_config: Write) -> None:
    with running(config := write_config()):
        for options in ((), ("--workers", "2")):
            code, _, said = run("serve", *options, str(config))
            assert code == 1 and "another process uses" in said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--workers", "0"), "expected a number from 1 to 64"),
        (("--workers", "2", "--stdio"), "serves one client"),
        (("--workers", "2", "--trace", "t.jsonl"), "a trace is of one process"),
    ],
)
def test_what_cannot_be_shared_is_refused(options: tuple[str, ...], said: str, write_config: Write) -> None:
    with Run("serve", str(write_config()), *options) as refused:
        assert refused.wait_exit() == 2 and said in refused.stderr
