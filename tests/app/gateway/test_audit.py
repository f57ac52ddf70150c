"""Tests of the audit log of a running gateway: who used what, who was rejected, and what operators ordered."""

from __future__ import annotations

import contextlib
import json
import logging
import resource
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from access_scenes import ACCESS, ALICE, ROLES, ROOT, TOKENS, modern, opened, server, shown, status_of
from http_caller import MARK, PATIENCE_S, Json, fetch, requested
from isthmus.app.base.errors import StartError
from isthmus.app.config.access_settings import Access, Auth
from isthmus.app.config.audit_settings import Audit
from isthmus.app.config.profile_settings import Profile, ProfileServer
from isthmus.app.config.settings import Core, Settings
from isthmus.app.config.telemetry_settings import Telemetry
from isthmus.app.gateway import Gateway, running
from isthmus.app.telemetry import audit as audit_module

pytestmark = pytest.mark.anyio

TRACE = "0af7651916cd43dd8448eb211c80319c"


@asynccontextmanager
async def audited(
    path: Path, auth: Auth | None = None, rest: Json | None = None, **audit: Any
) -> AsyncIterator[Gateway]:
    settings = Settings(
        core=Core(port=0, drain_seconds=5.0),
        auth=auth or Auth(tokens=TOKENS),
        telemetry=Telemetry(audit=Audit(file=str(path), **audit)),
        **{"servers": (server(),), **(rest or {})},
    )
    with anyio.fail_after(6 * PATIENCE_S):
        async with running(settings, listen=True, is_lasting=False) as found:
            yield found


def records(path: Path, event: str = "") -> list[Json]:
    """The records of a file, in which each line is one."""
    text = path.read_text()
    assert not text or text.endswith("\n")
    found = [json.loads(line) for line in text.split("\n")[:-1]]
    return [each for each in found if event in ("", each["event"])]


