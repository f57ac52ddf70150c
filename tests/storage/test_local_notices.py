"""Tests of the notices among processes of one machine: processes that do not listen, that die, and that come back."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest
from isthmus.storage import notices
from isthmus.storage.interface import EVERYTHING, Notices, StorageError
from isthmus.storage.local_notices import ENDING, local_notices
from test_notices import LAWS

pytestmark = pytest.mark.anyio


@pytest.fixture
def paused(tmp_path: Path) -> socket.socket:
    """The socket of a process that takes nothing."""
    found = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    found.bind(str(tmp_path / f"paused{ENDING}"))
    return found


@pytest.mark.parametrize("law", LAWS)
async def test_law_between_processes_of_a_machine(
    law: Callable[[Notices, Notices], Awaitable[None]], tmp_path: Path
) -> None:
    with anyio.fail_after(20):
        async with local_notices(str(tmp_path), "w1") as one, local_notices(str(tmp_path), "w2") as other:
            await law(one, other)
            assert not one._inboxes and not other._inboxes


async def test_a_process_that_is_paused_holds_up_no_other(paused: socket.socket, tmp_path: Path) -> None:
    """The notices that wait for it are bounded. It gets the rest when it goes on."""
    count = 3 * notices.TOPICS_MAX
    with paused, anyio.fail_after(30):
        async with (
            local_notices(str(tmp_path), "w1") as one,
            local_notices(str(tmp_path), "w2") as other,
            other.subscribe() as topics,
        ):
            assert await anext(topics) == EVERYTHING
            for number in range(count):
                await one.publish(f"task/{number}")
                assert await anext(topics) == f"task/{number}"
            with anyio.CancelScope() as reading:
                while not reading.cancel_called:
                    await anyio.wait_readable(paused)
                    if paused.recv(1000) == EVERYTHING.encode():
                        reading.cancel()


async def test_a_notice_goes_to_the_process_that_took_the_place_of_a_dead_one(
    paused: socket.socket, tmp_path: Path
) -> None:
    """Notices for the dead one may still wait then. With nobody there, they are dropped."""
    with anyio.fail_after(30):
        async with local_notices(str(tmp_path), "w1") as one:
            with paused:
                for number in range(600):  # more than a socket takes
                    await one.publish(f"task/{number}")
                    await anyio.lowlevel.checkpoint()
                assert one._outboxes
                async with local_notices(str(tmp_path), "paused") as successor, successor.subscribe() as topics:
                    assert await anext(topics) == EVERYTHING
                    paused.close()
                    found = await anext(topics)
                    assert found.startswith("task/") and found != "task/0"
            await one.publish("task/last")
            while one._outboxes:  # noqa: ASYNC110 (a task of the feed has no event)
                await anyio.sleep(0.01)


async def test_notices_end_with_their_folder(tmp_path: Path) -> None:
    """A folder that is gone has no processes. One that cannot be read may have some."""
    folder = tmp_path / "sockets"
    folder.mkdir()
    async with local_notices(str(folder), "w1") as one:
        shutil.rmtree(folder)
        await one.publish("task/1")
        folder.write_text("no folder")
        with pytest.raises(StorageError, match="cannot be found"):
            await one.publish("task/1")
