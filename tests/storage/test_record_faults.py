"""Tests of records on servers that stop, die, refuse or fill up, and of what the errors say."""

from __future__ import annotations

import itertools
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest
from anyio import to_thread
from isthmus.storage import postgres, redis
from isthmus.storage.interface import Records, StorageError, StorageFull, VersionConflict
from isthmus.storage.postgres import PostgresRecords
from isthmus.storage.redis import RedisRecords
from one_loop import anyio_backend  # noqa: F401 (a fixture)
from record_servers import KINDS, SECRET, PostgresServer, RecordServer, RedisServer, Relay, free_port

pytestmark = pytest.mark.real

QUICK = {"answer_timeout_s": 1.0, "turn_timeout_s": 1.0}
_names = itertools.count()


@pytest.fixture
def name() -> str:
    return f"f{next(_names)}"


@contextmanager
def stopped(server: RecordServer) -> Iterator[None]:
    """Has the server hear nothing and say nothing, with its connections open."""
    pids = server.pids()
    server.signal_all(signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            server.send(pid, signal.SIGCONT)


async def refusal(records: Records) -> str:
    """Returns the errors of all methods while the server is away."""
    texts = []

    async def scan() -> None:
        async for _ in records.scan(""):
            pass

    async def try_one(call: Callable[[], object]) -> None:
        with pytest.raises(StorageError) as caught:
            await call()  # type: ignore[misc]
        texts.append(str(caught.value))

    async with anyio.create_task_group() as tasks:
        for call in (
            lambda: records.load("k"),
            lambda: records.save("other", b"v"),
            lambda: records.delete("other"),
            lambda: records.delete_all("other"),
            lambda: records.purge(0),
            lambda: records.now_unix(),
            lambda: records.examine(),
            scan,
        ):
            tasks.start_soon(try_one, call)
    assert len(texts) == 8
    return "\n".join(texts)


# --- Servers that stop and die --------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_a_server_that_does_not_answer(faulty_server: RecordServer, name: str) -> None:
    """Every call fails in bounded time while the server is stopped. The same opener works when it goes on."""
    records = faulty_server.records(name, **QUICK)
    version = await records.save("k", b"v")
    with anyio.fail_after(60):
        with stopped(faulty_server):
            text = await refusal(records)
        assert SECRET not in text
        found = await records.load("k")
    assert found is not None and found.version == version
    assert await records.save("k", b"w", if_version=version) > version
    await records.aclose()


@pytest.mark.anyio
async def test_a_server_that_dies(faulty_server: RecordServer, name: str) -> None:
    """Every call fails while the server is away. The same opener works, with all that returned, once it is back."""
    records = faulty_server.records(name, **QUICK)
    saved = {f"k/{number}": await records.save(f"k/{number}", b"%d" % number) for number in range(20)}
    async with anyio.create_task_group() as tasks:  # so that several connections are open
        for _ in range(8):
            tasks.start_soon(records.load, "k/1")
    with anyio.fail_after(60):
        await to_thread.run_sync(faulty_server.kill)
        text = await refusal(records)
        assert SECRET not in text and "cannot be used" in text
        await to_thread.run_sync(faulty_server.start)
        async with anyio.create_task_group() as tasks:
            for _ in range(8):
                tasks.start_soon(records.load, "k/1")
        assert {key: record.version async for key, record in records.scan("k/")} == saved
        await to_thread.run_sync(faulty_server.kill)
        await to_thread.run_sync(faulty_server.start)
        async with anyio.create_task_group() as tasks:  # on connections that are closed, as no call has noticed yet
            for _ in range(8):
                tasks.start_soon(records.load, "k/1")
        assert await records.save("k/1", b"w") > max(saved.values())
    await records.aclose()


@pytest.mark.anyio
async def test_an_answer_that_is_lost(faulty_server: RecordServer, name: str) -> None:
    """A save whose answer is lost raises, and has taken effect once: it is not repeated, as a repetition of a save with
    `if_version` would conflict with itself."""
    relay = Relay(faulty_server.port)
    records = faulty_server.records(name, port=relay.port)
    version = await records.save("k", b"old")
    relay.lose_next()
    with pytest.raises(StorageError, match="cannot be used"):
        await records.save("k", b"new", if_version=version)
    found = await records.load("k")
    assert found is not None and (found.value, found.version) == (b"new", version + 1)
    await records.aclose()
    relay.close()


@pytest.mark.anyio
async def test_a_save_is_never_half_seen(faulty_server: RecordServer, name: str) -> None:
    """Each record is whole after the server was killed among saves: what returned, or what was being saved."""
    records = faulty_server.records(name, **QUICK)
    returned: dict[str, int] = {}
    enough = anyio.Event()

    async def write(key: str) -> None:
        for number in itertools.count(1):
            try:
                await records.save(key, b"%08d" % number * 5000)
            except StorageError:
                return
            returned[key] = number
            if number == 5:
                enough.set()

    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:
            for key in ("a", "b", "c"):
                tasks.start_soon(write, key)
            await enough.wait()
            await to_thread.run_sync(faulty_server.kill)
        await to_thread.run_sync(faulty_server.start)
        assert returned
        for key in ("a", "b", "c"):
            found = await records.load(key)
            number = 0 if found is None else int(found.value[:8])
            assert found is None or found.value == b"%08d" % number * 5000
            assert number - returned.get(key, 0) in (0, 1)
            assert [seen async for seen, _ in records.scan(key)] == ([] if found is None else [key])
        await records.delete_all("")
        assert (await records.examine()).records == 0
    await records.aclose()


@pytest.mark.anyio
async def test_calls_wait_for_a_connection_in_bounded_time(faulty_server: RecordServer, name: str) -> None:
    """A call beyond `calls_max` waits for its turn, and fails after `turn_timeout_s`."""
    records = faulty_server.records(name, calls_max=1, turn_timeout_s=0.1, answer_timeout_s=2.0)
    texts = []

    async def load() -> None:
        with pytest.raises(StorageError) as caught:
            await records.load("k")
        texts.append(str(caught.value))

    with anyio.fail_after(60):
        with stopped(faulty_server):
            async with anyio.create_task_group() as tasks:
                for _ in range(3):
                    tasks.start_soon(load)
        assert sorted("too busy: 1 calls" in text for text in texts) == [False, True, True]
        assert await records.load("k") is None
    await records.aclose()


@pytest.mark.anyio
async def test_many_calls_use_few_connections(faulty_server: RecordServer, name: str) -> None:
    """Never more than `calls_max` connections are open, and a closed opener leaves none."""
    before = await to_thread.run_sync(faulty_server.connections)
    records = faulty_server.records(name, calls_max=3)
    async with anyio.create_task_group() as tasks:
        for number in range(60):
            tasks.start_soon(records.save, f"k/{number}", b"v")
    assert 1 <= await to_thread.run_sync(faulty_server.connections) - before <= 3
    await records.aclose()
    with anyio.fail_after(30):
        while await to_thread.run_sync(faulty_server.connections) > before:  # noqa: ASYNC110 (the server notices later)
            await anyio.sleep(0.01)


# --- What is refused at the start, and what errors say --------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_no_error_names_a_secret(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """The text says what is wrong, without the password and without a path, wrong or right as they may be."""
    server = request.getfixturevalue(f"{kind}_server")
    port = free_port()
    if isinstance(server, PostgresServer):
        addresses = {
            server.dsn(SECRET + "x"): "password authentication failed",
            f"postgresql://isthmus:{SECRET}@127.0.0.1:{port}/postgres": "refused",
            f"postgresql://isthmus:{SECRET}@127.0.0.1:port/postgres": "",
            f"postgresql://isthmus:{SECRET}%@127.0.0.1/postgres": "cannot be read: expected postgresql://",
            f"host={tmp_path} user=isthmus password={SECRET} dbname=x": "No such file",
            f"{SECRET} = =": "cannot be read",
        }
        opens: Callable[[str], Records] = PostgresRecords
    else:
        addresses = {
            server.url(SECRET + "x"): "",
            f"redis://:{SECRET}@127.0.0.1:{port}/0": "refused",
            f"redis://:{SECRET}@127.0.0.1:{SECRET}/0": "cannot be read: expected redis://",
            f"http://:{SECRET}@127.0.0.1/0": "cannot be read",
            f"redis://:{SECRET}@127.0.0.1/0?no_option=1": "cannot be read",
            f"unix://:{SECRET}@{tmp_path}/redis.sock": "No such file",
        }
        opens = RedisRecords
    for address, expected in addresses.items():
        with pytest.raises(StorageError) as caught:
            opens(address)
        text = str(caught.value)
        assert expected.lower() in text.lower()
        assert SECRET not in text and str(tmp_path) not in text
        assert "\n" not in text


@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_package_is_named(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("psycopg", "redis", "isthmus.storage.postgres_connections"):
        monkeypatch.setitem(sys.modules, module, None)
    opens = PostgresRecords if kind == "postgres" else RedisRecords
    with pytest.raises(StorageError, match=rf"not installed: pip install 'isthmus\[{kind}\]'"):
        opens("redis://127.0.0.1")


@pytest.mark.parametrize("name", ["", "A", "a-b", "a b", "a;b", "1a", "a" * 41])
def test_a_table_is_a_plain_name(name: str) -> None:
    with pytest.raises(ValueError, match="expected a-z, 0-9 and _"):
        PostgresRecords("", table=name)


@pytest.mark.parametrize("name", ["", "a:b", "a{b", "a" * 65])
def test_a_prefix_is_a_plain_name(name: str) -> None:
    with pytest.raises(ValueError, match="expected 1 to 64"):
        RedisRecords("redis://127.0.0.1", prefix=name)


def test_a_foreign_table_is_refused(postgres_server: PostgresServer, name: str) -> None:
    with postgres_server.connect() as db:
        db.execute(f"create table {name} (key text)".encode())
        with pytest.raises(StorageError, match=f"the table {name} holds no records of Isthmus"):
            postgres_server.records(name)
        db.execute(f"comment on table {name} is 'isthmus records, format 2'".encode())
        with pytest.raises(StorageError, match=f"the table {name} is of format 2, expected 1"):
            postgres_server.records(name)


@pytest.mark.anyio
async def test_a_role_without_rights_uses_the_table_of_another(postgres_server: PostgresServer, name: str) -> None:
    with postgres_server.connect() as db:
        db.execute(f"create role {name} login password '{SECRET}'".encode())
        dsn = f"postgresql://{name}:{SECRET}@127.0.0.1:{postgres_server.port}/postgres"
        with pytest.raises(StorageError, match="permission denied for schema"):
            PostgresRecords(dsn, table=name)
        await postgres_server.records(name).aclose()
        db.execute(f"grant select, insert, update, delete on {name} to {name}".encode())
        db.execute(f"grant usage on sequence {name}_version to {name}".encode())
    records = PostgresRecords(dsn, table=name)
    assert await records.save("k", b"v") == 1
    await records.aclose()


def test_openers_that_start_together_make_one_table(postgres_server: PostgresServer, name: str) -> None:
    opened: list[PostgresRecords] = []
    threads = [threading.Thread(target=lambda: opened.append(postgres_server.records(name))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(opened) == 6
    for records in opened:
        records.connections.close()


@pytest.mark.anyio
async def test_a_version_is_drawn_when_it_is_the_writers_turn(postgres_server: PostgresServer, name: str) -> None:
    """A writer of a key that is not stored waits for another one, and has a greater version than what is saved
    meanwhile."""
    records = postgres_server.records(name)
    versions = {}

    async def save() -> None:
        versions["k"] = await records.save("k", b"v")

    with anyio.fail_after(60), postgres_server.connect() as db:
        lock = postgres._lock_number(f"{name}/k")
        db.execute("select pg_advisory_lock(%s)", (lock,))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(save)
            waiting = "select count(*) from pg_locks where locktype = 'advisory' and not granted"
            while db.execute(waiting).fetchone() == (0,):  # noqa: ASYNC110 (a server says so in no other way)
                await anyio.sleep(0.01)
            meanwhile = await records.save("other", b"v")
            db.execute("select pg_advisory_unlock(%s)", (lock,))
    assert versions["k"] > meanwhile
    await records.aclose()


@pytest.mark.anyio
async def test_a_server_that_became_a_standby(postgres_server: PostgresServer, name: str) -> None:
    """Connections to a server that may only be read are given up, so that a later call can find another server."""
    records = postgres_server.records(name)
    version = await records.save("k", b"v")
    before = await to_thread.run_sync(postgres_server.connections)
    with anyio.fail_after(60), postgres_server.connect() as db:
        db.execute(b"alter system set default_transaction_read_only = on")
        try:
            db.execute(b"select pg_reload_conf()")
            with pytest.raises(StorageError, match="read-only"):
                while True:  # until the server has read its settings
                    version = await records.save("k", b"v")
            with pytest.raises(StorageError, match="read-only"):
                await records.load("k")
            while await to_thread.run_sync(postgres_server.connections) >= before:  # noqa: ASYNC110 (no other way)
                await anyio.sleep(0.01)
        finally:
            db.execute(b"set default_transaction_read_only = off")
            db.execute(b"alter system reset default_transaction_read_only")
            db.execute(b"select pg_reload_conf()")
        while True:
            try:
                assert await records.save("k", b"v", if_version=version) > version
                break
            except StorageError:
                await anyio.sleep(0.01)
    await records.aclose()


@pytest.mark.anyio
async def test_a_database_that_is_full(postgres_server: PostgresServer, name: str) -> None:
    """The old value stays. A trigger stands for the disk: it raises the same error."""
    records = postgres_server.records(name)
    version = await records.save("k", b"old")
    with postgres_server.connect() as db:
        db.execute(
            f"create function {name}_full() returns trigger language plpgsql as"
            " $$ begin raise exception 'full' using errcode = '53100'; end $$".encode()
        )
        db.execute(f"create trigger no_room before update on {name} execute function {name}_full()".encode())
    with pytest.raises(StorageFull, match="disk of PostgreSQL is full"):
        await records.save("k", b"new")
    found = await records.load("k")
    assert found is not None and (found.value, found.version) == (b"old", version)
    await records.aclose()


@pytest.mark.parametrize("policy", ["allkeys-lru", "allkeys-random", "volatile-lfu", "volatile-ttl"])
def test_a_redis_that_evicts_is_refused(redis_server: RedisServer, name: str, policy: str) -> None:
    with redis_server.connect() as client:
        client.config_set("maxmemory-policy", policy)
        try:
            with pytest.raises(StorageError, match=f"{policy}.: set maxmemory-policy to noeviction"):
                redis_server.records(name)
        finally:
            client.config_set("maxmemory-policy", "noeviction")


@pytest.mark.anyio
async def test_a_redis_that_is_full(redis_server: RedisServer, name: str) -> None:
    """A save that has no room changes nothing, and reading and deleting go on."""
    records = redis_server.records(name)
    version = await records.save("k", b"old")
    with redis_server.connect() as client:
        client.config_set("maxmemory", 1)
        try:
            with pytest.raises(StorageFull, match="maxmemory"):
                await records.save("k", b"new")
            found = await records.load("k")
            assert found is not None and (found.value, found.version) == (b"old", version)
            assert await records.delete("k")
        finally:
            client.config_set("maxmemory", 0)
    assert await records.save("k", b"new", if_version=0) == version + 1
    await records.aclose()


@pytest.mark.anyio
async def test_records_of_another_format_are_refused(redis_server: RedisServer, name: str) -> None:
    await redis_server.records(name).aclose()
    with redis_server.connect() as client:
        client.set(f"{{{name}}}:format", "2")
    with pytest.raises(StorageError, match="are of format 2, expected 1"):
        redis_server.records(name)


@pytest.mark.anyio
async def test_redis_frees_what_has_expired(redis_server: RedisServer, name: str) -> None:
    """Redis deletes a hash an hour after its expiry. A record without expiry, or renewed, has no such end."""
    records = redis_server.records(name)
    now = await records.now_unix()

    async def save_and_read_ttl(expires_at_unix: float | None) -> int:
        await records.save("k", b"v", expires_at_unix=expires_at_unix)
        with redis_server.connect() as client:
            found = client.pttl(f"{{{name}}}:record/k")
        assert isinstance(found, int)
        return found

    assert 3_600_000 < await save_and_read_ttl(now + 50) <= 3_650_000
    assert await save_and_read_ttl(None) == -1
    assert 3_590_000 < await save_and_read_ttl(now - 50) <= 3_600_000
    assert await save_and_read_ttl(float("inf")) > 1e12
    await records.save("k", b"v", expires_at_unix=now - 50)
    with redis_server.connect() as client:
        client.delete(f"{{{name}}}:record/k")  # as Redis does in time
    assert [key async for key, _ in records.scan("")] == []
    assert await records.save("k", b"v", expires_at_unix=now - 50, if_version=0)
    with redis_server.connect() as client:
        client.delete(f"{{{name}}}:record/k")
    assert await records.purge(now) == 1
    assert (await records.examine()).records == 0
    await records.aclose()


@pytest.mark.anyio
async def test_removals_are_many_short_steps(redis_server: RedisServer, name: str) -> None:
    """`delete_all` and `purge` remove more than one script may, at most `STEP_RECORDS` in each."""
    records = redis_server.records(name)
    count = redis.STEP_RECORDS + 1
    for remove in (lambda: records.delete_all("k"), lambda: records.purge(1.0)):
        async with anyio.create_task_group() as tasks:
            for number in range(count):
                tasks.start_soon(lambda key: records.save(key, b"v", expires_at_unix=1.0), f"k/{number}")
        await remove()
        assert (await records.examine()).records == 0
    await records.aclose()


# --- What a store says of itself ------------------------------------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.parametrize(
    "setting, durability",
    [
        ("", "every answer is on disk"),
        ("synchronous_commit = off", "about a second of saves is lost"),
    ],
)
async def test_postgres_is_examined(postgres_server: PostgresServer, name: str, setting: str, durability: str) -> None:
    with postgres_server.connect() as db:
        if setting:
            db.execute(f"alter role isthmus set {setting}".encode())
        try:
            records = postgres_server.records(name)
        finally:
            db.execute(b"alter role isthmus reset all")
    await records.save("k", b"v")
    report = await records.examine()
    assert report.engine == "PostgreSQL" and int(report.version.partition(".")[0]) >= 12
    assert report.durability.startswith(durability) and report.records == 1
    assert abs(report.clock_skew_s) < 5  # one machine, but a busy one
    await records.aclose()


@pytest.mark.anyio
async def test_redis_is_examined(redis_server: RedisServer, name: str) -> None:
    """The durability is that of the settings at the moment."""
    records = redis_server.records(name)
    await records.save("k", b"v")
    said = {}
    with redis_server.connect() as client:
        try:
            for only, setting in (("appendfsync", "everysec"), ("appendfsync", "no"), ("appendonly", "no")):
                client.config_set(only, setting)
                said[setting + only] = (await records.examine()).durability
            client.config_set("save", "60 1")
            said["save"] = (await records.examine()).durability
        finally:
            for only, setting in (("save", ""), ("appendonly", "yes"), ("appendfsync", "always")):
                client.config_set(only, setting)
    report = await records.examine()
    assert report.engine in ("Redis", "Valkey") and report.version[0].isdigit()
    assert (report.durability, report.records) == ("every answer is on disk", 1)
    assert abs(report.clock_skew_s) < 5
    assert [text.partition(" is lost")[0].partition(" are lost")[0] for text in said.values()] == [
        "about a second of saves",
        "half a minute of saves or more",
        "everything",
        "all saves since the last snapshot",
    ]
    await records.aclose()


@pytest.mark.anyio
async def test_a_redis_that_hides_its_settings_is_used(redis_server: RedisServer, name: str) -> None:
    """Redis of a provider may refuse CONFIG."""
    with redis_server.connect() as client:
        client.acl_setuser(name, enabled=True, passwords=f"+{SECRET}", commands=["+@all", "-config"], keys="*")
    records = RedisRecords(f"redis://{name}:{SECRET}@127.0.0.1:{redis_server.port}", prefix=name)
    with pytest.raises(VersionConflict, match="record k is at version 0, expected 3"):
        await records.save("k", b"v", if_version=3)
    assert "does not show" in (await records.examine()).durability
    await records.aclose()