@contextlib.contextmanager
def no_room(path: Path, room_bytes: int = 100) -> Iterator[None]:
    """The file cannot grow by more, as on a disk that is full. A write of more writes a part."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + room_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def filled(path: Path) -> None:
    """Writes a file that is longer than any other file of a gateway, so that a limit concerns it alone."""
    path.write_bytes(b'{"event":"old"}\n' * 500_000)


async def failures(found: Gateway) -> float:
    async with requested(f"{found.base_url}/metrics", "GET", shown(ROOT)) as response:
        lines = (await response.body()).decode().splitlines()
    return float(next(line.split()[-1] for line in lines if line.startswith("isthmus_audit_failures_total ")))


# --- Records --------------------------------------------------------------------------------------------------------


async def test_a_call_has_one_record(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    async with audited(path) as found:
        alice = await opened(found, ALICE)
        await alice.call("echo", text="a secret word", more=[1, 2])
        for method in ("ping", "tools/list"):
            await alice.request(method)
        meta = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}
        await alice.request("tools/call", {"name": "echo", "_meta": meta})
    first, second = records(path)
    assert len(first["session"]) == 6
    assert first["session"] == second["session"]
    assert first["time"].endswith("Z") and len(first["time"]) == len("2026-11-29T12:00:00.000Z")
    assert first["duration_ms"] > 0
    assert first == {
        "time": first["time"],
        "event": "request",
        "id": first["id"],
        "principal": "token:alice",
        "address": "127.0.0.1",
        "client": "caller 0",
        "session": first["session"],
        "server": "a",
        "method": "tools/call",
        "target": "echo",
        "argument_bytes": {"text": 15, "more": 6},
        "outcome": "result",
        "servers": ["a"],
        "attempts": 1,
        "duration_ms": first["duration_ms"],
        "request_bytes": 72,
        "result_bytes": first["result_bytes"],
    }
    assert second["trace_id"] == TRACE
    assert second["id"] != first["id"]


@pytest.mark.parametrize("on_failure", ["go_on", "refuse"])
async def test_every_kind_of_client_has_records(tmp_path: Path, on_failure: str) -> None:
    """A profile, clients with and without sessions, a script over plain HTTP: who called which server."""
    path = tmp_path / "audit.jsonl"
    profile = Profile(id="all", servers=(ProfileServer(id="a"), ProfileServer(id="b")))
    rest = {"servers": (server("a"), server("b")), "profiles": (profile,)}
    async with audited(path, rest=rest, on_failure=on_failure) as found:
        alice = await opened(found, ALICE, "all")
        assert "says" in await alice.call("b__echo", text="1")
        for id, tool in (("a", "echo"), ("all", "b__echo")):
            headers, body = modern("tools/call", name=tool, arguments={"text": "2"})
            assert await status_of(f"{found.base_url}/mcp/{id}", "POST", shown(ALICE) | headers, body) == 200
        body = json.dumps({"name": "echo", "arguments": {"text": "3"}}).encode()
        assert await status_of(f"{found.base_url}/mcp/a/tools/call", "POST", shown(ALICE), body) == 200
    ended = records(path, "request")
    assert {each["principal"] for each in ended} == {"token:alice"}
    assert [(each["server"], each["target"], each["servers"]) for each in ended] == [
        ("all", "b__echo", ["b"]),
        ("a", "echo", ["a"]),
        ("all", "b__echo", ["b"]),
        ("a", "echo", ["a"]),
    ]
    assert [each.get("address", "") for each in ended] == ["127.0.0.1"] * 3 + [""]
    started = records(path, "started")
    if on_failure == "go_on":
        assert started == []
        return
    assert [each["id"] for each in started] == [each["id"] for each in ended]
    assert [each["argument_bytes"] for each in started] == [{"text": 3}] * 4
    for before, after in zip(started, ended, strict=True):
        for name in ("principal", "client", "server", "method", "target"):
            assert before[name] == after[name]


async def test_what_is_rejected_has_records(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The level of the log does not matter, and the log stays as it is."""
    caplog.set_level(logging.ERROR, "isthmus")
    path = tmp_path / "audit.jsonl"
    rest = {"servers": (server(access=Access(tools=ACCESS.tools)),)}
    async with audited(path, Auth(tokens=ROLES), rest) as found:
        assert await status_of(f"{found.base_url}/mcp/a?token=hidden", "POST") == 401
        reader = await opened(found, "reader")
        assert "error" in await reader.request("tools/call", {"name": "environment"})
        headers, body = modern("tools/call", name="environment", arguments={})
        assert await status_of(f"{found.base_url}/mcp/a", "POST", shown("reader") | headers, body) == 403
    denied, *refused = records(path)
    assert denied["event"] == "denied"
    assert (denied["http_method"], denied["path"], denied["address"]) == ("POST", "/mcp/a", "127.0.0.1")
    assert denied["reason"] == "no credentials"
    assert [(each["principal"], each["target"], each["attempts"]) for each in refused] == [
        ("token:reader", "environment", 0)
    ] * 2
    assert {each["code"] for each in refused} == {-31009}
    assert not [each for each in caplog.records if each.name == "isthmus.audit"]


