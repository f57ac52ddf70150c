"""Records in Redis or Valkey, shared by any number of processes.

A record is a hash. Beside the hashes there are a counter that gives the versions, and two sorted sets: all keys, in
their order, and those that expire, by their time. Lua scripts keep them consistent (`redis_scripts`). All names begin
with one hash tag, so that in a cluster they are on one server.

The scripts judge expiry. Redis also deletes a hash by itself an hour after it has expired, which only frees memory
where nobody purges.
"""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, Final

from anyio import to_thread

from .interface import Record, RecordsReport, StorageError, StorageFull, VersionConflict
from .keys import check_key, check_prefix
from .redis_scripts import DELETE, DELETE_PAGE, LOAD, NOW, PAGE, PURGE, SAVE
from .remote import ANSWER_TIMEOUT_S, CALLS_MAX, TURN_TIMEOUT_S, RemoteCalls, shown

if TYPE_CHECKING:
    from redis.commands.core import Script

FORMAT: Final = 1
"""The format of what is stored under a prefix. Another one is refused."""
INSTALL: Final = "pip install 'isthmus[redis]'"
STEP_RECORDS: Final = 500
"""Records that one script removes, at most. Redis serves nobody else meanwhile, for a few milliseconds."""

_PREFIX: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_PAGE_RECORDS: Final = 256
_AFTER: Final = "\x7f"
"""A character that sorts after all that a key may hold."""


class RedisRecords:
    """Records in Redis 5 or newer, or in Valkey. See `Records` for the laws.

    Redis keeps what `examine` says: with its defaults that is less than the law of durability asks for.

    `delete_all` removes `STEP_RECORDS` at a time. One script for all of them would stop Redis, and with it every
    gateway, for as long as it runs: a second or more for a hundred thousand records. Nobody needs all records to go at
    one moment, while everybody needs Redis to answer.

    The constructor connects, and blocks meanwhile. A request is never repeated: whether the first one took effect
    cannot be known. A connection that Redis has closed is replaced before it is used.

    Args:
        url: `redis://USER:PASSWORD@HOST:PORT/DATABASE`, `rediss://…` for TLS, or `unix:///PATH`.
        prefix: the beginning of all names in Redis: 1 to 64 of `A-Z a-z 0-9 . _ -`.
        now_unix: the clock that judges expiry; None: that of Redis.
        calls_max: the number of connections, at most.
        turn_timeout_s: seconds that a call waits for a connection while others use all of them.
        answer_timeout_s: seconds that Redis may take to accept a connection, and for one answer.

    Raises:
        StorageError: Redis cannot be used, it may evict records, they are of another format, or the package redis is
            not installed.
        ValueError: `prefix` is not so written.
    """

    def __init__(
        self,
        url: str,
        *,
        prefix: str = "isthmus",
        now_unix: Callable[[], float] | None = None,
        calls_max: int = CALLS_MAX,
        turn_timeout_s: float = TURN_TIMEOUT_S,
        answer_timeout_s: float = ANSWER_TIMEOUT_S,
    ) -> None:
        if _PREFIX.fullmatch(prefix) is None:
            raise ValueError(f"got the prefix {prefix[:64]!r}, expected 1 to 64 of A-Z a-z 0-9 . _ -")
        self.client, self._secrets = _client(url, answer_timeout_s)
        self.answer_timeout_s: Final = answer_timeout_s
        self.calls: Final = RemoteCalls(calls_max=calls_max, turn_timeout_s=turn_timeout_s)
        self.tag: Final = f"{{{prefix}}}"
        self._now_unix = now_unix
        self._record_prefix = f"{self.tag}:record/"
        self._counter, self._keys, self._expiries = (f"{self.tag}:{name}" for name in ("version", "keys", "expiries"))
        register = self.client.register_script
        self._now, self._load, self._save = register(NOW), register(LOAD), register(SAVE)
        self._delete, self._delete_page = register(DELETE), register(DELETE_PAGE)
        self._page, self._purge = register(PAGE), register(PURGE)
        self.call(self._check)

    async def load(self, key: str) -> Record | None:
        check_key(key)
        found = await self._run(self._load, [self._record_prefix + key])
        return None if found is None else _record(*found)

    async def save(
        self, key: str, value: bytes, *, expires_at_unix: float | None = None, if_version: int | None = None
    ) -> int:
        check_key(key)
        version, present = await self._run(
            self._save,
            [self._record_prefix + key, self._counter, self._keys, self._expiries],
            key,
            bytes(value),
            "" if expires_at_unix is None else repr(float(expires_at_unix)),
            "" if if_version is None else str(if_version),
        )
        if version == 0:
            raise VersionConflict(f"record {key} is at version {int(present)}, expected {if_version}")
        assert isinstance(version, int)
        return version

    async def delete(self, key: str) -> bool:
        check_key(key)
        return bool(await self._run(self._delete, [self._record_prefix + key, self._keys, self._expiries], key))

    async def delete_all(self, prefix: str) -> int:
        check_prefix(prefix)
        deleted, start = 0, f"[{prefix}"
        while True:
            keys, span = [self._keys, self._expiries], (start, f"({prefix}{_AFTER}")
            last, live = await self._run(self._delete_page, keys, *span, STEP_RECORDS, self._record_prefix)
            deleted += int(live)
            if not last:
                return deleted
            start = f"({last.decode()}"

    async def scan(self, prefix: str) -> AsyncIterator[tuple[str, Record]]:
        check_prefix(prefix)
        start = f"[{prefix}"
        while True:
            span = (start, f"({prefix}{_AFTER}")
            last, *page = await self._run(self._page, [self._keys], *span, _PAGE_RECORDS, self._record_prefix)
            for at in range(0, len(page), 4):
                yield page[at].decode(), _record(*page[at + 1 : at + 4])
            if not last:
                return
            start = f"({last.decode()}"

    async def purge(self, now_unix: float) -> int:
        def purge() -> int:
            arguments = [repr(float(now_unix)), STEP_RECORDS, self._record_prefix]
            count = self._purge(keys=[self._keys, self._expiries], args=arguments)
            assert isinstance(count, int)
            return count

        purged = 0
        while True:
            count = await self.calls.run(self.call, purge)
            purged += int(count)
            if count < STEP_RECORDS:
                return purged

    async def now_unix(self) -> float:
        return float(await self._run(self._now, []))

    async def examine(self) -> RecordsReport:
        report = await self.calls.run(self.call, self._examine)
        assert isinstance(report, RecordsReport)
        return report

    async def aclose(self) -> None:
        self.calls.close()
        await to_thread.run_sync(self.client.close)

    def call(self, work: Callable[[], Any]) -> Any:
        """Runs `work`, which uses the client, and translates its errors."""
        from redis import exceptions

        try:
            return work()
        except exceptions.OutOfMemoryError as error:
            raise StorageFull("Redis has reached its maxmemory") from error
        except exceptions.RedisError as error:
            raise StorageError(f"the records cannot be used: {shown(error, self._secrets)}") from error

    async def _run(self, script: Script, keys: list[str], *arguments: str | bytes | int) -> Any:
        def run() -> Any:
            now = "" if self._now_unix is None else repr(float(self._now_unix()))
            return script(keys=keys, args=[now, *arguments])

        return await self.calls.run(self.call, run)

    def _check(self) -> None:
        """Verifies that what is stored stays, and is of our format."""
        policy = self._info("memory").get("maxmemory_policy", "noeviction")
        if policy != "noeviction":
            raise StorageError(
                f"Redis may evict records (maxmemory-policy is {policy}): set maxmemory-policy to noeviction"
            )
        name = f"{self.tag}:format"
        self.client.set(name, str(FORMAT), nx=True)
        found = self.client.get(name)
        if found != str(FORMAT).encode():
            raise StorageError(
                f"the records in Redis are of format {found.decode(errors='replace')}, expected {FORMAT}:"
                " another version of Isthmus uses them"
            )

    def _examine(self) -> RecordsReport:
        before = time.time()
        seconds, microseconds = self.client.time()
        skew_s = seconds + microseconds / 1e6 - (before + time.time()) / 2
        server, persistence, replication = map(self._info, ("server", "persistence", "replication"))
        is_valkey = server.get("server_name") == "valkey"
        durability = _durability(bool(persistence.get("aof_enabled")), self._setting)
        if replication.get("connected_slaves"):
            durability += "; a failover loses what the replica had not received"
        return RecordsReport(
            "Valkey" if is_valkey else "Redis",
            str(server["valkey_version" if is_valkey else "redis_version"]),
            durability,
            skew_s,
            self.client.zcard(self._keys),
        )

    def _info(self, section: str) -> dict[str, Any]:
        found = self.client.info(section)
        assert isinstance(found, dict)
        return found

    def _setting(self, name: str) -> str | None:
        """The value of a setting; None: this Redis does not show its settings."""
        from redis import exceptions

        try:
            value = self.client.config_get(name).get(name)
        except exceptions.ResponseError:
            return None
        return None if value is None else str(value)


