"""Tests of the audit log with a target that fails, hangs, or is slow."""

from __future__ import annotations

import logging
import threading
from typing import Any

import anyio
import msgspec
import pytest
from isthmus.app.config import audit_settings
from isthmus.app.telemetry import audit as audit_module
from isthmus.app.telemetry.audit import Audit
from isthmus.core.base.decisions import Allowed, Decide, Decision, Denied
from isthmus.core.base.ids import ChannelId, Ticket
from isthmus.core.base.telemetry import Outcome, RequestEnded, RequestSent, RequestStarted

pytestmark = pytest.mark.anyio

CLIENT: dict[str, Any] = {
    "server": "a",
    "session": "0123456789",
    "client": "c 1",
    "revision": "2025-11-25",
    "principal": "token:ci",
    "is_pipe": False,
}


def started(number: int, method: str = "tools/call", **rest: Any) -> RequestStarted:
    params = b'{"name":"t","arguments":{"a":1}}'
    return RequestStarted(**CLIENT, request=(number, 0), id_raw=b"1", method=method, target="t", params=params, **rest)


def sent(number: int, server: str) -> RequestSent:
    return RequestSent((number, 0), server, 1, None, 1, "", True)


def ended(number: int, method: str = "tools/call", outcome: Outcome = Outcome.RESULT, **rest: Any) -> RequestEnded:
    return RequestEnded(
        **CLIENT, request=(number, 0), method=method, target="t", outcome=outcome, duration_s=0.5, **rest
    )


def decide(number: int, method: str = "tools/call") -> Decide:
    params = b'{"name":"t"}'
    return Decide(Ticket(number), ChannelId(number), "a", "token:ci", method, "t", params, (number, 0), "10.0.0.1")


class Target:
    """Keeps what is written. Fails with `error`, and waits for `may_write`."""

    name = "the target"

    def __init__(self) -> None:
        self.blocks: list[list[bytes]] = []
        self.error: OSError | None = None
        self.may_write = threading.Event()
        self.may_write.set()

    def open(self) -> None: ...

    def close(self) -> None: ...

    def write(self, lines: list[bytes]) -> None:
        assert self.may_write.wait(10)
        if self.error is not None:
            raise self.error
        self.blocks.append(lines[:])
        lines.clear()

    @property
    def records(self) -> list[dict[str, Any]]:
        return [msgspec.json.decode(line) for block in self.blocks for line in block]


def audit_of(target: Target, on_failure: Any = "go_on") -> Audit:
    return Audit(audit_settings.Audit(file="x", on_failure=on_failure), target, replica="r", worker="w1")


async def written(audit: Audit) -> None:
    """Writes all that waits."""
    audit.close()
    with anyio.fail_after(10):
        await audit.run()


async def test_each_server_and_attempt_is_recorded() -> None:
    target = Target()
    audit = audit_of(target)
    audit.receive(started(1, address="10.0.0.1"))
    for server in ("a", "a", "b"):
        audit.receive(sent(1, server))
    audit.receive(ended(1, outcome=Outcome.TOOL_ERROR, result_bytes=7))
    audit.receive(ended(2))  # it began before
    await written(audit)
    first, second = target.records
    assert (first["servers"], first["attempts"], first["outcome"]) == (["a", "b"], 3, "tool_error")
    assert (first["replica"], first["worker"], first["duration_ms"], first["address"]) == ("r", "w1", 500.0, "10.0.0.1")
    assert (second["target"], second["attempts"]) == ("t", 0)


@pytest.mark.parametrize("method", ["ping", "tools/list", "resources/templates/list", "server/discover"])
async def test_a_request_that_uses_nothing_has_a_record_only_if_it_is_rejected(method: str) -> None:
    target = Target()
    audit = audit_of(target)
    for number, is_sent in ((1, False), (2, True), (3, False)):
        audit.receive(started(number, method))
        if is_sent:
            audit.receive(sent(number, "a"))
        audit.receive(ended(number, method, Outcome.ERROR if number > 1 else Outcome.RESULT, code=-31009))
    await written(audit)
    assert [(each["method"], each["code"]) for each in target.records] == [(method, -31009)]


