"""The logins in shared records: two replicas, each with an opener of its own over one file."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from isthmus.app.config.login_settings import OAuth
from isthmus.app.config.settings import Server, Settings, Upstream
from isthmus.app.logins.interface import KEPT_MAX, RECORD_MAX_BYTES, LoginKey, RecordLocked, WrittenMeanwhile
from isthmus.app.logins.leases import LEASE_S
from isthmus.app.logins.records import key_of, records_of
from isthmus.app.logins.sealing import KEY_VARIABLE, StoreError, UnreadableRecord
from isthmus.app.logins.setup import Logins
from isthmus.app.logins.shared_store import SharedStore
from isthmus.app.logins.tokens import PersonTokens, ask_for_command
from isthmus.core.logins.credentials import Record, decode_record, encode_record
from isthmus.core.logins.requests import Registration
from isthmus.storage.interface import StorageError
from isthmus.storage.memory import MemoryRecords
from isthmus.storage.sqlite import SqliteRecords
from token_provider import PATIENCE_S, Provider

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

KEY = LoginKey("https://idp.example", "client", "https://mcp.example/mcp", "token:alice")
ENVIRON = {KEY_VARIABLE: "5a" * 32}
RECORD = b'{"access_token":"SECRET7391"}'


@pytest.fixture(autouse=True)
async def patience(anyio_backend: str) -> AsyncIterator[None]:
    with anyio.fail_after(PATIENCE_S):
        yield


class FaultyRecords(SqliteRecords):
    """Records whose saves of logins may fail.

    Attributes:
        fails: how many of the next saves raise.
        is_saved: those are carried out all the same, and only their answer is lost.
        late_s: seconds that pass with each failure.
    """

    fails = 0
    is_saved = False
    late_s = 0.0

    def __init__(self, path: str, world: World) -> None:
        super().__init__(path, now_unix=lambda: world.now)
        self._world = world

    async def save(self, key: str, value: bytes, **more: Any) -> int:
        if not key.startswith("login/") or not self.fails:
            return await super().save(key, value, **more)
        self.fails -= 1
        if self.is_saved:
            await super().save(key, value, **more)
        self._world.now += self.late_s
        raise StorageError("no answer")


class World:
    """Two replicas: their records and their logins. Their clocks and that of the records are `now`."""

    def __init__(self, folder: Path) -> None:
        self.now = time.time()
        self.told: list[str] = []
        path = str(folder / "records.sqlite")
        self.records = [FaultyRecords(path, self) for _ in range(2)]
        self.here, self.there = (self.store(number) for number in range(2))

    def store(self, number: int = 0, key: str = ENVIRON[KEY_VARIABLE]) -> SharedStore:
        async def records() -> SqliteRecords:
            return self.records[number]

        async def tell(key: str) -> None:
            self.told.append(key)

        return SharedStore(records, tell, {KEY_VARIABLE: key}, clock=lambda: self.now)

    async def keys(self, kind: str = "") -> list[str]:
        return [key async for key, _ in self.records[0].scan(kind)]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    found = World(tmp_path)
    yield found
    for records in found.records:
        await records.aclose()


async def write(store: SharedStore, record: bytes, key: LoginKey = KEY) -> None:
    async with store.lock(key) as held:
        await held.write(record)


# --- The records ----------------------------------------------------------------------------------------------------


async def test_what_one_replica_writes_and_removes_the_other_sees(world: World) -> None:
    await write(world.here, RECORD)
    assert await world.there.read(KEY) == RECORD
    [stored_key] = await world.keys()
    assert stored_key.startswith("login/") and KEY.digest in stored_key, "its lease is given back"
    assert len(f"{'0' * 16}/{stored_key}.kept-{KEPT_MAX}") <= 128, "it can be told to others"
    async with world.there.lock(KEY) as held:
        assert not await held.remove(b"another")
        assert await held.remove(RECORD)
        assert not await held.remove(RECORD)
        assert await held.read() is None
    assert await world.here.read(KEY) is None
    assert world.told == [stored_key] * 2


async def test_what_is_stored_is_sealed(world: World) -> None:
    await write(world.here, RECORD)
    values = [record.value async for _, record in world.records[0].scan("")]
    assert not any(part in value for value in values for part in (b"SECRET7391", b"alice", b"example"))


async def test_logins_are_listed_by_caller_and_server(world: World) -> None:
    bob = msgspec.structs.replace(KEY, principal="token:bob")
    other_issuer = msgspec.structs.replace(KEY, issuer="https://other.example")
    for key in (KEY, bob, other_issuer):
        await write(world.here, RECORD, key)
    assert {each.key for each in await world.there.records()} == {KEY, bob, other_issuer}
    assert {each.key for each in await world.there.records(LoginKey("", *msgspec.structs.astuple(KEY)[1:]))} == {
        KEY,
        other_issuer,
    }


async def test_a_record_of_another_key_is_kept_beside_a_new_one(world: World) -> None:
    await write(world.here, RECORD)
    other = world.store(1, "6b" * 32)
    with pytest.raises(UnreadableRecord, match=f"another key than that of {KEY_VARIABLE}.*it is kept"):
        await other.read(KEY)
    await write(other, b"new")
    assert await other.read(KEY) == b"new"
    listed = {each.path.rpartition(".")[2]: each.record for each in await world.here.records() if each.record}
    assert listed == {"kept-1": RECORD}
    assert sum(bool(each.problem) for each in await world.here.records()) == 1


async def test_so_many_unreadable_records_are_kept(world: World) -> None:
    stores = [world.here, world.store(1, "6b" * 32)]
    for number in range(KEPT_MAX + 1):
        await write(stores[number % 2], RECORD)
    with pytest.raises(StoreError, match=f"{KEPT_MAX} unreadable records"):
        await write(stores[(KEPT_MAX + 1) % 2], RECORD)


async def test_without_a_key_of_all_replicas_nothing_is_kept(world: World) -> None:
    for text, said in (("", "openssl rand -hex 32"), ("short", "expected 32 bytes")):
        with pytest.raises(StoreError, match=said):
            await write(world.store(0, text), RECORD)
    with pytest.raises(StoreError, match="bytes, expected"):
        await write(world.here, b"x" * (RECORD_MAX_BYTES + 1))


# --- Locks ----------------------------------------------------------------------------------------------------------


async def test_a_lock_is_held_among_replicas(world: World) -> None:
    async with world.here.lock(KEY):
        assert await world.there.is_locked(KEY)
        with pytest.raises(RecordLocked):
            async with world.there.lock(KEY, timeout_s=0):
                raise AssertionError
        with pytest.raises(RecordLocked):
            async with world.here.lock(KEY, timeout_s=0):
                raise AssertionError
    async with world.there.lock(KEY, timeout_s=0):
        pass
    assert not await world.here.is_locked(KEY)
    with pytest.raises(LookupError):  # and no group of errors
        async with world.here.lock(KEY):
            raise LookupError


async def test_who_waits_gets_the_lock_of_who_leaves(world: World) -> None:
    order = []

    async def count(store: SharedStore) -> None:
        for _ in range(5):
            async with store.lock(KEY) as held:
                seen = int(await held.read() or b"0")
                order.append(seen)
                await held.write(b"%d" % (seen + 1))

    async with anyio.create_task_group() as tasks:
        for store in (world.here, world.there):
            tasks.start_soon(count, store)
    assert order == list(range(10))


async def test_a_lock_that_is_not_renewed_ends(world: World) -> None:
    """The replica that holds it was killed, or is paused. The first write is not overwritten."""
    async with world.here.lock(KEY) as held:
        held.check()
        assert await held.read() is None
        world.now += LEASE_S
        with pytest.raises(StoreError, match="lease"):
            held.check()
        async with world.there.lock(KEY, timeout_s=0) as other:
            assert await other.read() is None
            await other.write(b"of the other")
            with pytest.raises(WrittenMeanwhile):
                await held.write(RECORD)
            assert not await held.remove(RECORD)
            other.check()
        assert await held.read() == b"of the other"
    assert await world.here.read(KEY) == b"of the other"


async def test_a_write_whose_answer_was_lost_counts(world: World) -> None:
    world.records[0].fails, world.records[0].is_saved = 1, True
    await write(world.here, RECORD)
    assert await world.there.read(KEY) == RECORD


# --- Tokens ---------------------------------------------------------------------------------------------------------


def stale(provider: Provider, **changes: Any) -> Record:
    """A record whose token has expired."""
    now = time.time()
    registration, url = Registration(provider.url, "client"), f"{provider.url}/mcp"
    found = Record(registration, url, f"{provider.url}/token", url, (), (), "access-0", "refresh-0", now - 9, now - 1)
    return msgspec.structs.replace(found, **changes)


def settings_of(provider: Provider) -> Settings:
    return Settings(servers=(Server(id="notes", upstream=Upstream(url=f"{provider.url}/mcp", auth=OAuth())),))


def tokens_of(provider: Provider, store: SharedStore) -> PersonTokens:
    upstream = settings_of(provider).servers[0].upstream
    return PersonTokens("notes", upstream, store, ask_for_command("notes", ("isthmus", "login", "notes")))


async def test_replicas_share_one_refresh(provider: Provider, world: World) -> None:
    """A refresh token is used once, however many requests at however many replicas want it."""
    for round in range(3):
        before = len(provider.forms)
        await write(world.here, encode_record(stale(provider, refresh_token=f"refresh-{before}")), login_of(provider))
        asking = [tokens_of(provider, store) for store in (world.here, world.there)]
        found: list[bytes | None] = []

        async def ask(tokens: PersonTokens, found: list[bytes | None] = found) -> None:
            found.append(await tokens.header())

        async with anyio.create_task_group() as tasks:
            for tokens in asking * 3:
                tasks.start_soon(ask, tokens)
        assert found == [b"Bearer access-%d" % (round + 1)] * 6
        assert [form["refresh_token"] for form in provider.forms[before:]] == [f"refresh-{before}"]


async def test_the_loser_of_a_refresh_takes_the_token_of_the_winner(provider: Provider, world: World) -> None:
    """A replica was paused between its request and the write, and another one has refreshed meanwhile."""
    await write(world.here, encode_record(stale(provider)), login_of(provider))
    mine = tokens_of(provider, world.here)
    provider.goes_on.clear()
    found: list[bytes | None] = []

    async def ask() -> None:
        found.append(await mine.header())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        assert await anyio.to_thread.run_sync(provider.came.wait, PATIENCE_S)
        world.now += LEASE_S
        fresh = stale(provider, access_token="of-the-winner", refresh_token="next", expires_at=time.time() + 3600)
        await write(world.there, encode_record(fresh), login_of(provider))
        provider.goes_on.set()
    assert found == [b"Bearer of-the-winner"]
    assert decode_record(await world.here.read(login_of(provider)) or b"") == fresh


async def test_a_token_that_could_not_be_written_is_written_once_the_store_is_back(
    provider: Provider, world: World
) -> None:
    await write(world.here, encode_record(stale(provider)), login_of(provider))
    mine = tokens_of(provider, world.here)
    world.records[0].fails, world.records[0].late_s = 1, LEASE_S
    assert await mine.header() == b"Bearer access-1", "the request goes on"
    world.here.note_change()
    mine.note_change()
    assert await mine.header() == b"Bearer access-1"
    assert await tokens_of(provider, world.there).header() == b"Bearer access-1"
    assert len(provider.forms) == 1


async def test_while_the_store_is_away_the_token_in_memory_is_used(provider: Provider, world: World) -> None:
    fresh = stale(provider, expires_at=time.time() + 3600)
    await write(world.here, encode_record(fresh), login_of(provider))
    mine = tokens_of(provider, world.here)
    assert await mine.header() == b"Bearer access-0"
    await world.records[0].aclose()
    world.here.note_change()
    mine.note_change()
    assert mine.current() is None, "the store is asked"
    assert await mine.header() == b"Bearer access-0"
    assert mine.current() == b"Bearer access-0", "and not with each request"


async def test_a_login_that_was_removed_elsewhere_is_gone_here(provider: Provider, world: World) -> None:
    await write(world.here, encode_record(stale(provider)), login_of(provider))
    logins = Logins(
        settings_of(provider),
        lambda id: ("isthmus", "login", id),
        b"k" * 32,
        lambda _: None,
        shared=world.here,
        records=MemoryRecords(),
    )
    tokens = logins.tokens["notes"]("")
    assert await tokens.header() == b"Bearer access-1"
    async with world.there.lock(login_of(provider)) as held:
        assert await held.remove(await held.read() or b"")
    logins.receive_records([(f"login/{'0' * 32}/x", b"")])
    assert tokens.current() == b"Bearer access-1", "that was another login"
    logins.receive_records([(world.told[-1], None)])
    assert tokens.current() is None
    assert await tokens.header() is None
    wanted = tokens.login_wanted()
    assert wanted is not None and "isthmus login notes" in wanted.message
    await write(world.there, encode_record(stale(provider, expires_at=time.time() + 3600)), login_of(provider))
    logins.receive_records([(key, None) for key in logins.known_keys()])  # notices may have been lost
    assert await tokens.header() == b"Bearer access-0"
    assert len(await records_of(world.here, settings_of(provider).servers[0].upstream)) == 1


def login_of(provider: Provider) -> LoginKey:
    return key_of(stale(provider), "")