def _client(url: str, answer_timeout_s: float) -> tuple[Any, list[str]]:
    """Returns the client, whose types mix blocking and asynchronous calls, and the secrets of the URL."""
    try:
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry
    except ImportError as error:
        raise StorageError(f"Redis needs a package that is not installed: {INSTALL}") from error
    options: dict[str, Any] = {} if url.startswith("unix:") else {"socket_keepalive": True}
    try:
        client = redis.Redis.from_url(
            url,
            protocol=2,
            retry=Retry(NoBackoff(), 0),
            socket_timeout=answer_timeout_s,
            socket_connect_timeout=answer_timeout_s,
            **options,
        )
        pool = client.connection_pool
        pool.connection_class(**pool.connection_kwargs)  # which verifies the options in the URL
    except (ValueError, TypeError):  # from nothing, because the message may quote a part of the URL
        raise StorageError(
            "the address of the records cannot be read: expected redis://USER:PASSWORD@HOST:PORT/DATABASE"
        ) from None
    password = pool.connection_kwargs.get("password")
    return client, [password] if password else []


def _record(value: bytes, version: bytes, expires: bytes) -> Record:
    return Record(value, int(version), float(expires) if expires else None)


def _durability(has_log: bool, setting: Callable[[str], str | None]) -> str:
    if has_log:
        match setting("appendfsync"):
            case "always":
                return "every answer is on disk"
            case "everysec":
                return "about a second of saves is lost when Redis dies (appendfsync is everysec)"
            case "no":
                return "half a minute of saves or more is lost when the machine of Redis dies (appendfsync is no)"
            case _:
                return "some saves are lost when Redis dies: it does not show its appendfsync"
    if setting("save") == "":
        return "everything is lost when Redis stops (appendonly is no, and no snapshots are saved)"
    return "all saves since the last snapshot are lost when Redis dies (appendonly is no)"