async def test_a_request_waits_for_its_record_and_no_longer() -> None:
    target, answers = Target(), list[tuple[int, Decision]]()
    audit = audit_of(target, "refuse")
    audit.decide(decide(9, "tools/list"), lambda decision: answers.append((9, decision)))
    assert answers == [(9, Allowed())]
    target.may_write.clear()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(audit.run)
        done = anyio.Event()

        def answered(number: int, decision: Decision) -> None:
            answers.append((number, decision))
            if number == 3:
                done.set()

        for number in (1, 2, 3):
            audit.receive(started(number))
            audit.decide(decide(number), lambda decision, number=number: answered(number, decision))  # type: ignore[misc]
            await anyio.wait_all_tasks_blocked()
            assert len(answers) == 1
        target.may_write.set()
        with anyio.fail_after(10):
            await done.wait()
        audit.close()
    assert answers[1:] == [(number, Allowed()) for number in (1, 2, 3)]
    assert [len(block) for block in target.blocks] == [1, 2]


async def test_a_request_that_starts_when_it_is_allowed_has_one_id() -> None:
    target = Target()
    audit = audit_of(target, "refuse")

    def begin(decision: Decision) -> None:
        audit.receive(started(1))
        audit.receive(ended(1))

    audit.decide(decide(1), begin)
    audit.decide(decide(2), lambda decision: None)  # it continues another call
    await written(audit)
    audit.receive(ended(2))
    await written(audit)
    first, second, *rest = target.records
    assert first["address"] == "10.0.0.1"
    assert [each["event"] for each in target.records] == ["started", "started", "request", "request"]
    assert rest[0]["id"] == first["id"] and "argument_bytes" not in rest[0]
    assert rest[1]["id"] not in {first["id"], second["id"]}


async def test_what_cannot_be_written_is_rejected_and_then_written_again(caplog: pytest.LogCaptureFixture) -> None:
    target, answers = Target(), list[Decision]()
    audit = audit_of(target, "refuse")
    for error in (OSError(28, "No space left on device"), OSError(5, "Input/output error"), None):
        target.error = error
        audit.decide(decide(1), answers.append)
        await written(audit)
    words = "tools/call did not run: the audit log cannot be written"
    assert answers == [
        Denied(f"{words} (No space left on device)"),
        Denied(f"{words} (Input/output error)"),
        Allowed(),
    ]
    assert (audit.failures, len(target.records)) == (2, 1)
    assert len([each for each in caplog.records if "cannot be written" in each.message]) == 1  # within a minute
    assert "is written again; 2 records are lost" in caplog.messages[-1]


async def test_records_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_module, "QUEUE_MAX_BYTES", 1000)
    target, answers = Target(), list[Decision]()
    audit = audit_of(target, "refuse")
    for number in range(10):
        audit.decide(decide(number), answers.append)
    denied = "tools/call did not run: the audit log cannot be written (too many records wait to be written)"
    assert set(answers) == {Denied(denied)}
    assert audit.failures == len(answers)
    await written(audit)
    assert sum(map(len, target.blocks[0])) <= 1000
    assert len(target.records) + audit.failures == 10
    assert answers.count(Allowed()) == len(target.records)


async def test_requests_that_never_end_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_module, "OPEN_MAX", 2)
    target = Target()
    audit = audit_of(target)
    for number in (1, 2, 3):
        audit.receive(started(number))
    for number in (1, 2, 3):
        audit.receive(ended(number))
    await written(audit)
    assert ["argument_bytes" in each for each in target.records] == [False, True, True]


async def test_the_end_does_not_wait_for_a_disk_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_module, "CLOSE_TIMEOUT_S", 0.01)
    target = Target()
    monkeypatch.setattr(audit_module, "Syslog", lambda address: target)
    target.may_write.clear()
    with anyio.fail_after(10):
        async with audit_module.opened_audit(audit_settings.Audit(syslog="unix:/dev/log"), "", "") as audit:
            audit.receive(ended(1))
    target.may_write.set()


async def test_the_log_of_other_threads_is_recorded() -> None:
    target = Target()
    audit = audit_of(target)
    record = logging.LogRecord("isthmus.audit", logging.WARNING, "", 0, "limited: %s", ("x\n",), None)
    thread = threading.Thread(target=audit.receive_log, args=(record,))
    thread.start()
    thread.join()
    await written(audit)
    (found,) = target.records
    assert (found["event"], found["level"], found["text"]) == ("note", "warning", "limited: x\n")