async def test_commands_of_operators_have_records(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    async with audited(path) as found:
        for order in ("servers/a/start", "servers/a/stop", "servers/none/stop", "auth/revoke?name=token:alice"):
            await fetch(f"{found.base_url}/{order}", "POST", MARK | shown(ROOT))
        await fetch(f"{found.base_url}/files/file-0123456789", "DELETE", MARK | shown(ROOT))
        await fetch(f"{found.base_url}/servers", "GET", shown(ROOT))
    commands = [(each["command"], each["target"], each["status"]) for each in records(path, "command")]
    assert commands == [
        ("start", "a", 200),
        ("stop", "a", 200),
        ("stop", "none", 404),
        ("revoke", "token:alice", 200),
        ("delete", "file-0", 404),
    ]
    assert {each["principal"] for each in records(path, "command")} == {"token:root"}
    assert [each["text"][:26] for each in records(path, "note")] == ["revoked: what token:alice "]


@pytest.mark.parametrize("arguments", ["keys", "never", "full"])
async def test_no_secret_is_in_a_record(tmp_path: Path, arguments: str) -> None:
    path = tmp_path / "audit.jsonl"
    async with audited(path, arguments=arguments, on_failure="refuse") as found:
        alice = await opened(found, ALICE)
        await alice.call("echo", text="planted-argument")
        await alice.request("resources/read", {"uri": "https://user:planted-user@h/file?signature=planted-link"})
        await alice.request("prompts/get", {"name": "ask", "arguments": {"key": "planted-prompt"}})
        argument = {"name": "key", "value": "planted-value"}
        await alice.request("completion/complete", {"ref": {"type": "ref/prompt", "name": "p"}, "argument": argument})
        await alice.request("tasks/get", {"taskId": "task-id-0123456789"})
        await status_of(f"{found.base_url}/upload/a/x?signature=planted-link", "POST")
        await status_of(f"{found.base_url}/mcp/a", "POST", shown("planted-token"))
    text = path.read_text()
    assert '"target":"https://h/file"' in text and '"task":"task-i"' in text
    assert alice.session is not None
    for secret in (ALICE, alice.session, "planted-user", "planted-link", "planted-token", "0123456789"):
        assert secret not in text
    for secret in ("planted-argument", "planted-prompt", "planted-value"):
        assert (secret in text) == (arguments == "full")
    assert ('"argument_bytes":{"text":18}' in text) == (arguments == "keys")


# --- The file -------------------------------------------------------------------------------------------------------


async def test_a_new_file_is_begun_when_the_old_one_is_moved(tmp_path: Path) -> None:
    path, moved = tmp_path / "audit.jsonl", tmp_path / "audit.jsonl.1"
    async with audited(path, on_failure="refuse") as found:
        alice = await opened(found, ALICE)
        await alice.call("echo", text="1")
        path.rename(moved)
        await alice.call("echo", text="2")
        assert len(records(path, "started")) == 1
        assert path.stat().st_mode & 0o777 == 0o600
    assert len(records(moved, "started")) == 1


async def test_a_full_disk_loses_records_and_no_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_module, "GATHER_S", 0.0)
    path = tmp_path / "audit.jsonl"
    filled(path)
    async with audited(path) as found:
        alice = await opened(found, ALICE)
        with no_room(path):
            for _ in range(3):
                await alice.call("echo", text="lost")
            while await failures(found) < 3:
                pass
        await alice.call("echo", text="written")
    assert [each["event"] for each in records(path)[-2:]] == ["old", "request"]


async def test_a_full_disk_rejects_calls_where_each_must_have_a_record(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "audit.jsonl"
    filled(path)
    async with audited(path, on_failure="refuse") as found:
        alice = await opened(found, ALICE)
        with no_room(path):
            for _ in range(2):
                answer = await alice.request("tools/call", {"name": "environment"})
                assert answer["error"]["code"] == -31009
                text = "tools/call did not run: the audit log cannot be written (File too large)"
                assert answer["error"]["message"] == text
                assert answer["error"]["data"]["outcome"] == "not_executed"
            await alice.request("tools/list")
        assert "says" in await alice.call("echo", text="written")
        assert await failures(found) >= 2
    assert [each["event"] for each in records(path) if each.get("target") == "echo"] == ["started", "request"]
    assert [each["target"] for each in records(path, "started")] == ["echo"]
    lines = [each.getMessage() for each in caplog.records if "the audit log" in each.getMessage()]
    assert len(lines) == 2
    assert lines[0].endswith("cannot be written (File too large): requests are rejected")
    assert "is written again" in lines[1]


async def test_a_gateway_does_not_start_without_its_audit_log(tmp_path: Path) -> None:
    for path, why in ((tmp_path / "none" / "audit.jsonl", "No such file"), (Path("/dev/null"), "is no regular file")):
        with pytest.raises(StartError, match=f"the audit log {path} cannot be written: .*{why}"):
            async with audited(path):
                pass


async def test_calls_at_once_share_a_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records that come while others are brought to the disk are written together."""
    sizes: list[int] = []
    write = audit_module.AuditFile.write

    def counted(self: Any, lines: list[bytes]) -> None:
        sizes.append(len(lines))
        write(self, lines)

    monkeypatch.setattr(audit_module.AuditFile, "write", counted)
    path = tmp_path / "audit.jsonl"
    async with audited(path, on_failure="refuse", rest={"servers": (server(share="concurrent"),)}) as found:
        alice = await opened(found, ALICE)

        async def call() -> None:
            await alice.call("echo", text="1")

        async with anyio.create_task_group() as tasks:
            for _ in range(30):
                tasks.start_soon(call)
    assert sum(sizes) == len(records(path)) == 60
    assert len(sizes) < 60
