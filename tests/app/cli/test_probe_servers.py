"""Tests of what a summary waits for before it asks the servers: those that start for clients."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from isthmus.app.cli import probe_servers

pytestmark = pytest.mark.anyio


class FakeHub:
    """A hub with one server, whose state a test changes."""

    def __init__(self, sessions: int, state: str) -> None:
        self.status = SimpleNamespace(sessions=sessions, state=state)
        self.engine = SimpleNamespace(report=lambda: [self.status])
        self.change = anyio.Event()

    def become(self, state: str) -> None:
        self.status.state = state
        self.change.set()

    async def wait_until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            await self.change.wait()
            self.change = anyio.Event()


async def let_clients_first(hub: Any) -> None:
    with anyio.fail_after(10):
        await probe_servers._let_clients_first(hub)


async def test_without_a_client_the_servers_are_asked_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_servers, "FIRST_CLIENT_S", 0.001)
    await let_clients_first(FakeHub(0, "idle"))


@pytest.mark.parametrize("state", ["running", "failed"])
async def test_the_server_of_a_client_starts_first(monkeypatch: pytest.MonkeyPatch, state: str) -> None:
    monkeypatch.setattr(probe_servers, "FIRST_CLIENT_S", 60.0)
    hub, order = FakeHub(1, "starting"), []

    async def wait() -> None:
        await let_clients_first(hub)
        order.append("asked")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        order.append(state)
        hub.become(state)
    assert order == [state, "asked"]


async def test_a_server_that_starts_for_long_holds_up_no_summary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_servers, "CLIENTS_FIRST_MAX_S", 0.001)
    await let_clients_first(FakeHub(1, "starting"))
