"""The cost of each promise in operations of shared stores, counted. `docs/scaling.md` has the same table."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from file_world import AUTO, World, artifacts, puppet
from isthmus.app import gateway as gateway_module
from isthmus.app.cluster import joined as joined_module
from isthmus.app.cluster.changes import Changes
from isthmus.app.config.access_settings import Auth, Token
from isthmus.app.config.settings import Core, ServerTasks, Settings, Storage
from isthmus.app.gateway import running
from isthmus.app.stores.stores import Stores
from isthmus.core.access.static_tokens import digest_of
from isthmus.storage.memory import MemoryBlobs, MemoryRecords
from isthmus.storage.notices import MemoryNotices
from shared_gateways import ALICE, KEY, Agent, alice, content

PAGE: Final = Path(__file__).parents[3] / "docs" / "scaling.md"


class Counted:
    """A store that counts what is asked of it, by its kind and the operation. Its openers do not close it."""

    def __init__(self, kind: str, store: Any, counts: Counter[str]) -> None:
        self._kind, self._store, self._counts = kind, store, counts

    async def aclose(self) -> None: ...

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if name == "path_for":
            return found
        return lambda *args, **options: (self._counts.update([f"{self._kind} {name}"]), found(*args, **options))[1]


class Pair:
    """Two replicas in one event loop, on the same stores in memory."""

    def __init__(self, portal: BlockingPortal, counts: Counter[str], worlds: list[World]) -> None:
        self._portal = portal
        self._counts = counts
        self.first, self.second = worlds
        self.costs: dict[str, tuple[str, str]] = {}

    @contextmanager
    def row(self, name: str) -> Iterator[None]:
        """Counts the operations until all orders that the block caused are carried out."""
        self._wait()
        self._counts.clear()
        yield
        self._wait()
        shown = {kind: self._shown(kind) for kind in ("records", "blobs")}
        self.costs[name] = (shown["records"], shown["blobs"])

    def _wait(self) -> None:
        async def settled() -> None:
            with anyio.fail_after(20):
                for world in (self.first, self.second):
                    hub = world.gateway.hub
                    await hub.wait_until(lambda hub=hub: not hub._storing)  # type: ignore[misc]

        self._portal.call(settled)

    def _shown(self, kind: str) -> str:
        found = sorted((name.split()[1], count) for name, count in self._counts.items() if name.startswith(kind))
        return ", ".join(f"{count} {name}" for name, count in found) or "0"


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    counts: Counter[str] = Counter()
    stored = MemoryRecords()
    records, blobs = Counted("records", stored, counts), Counted("blobs", MemoryBlobs(), counts)

    @asynccontextmanager
    async def opened(storage: Storage, root: str, *, may_share: bool, worker: str = "") -> AsyncIterator[Stores]:
        yield Stores(records, blobs, MemoryRecords(), shared=True)  # type: ignore[arg-type]

    async def open_records(storage: Storage, **options: object) -> Counted:
        return Counted("leases", stored, counts)

    @asynccontextmanager
    async def opened_changes(storage: Storage) -> AsyncIterator[Changes]:
        yield Changes(MemoryRecords(), MemoryNotices())  # nobody is told: what is loaded by the way depends on time

    monkeypatch.setattr(gateway_module, "opened", opened)
    monkeypatch.setattr(gateway_module, "opened_changes", opened_changes)
    monkeypatch.setattr(joined_module, "open_records", open_records)
    servers = (AUTO, puppet("tasked", tasks=ServerTasks(offer="always")))

    @asynccontextmanager
    async def both() -> AsyncIterator[list[World]]:
        async with AsyncExitStack() as stack:
            worlds = []
            for name in ("a", "b"):
                settings = Settings(
                    core=Core(port=0, drain_seconds=2.0, link_keys=(KEY,)),
                    auth=Auth(tokens=(Token(name="alice", sha256=digest_of(ALICE).hex()),)),
                    storage=Storage(root=str(tmp_path / name)),
                    servers=servers,
                )
                gateway = await stack.enter_async_context(running(settings, listen=True, is_lasting=True))
                worlds.append(World(gateway, tmp_path / name))
            yield worlds

    with start_blocking_portal("asyncio") as portal, portal.wrap_async_context_manager(both()) as worlds:
        yield Pair(portal, counts, worlds)


def ended(caller: Agent) -> tuple[Any, Any]:
    """A call that became a task, and its result."""
    params = {"name": "act", "arguments": {"text": "done"}, "task": {}}
    task = caller.request("tools/call", params)["task"]
    return task, caller.request("tasks/result", {"taskId": task["taskId"]})


def test_the_cost_of_each_promise(pair: Pair) -> None:
    with pair.row("a session begins"):
        caller, other = alice(pair.first), alice(pair.second)
    with pair.row("a plain call"):
        assert caller.text("act", text="plain") == "plain"
    caller.put("first.txt", b"first")
    with pair.row("an upload link is given"):
        link = caller.link()
    with pair.row("a file is uploaded, which uses its link up"):
        reply = caller.put("notes.txt", b"notes", link=link)
    handle = reply.json["upload_handle"]
    with pair.row("a tool reads it, at the same replica"):
        assert content(caller, handle) == "notes"
    with pair.row("a tool reads it, at another replica, for the first time"):
        assert content(other, handle) == "notes"
    with pair.row("a tool has written a file"):
        (artifact,) = artifacts(caller.call("act", steps=[["write", "out.txt", "out"]], text="wrote {0}"))
    path = artifact["download_url"].removeprefix(pair.first.url)
    with pair.row("it is downloaded, at the same replica"):
        assert pair.first.fetch(path).body == b"out"
    with pair.row("it is downloaded, at another replica, for the first time"):
        assert pair.second.fetch(path).body == b"out"
    tasked = alice(pair.first, "tasked")
    ended(tasked)
    with pair.row("a call becomes a task, and ends"):
        task, result = ended(tasked)
    assert result["content"][0]["text"] == "done"
    with pair.row("its result is read again"):
        tasked.request("tasks/result", {"taskId": task["taskId"]})
    with pair.row("a session ends"):
        other.end()
    assert pair.costs == documented()


def documented() -> dict[str, tuple[str, str]]:
    table = PAGE.read_text().partition("### What each promise costs")[2].partition("\n\n- ")[0]
    found = re.findall(r"^\| (.+?) \| (.+?) \| (.+?) \|$", table, re.MULTILINE)
    return {what: (records, blobs) for what, records, blobs in found[2:]}
