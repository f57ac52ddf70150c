"""Tests of workers that act as one, with real processes: what one has stored, ended or revoked is known at another one,
and orders to servers reach all of them."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import urlsplit

import pytest
from access_scenes import modern
from command import is_alive, run, until
from file_world import PUPPET, Agent, World
from http_caller import USUAL
from isthmus.app.gateway import Gateway
from worker_runs import Workers, running

PATIENCE_S = 20.0
Json = dict[str, Any]
ALICE = {"authorization": "Bearer alice"}


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    folder = tmp_path_factory.mktemp("workers")
    puppet = {"upstream": {"command": [sys.executable, PUPPET]}, "warm": 0}
    tokens = [{"name": name, "sha256": digest(name)} for name in ("alice", "bob")]
    config = {
        "core": {"port": 0, "drain_seconds": 2},
        "auth": {"tokens": [*tokens, {"name": "op", "sha256": digest("op"), "groups": ["admin"]}]},
        "storage": {"root": str(folder / "data")},
        "servers": [
            {"id": "auto", "files": "auto", **puppet},
            {"id": "tasked", "tasks": {"offer": "always"}, **puppet},
        ],
    }
    path = folder / "isthmus.json"
    path.write_text(json.dumps(config))
    with running(path) as found:
        found.url = found.url.removesuffix("/mcp/a")
        yield found


@contextlib.contextmanager
def connected(workers: Workers, tag: str) -> Iterator[http.client.HTTPConnection]:
    """A connection that one worker has accepted."""
    address = urlsplit(workers.url).netloc
    give_up_at = time.monotonic() + PATIENCE_S
    while time.monotonic() < give_up_at:
        with contextlib.closing(http.client.HTTPConnection(address, timeout=PATIENCE_S)) as connection:
            connection.request("GET", "/healthz", headers=ALICE)
            if json.loads(connection.getresponse().read())["replica"] == tag:
                yield connection
                return
    raise AssertionError(f"no connection reaches {tag}")


def ask(connection: http.client.HTTPConnection, method: str, **params: object) -> http.client.HTTPResponse:
    """Sends a request of a client without sessions."""
    headers, body = modern(method, **params)
    connection.request("POST", "/mcp/auto", body, USUAL | ALICE | headers)
    response = connection.getresponse()
    assert response.status == 200
    return response


def write(connection: http.client.HTTPConnection, name: str) -> None:
    """Has a tool write a file, which becomes an artifact."""
    steps = [["write", name, "content"]]
    ask(connection, "tools/call", name="act", arguments={"steps": steps, "text": "wrote {0}"}).read()


def messages(response: http.client.HTTPResponse) -> Iterator[Json]:
    while line := response.readline():
        if line.startswith(b"data:") and line[5:].strip():
            yield json.loads(line[5:])


def listed(connection: http.client.HTTPConnection) -> set[str]:
    text = ask(connection, "resources/list").read()
    data = next(line[5:] for line in text.split(b"\n") if line[:6] == b"data: ") if text[:1] != b"{" else text
    return {each["name"] for each in json.loads(data)["result"]["resources"]}


def agent(workers: Workers, tag: str, server: str, name: str = "alice") -> Agent:
    """A client with a session that one worker has."""
    world = World(cast(Gateway, SimpleNamespace(base_url=workers.url)), Path())
    give_up_at = time.monotonic() + PATIENCE_S
    while time.monotonic() < give_up_at:
        found = Agent(world, server, headers={"authorization": f"Bearer {name}"})
        if found.headers["mcp-session-id"].startswith(f"{tag}."):
            return found
        found.end()
    raise AssertionError(f"no session is at {tag}")


def command(workers: Workers, *words: str) -> tuple[int, str]:
    code, stdout, stderr = run(*words, "--url", workers.url, "--token", "op")
    return code, stdout + stderr


def shown(workers: Workers, server: str) -> Json:
    code, text = command(workers, "ps", "--json")
    assert code == 0
    return next(each for each in json.loads(text) if each["name"] == server)


def states(workers: Workers, server: str) -> dict[str, str]:
    return {each["worker"]: each["state"] for each in shown(workers, server)["workers"]}


def test_the_banner_says_how_many_workers_one_address_has(workers: Workers) -> None:
    assert "2 workers accept connections at this address" in workers.stdout.splitlines()[1]


def test_clients_of_a_worker_are_told_of_an_artifact_of_another_one(workers: Workers) -> None:
    with connected(workers, "w1") as one, connected(workers, "w2") as other, connected(workers, "w2") as asking:
        listening = ask(other, "subscriptions/listen", notifications={"resourcesListChanged": True})
        told = messages(listening)
        assert next(told)["method"] == "notifications/subscriptions/acknowledged"
        for name in ("one.txt", "two.txt"):
            write(one, name)
            assert next(told)["method"] == "notifications/resources/list_changed"
            assert name in listed(asking)
        listening.close()


def test_a_task_that_has_ended_at_a_worker_is_listed_at_another_one(workers: Workers) -> None:
    one, other = agent(workers, "w1", "tasked"), agent(workers, "w2", "tasked")
    call = {"name": "act", "arguments": {"text": "done"}, "task": {}}
    id = one.request("tools/call", call)["task"]["taskId"]
    one.request("tasks/result", {"taskId": id})

    def states() -> Json:
        return {each["taskId"]: each["status"] for each in other.request("tasks/list")["tasks"]}

    until(lambda: states().get(id) == "completed", "the end of the task")
    call["arguments"] = {"steps": [["wait", "never"]]}
    id = one.request("tools/call", call)["task"]["taskId"]
    until(lambda: id in states(), "the task")
    assert other.request("tasks/cancel", {"taskId": id})["status"] == "cancelled"
    until(lambda: one.request("tasks/get", {"taskId": id})["status"] == "cancelled", "its end")


def test_a_caller_who_is_revoked_at_a_worker_is_refused_at_all(workers: Workers) -> None:
    """The streams of the caller at other workers end at once."""
    bob = agent(workers, "w2", "auto", "bob")
    with connected(workers, "w1") as one, connected(workers, "w2") as other:
        other.request("GET", "/mcp/auto", headers={**bob.headers, "accept": "text/event-stream"})
        stream = other.getresponse()
        assert stream.status == 200
        one.request("POST", "/auth/revoke?name=token:bob", headers={"authorization": "Bearer op"})
        assert one.getresponse().read().startswith(b'{"name":"token:bob"')
        with contextlib.suppress(http.client.IncompleteRead):
            stream.read()
    with connected(workers, "w2") as other:
        other.request("POST", "/mcp/auto", b"{}", headers=USUAL | {"authorization": "Bearer bob"})
        refused = other.getresponse()
        assert refused.status == 401 and b"it was revoked at 20" in refused.read()


def test_ps_and_orders_reach_all_workers(workers: Workers) -> None:
    for tag in ("w1", "w2"):
        agent(workers, tag, "auto")
    seen = shown(workers, "auto")
    assert [each["worker"] for each in seen["workers"]] == ["w1", "w2"]
    pids = seen["pids"]
    assert len({each["pids"][0] for each in seen["workers"]}) == 2 and seen["sessions"] >= 2
    code, text = command(workers, "ps")
    assert code == 0 and [line.split()[:3] for line in text.splitlines()[:3]] == [
        ["ID", "WORKER", "STATE"],
        ["auto", "w1", "running"],
        ["auto", "w2", "running"],
    ]
    assert command(workers, "stop", "auto") == (0, "auto is stopped in 2 workers")
    assert not any(map(is_alive, pids)), "a stop is answered when the processes of all are gone"
    assert states(workers, "auto") == {"w1": "stopped", "w2": "stopped"}
    os.kill(workers.pid_of("w1"), signal.SIGKILL)
    workers.wait_line("worker w1 has ended by SIGKILL", "stderr")
    until(lambda: states(workers, "auto") == {"w1": "stopped", "w2": "stopped"}, "a stop that outlives a worker")
    code, text = command(workers, "stop", "auto")
    assert code == 1 and "auto is stopped already" in text
    assert command(workers, "start", "auto") == (0, "auto runs in 2 workers")
    seen = shown(workers, "auto")
    assert states(workers, "auto") == {"w1": "running", "w2": "running"} and len(seen["pids"]) == 2
    assert command(workers, "restart", "auto") == (0, "auto runs again in 2 workers")
    assert not set(seen["pids"]) & set(shown(workers, "auto")["pids"])
    code, text = command(workers, "start", "nothing")
    assert code == 1 and "expected one of auto, tasked" in text


def test_what_was_stored_while_a_worker_started_is_known_there(workers: Workers) -> None:
    """The last test here, since it kills a worker: what its successor was not told of, it reads when it starts."""
    pid = workers.pid_of("w2")
    with connected(workers, "w1") as one:
        os.kill(pid, signal.SIGKILL)
        write(one, "meanwhile.txt")
        workers.wait_line("worker w2 has ended by SIGKILL", "stderr")
        with connected(workers, "w2") as other:
            assert "meanwhile.txt" in listed(other)
            write(one, "later.txt")
            until(lambda: "later.txt" in listed(other), "the artifact")
