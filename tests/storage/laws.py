"""The one suite of laws of storage. Each law is an async function over a function that opens a backend; `test_laws`
runs it for each backend.

A backend passes if it cannot be distinguished from the plain models below, which are dictionaries and never import a
backend.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Protocol

import anyio
import pytest
from hypothesis import strategies as st
from isthmus.storage.interface import (
    CHUNK_SIZE_MAX,
    Blobs,
    BlobStat,
    NotStored,
    Record,
    Records,
    StorageError,
    StorageFull,
    VersionConflict,
)

BAD_KEYS = [
    "",
    "/",
    "a/",
    "/a",
    "a//b",
    ".",
    "..",
    "a/../b",
    "a/.",
    "./a",
    "a b",
    "a~b",
    "a+b",
    "ä",
    "a\n",
    "a\0",
    "k" * 129,
]
GOOD_KEYS = ["a", "a/b", "a/b/c", "...", ".a", "a.", "..a/b..", "-", "_", "Z9", "k" * 128]


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


class OpensRecords(Protocol):
    """Opens the same store each time. Where `is_durable`, the store forgets nothing in between."""

    is_durable: bool

    def __call__(self, now_unix: Callable[[], float]) -> Records: ...


class OpensBlobs(Protocol):
    is_durable: bool

    def __call__(self) -> Blobs: ...


# --- Records --------------------------------------------------------------------------------------------------------


@dataclass
class RecordsModel:
    """The live records, and each key's greatest version so far."""

    clock: Clock
    stored: dict[str, tuple[bytes, float | None]] = field(default_factory=dict)
    version: dict[str, int] = field(default_factory=dict)

    def live(self, key: str) -> Record | None:
        if key not in self.stored:
            return None
        value, expires = self.stored[key]
        if expires is not None and expires <= self.clock.now:
            return None
        return Record(value, self.version[key], expires)


_keys = st.sampled_from(["a", "a/b", "a/b/c", "a.b", "ab", "B"])
_ttls = st.one_of(st.none(), st.sampled_from([-1.0, 0.0, 1.0, 5.0, 50.0]))
_expected = st.sampled_from(["any", "any", "now", "none", "stale"])
record_operations = st.lists(
    st.one_of(
        st.tuples(st.just("save"), _keys, st.binary(max_size=8), _ttls, _expected),
        st.tuples(st.just("load"), _keys),
        st.tuples(st.just("delete"), _keys),
        st.tuples(st.just("delete all"), st.sampled_from(["a/", "a/b", "b", "nothing", "."])),
        st.tuples(st.just("scan"), st.sampled_from(["", "a", "a/", "a/b", "b", "nothing", "."])),
        st.tuples(st.just("wait"), st.sampled_from([0.5, 1.0, 5.0])),
        st.tuples(st.just("purge"), st.sampled_from([-3.0, 0.0])),
        st.tuples(st.just("reopen")),
    ),
    max_size=24,
)


async def records_are_a_dict(opener: OpensRecords, operations: list[tuple[object, ...]]) -> None:
    """Any sequence of calls answers as the model does."""
    clock = Clock()
    model = RecordsModel(clock)
    records = opener(clock)
    for operation in operations:
        match operation:
            case ("save", str(key), bytes(value), ttl, str(expected)):
                expires = None if ttl is None else clock.now + ttl  # type: ignore[operator]
                live = model.live(key)
                present = 0 if live is None else live.version
                wanted = {"any": None, "now": present, "none": 0, "stale": present + 1}[expected]
                if wanted is not None and wanted != present:
                    with pytest.raises(VersionConflict):
                        await records.save(key, value, expires_at_unix=expires, if_version=wanted)
                else:
                    version = await records.save(key, value, expires_at_unix=expires, if_version=wanted)
                    assert version > model.version.get(key, 0)
                    model.stored[key] = (value, expires)
                    model.version[key] = version
            case ("load", str(key)):
                assert await records.load(key) == model.live(key)
            case ("delete", str(key)):
                assert await records.delete(key) == (model.live(key) is not None)
                model.stored.pop(key, None)
            case ("delete all", str(prefix)):
                gone = [key for key in model.stored if key.startswith(prefix)]
                assert await records.delete_all(prefix) == sum(model.live(key) is not None for key in gone)
                for key in gone:
                    del model.stored[key]
            case ("scan", str(prefix)):
                found = [entry async for entry in records.scan(prefix)]
                keys = sorted(key for key in model.stored if key.startswith(prefix))
                assert found == [(key, record) for key in keys if (record := model.live(key)) is not None]
            case ("wait", float(seconds)):
                clock.now += seconds
            case ("purge", float(offset)):
                until = clock.now + offset
                expired = [key for key, (_, at) in model.stored.items() if at is not None and at <= until]
                assert await records.purge(until) == len(expired)
                for key in expired:
                    del model.stored[key]
            case ("reopen",):
                if opener.is_durable:
                    await records.aclose()
                    records = opener(clock)
            case _:
                raise AssertionError(operation)
    await records.aclose()


async def records_scan_in_pages(opener: OpensRecords) -> None:
    """A scan longer than any page gives each key once, in order, while others are saved and deleted."""
    records = opener(Clock())
    # Neighbours that begin alike, so that a page ends between "p/12" and "p/12-".
    keys = sorted(["p/-", *(f"p/{number}{end}" for number in range(300) for end in ("", "-"))])
    for key in keys:
        await records.save(key, key.encode())
    await records.save("q", b"outside")
    seen = []
    async for key, record in records.scan("p/"):
        assert record.value == key.encode()
        seen.append(key)
        if len(seen) == 3:
            await records.delete("p/0")  # behind
            await records.save("p/--", b"p/--")  # behind
            await records.save("p/9", b"p/9")  # ahead, and there before
    assert seen == keys
    await records.aclose()


async def records_versions_never_repeat(opener: OpensRecords) -> None:
    """A version that was read before a delete does not match any record saved after it."""
    clock = Clock()
    records = opener(clock)
    seen = [0]
    for end in ("delete", "expire", "expire and purge", "reopen", "replace"):
        seen.append(await records.save("k", b"v", expires_at_unix=clock.now + 1))
        match end:
            case "delete":
                await records.delete("k")
            case "reopen" if opener.is_durable:
                await records.delete("k")
                await records.aclose()
                records = opener(clock)
            case "expire" | "expire and purge":
                clock.now += 1
                assert await records.load("k") is None
                assert await records.purge(clock.now if "purge" in end else 0) == (1 if "purge" in end else 0)
    seen.append(await records.save("k", b"v"))
    assert seen == sorted(set(seen))
    for version in (0, *seen[:-1]):
        with pytest.raises(VersionConflict):
            await records.save("k", b"lost", if_version=version)
    await records.aclose()


async def records_first_of_rivals_wins(opener: OpensRecords) -> None:
    """One of several writers that saw the same version succeeds."""
    records = opener(Clock())
    won: list[int] = []
    lost: list[int] = []

    async def rival(number: int, version: int) -> None:
        try:
            await records.save("k", b"%d" % number, if_version=version)
            won.append(number)
        except VersionConflict:
            lost.append(number)

    for _ in range(3):
        before = await records.load("k")
        won.clear()
        lost.clear()
        async with anyio.create_task_group() as tasks:
            for number in range(8):
                tasks.start_soon(rival, number, 0 if before is None else before.version)
        after = await records.load("k")
        assert after is not None
        assert (len(won), len(lost)) == (1, 7)
        assert after.value == b"%d" % won[0]
    await records.aclose()


async def records_take_many_at_once(opener: OpensRecords) -> None:
    """Each of many concurrent writers has its own outcome, and a cancelled one does not take others with it."""
    records = opener(Clock())
    await records.save("taken", b"")
    versions: dict[str, int] = {}
    refused: list[int] = []

    async def save(number: int) -> None:
        if number % 7 == 3:
            with pytest.raises(VersionConflict):
                await records.save("taken", b"other", if_version=0)
            refused.append(number)
        else:
            versions[f"k/{number}"] = await records.save(f"k/{number}", b"%d" % number)

    async def give_up(number: int) -> None:
        with anyio.move_on_after(0):
            await records.save(f"given-up/{number}", b"")

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            for number in range(700):
                tasks.start_soon(save, number)
                if number % 50 == 0:
                    tasks.start_soon(give_up, number)
    assert len(refused) == 100 and len(set(versions.values())) == len(versions) == 600
    found = {key: record async for key, record in records.scan("k/")}
    assert {key: record.version for key, record in found.items()} == versions
    assert all(record.value == key[2:].encode() for key, record in found.items())
    taken = await records.load("taken")
    assert taken is not None and taken.value == b""
    async with anyio.create_task_group() as tasks:
        for number in range(600):
            tasks.start_soon(records.delete, f"k/{number}")
    assert len([key async for key, _ in records.scan("k/")]) == 600 - sum(f"k/{n}" in versions for n in range(600))
    await records.aclose()


async def records_refuse_bad_keys(opener: OpensRecords) -> None:
    records = opener(Clock())
    for key in BAD_KEYS:
        for call in (records.load(key), records.save(key, b""), records.delete(key)):
            with pytest.raises(ValueError, match="expected segments"):
                await call
    with pytest.raises(ValueError, match="expected the beginning"):
        await anext(aiter(records.scan("a%")))
    with pytest.raises(ValueError, match="expected the beginning of a key"):
        await records.delete_all("a%")
    for key in GOOD_KEYS:
        await records.save(key, key.encode())
    for key in GOOD_KEYS:
        record = await records.load(key)
        assert record is not None
        assert record.value == key.encode()
    await records.aclose()


async def records_close_for_good(opener: OpensRecords) -> None:
    records = opener(Clock())
    await records.save("k", b"v")
    await records.aclose()
    await records.aclose()
    for call in (records.load("k"), records.save("k", b""), records.delete("k"), records.purge(0)):
        with pytest.raises(StorageError):
            await call


# --- Blobs ----------------------------------------------------------------------------------------------------------


async def put(blobs: Blobs, key: str, content: bytes, *, limit: int = 1 << 30, chunk: int = 1 << 20) -> BlobStat:
    async with blobs.create(key, size_max_bytes=limit) as writer:
        for at in range(0, len(content), chunk):
            await writer.write(content[at : at + chunk])
        return await writer.commit()


async def lengthen(blobs: Blobs, key: str, offset: int, content: bytes, how: str) -> int:
    """Continues a draft, in pieces, and ends as `how` says. Returns the draft's length then."""
    try:
        async with blobs.extend(key, offset=offset, size_max_bytes=offset + len(content)) as writer:
            for at in range(0, len(content), 70_000):
                await writer.write(content[at : at + 70_000])
            assert writer.size_bytes == offset + len(content)
            if how == "undo":
                await writer.undo()
            elif how == "commit":
                stat = await writer.commit()
                assert stat.size_bytes == offset + len(content)
            elif how == "break":
                raise ZeroDivisionError
    except ZeroDivisionError:
        pass
    return writer.size_bytes


async def whole(chunks: AsyncIterator[bytes]) -> bytes:
    pieces = [piece async for piece in chunks]
    assert all(0 < len(piece) <= CHUNK_SIZE_MAX for piece in pieces)
    return b"".join(pieces)


async def contents(blobs: Blobs) -> dict[str, bytes]:
    """All blobs in the store. `stat` and `path_for` are checked on the way."""
    found: dict[str, bytes] = {}
    async for key in blobs.keys():
        found[key] = await whole(blobs.read(key))
        assert await blobs.stat(key) == BlobStat(len(found[key]), hashlib.sha256(found[key]).hexdigest())
        path = blobs.path_for(key)
        if path is not None:
            with open(path, "rb") as file:
                assert file.read() == found[key]
    assert list(found) == sorted(found)
    return found


_contents = st.one_of(
    st.binary(max_size=40),
    st.builds(lambda unit, size: (unit * size)[:size], st.binary(min_size=1, max_size=7), st.integers(0, 300_000)),
)
blob_operations = st.lists(
    st.one_of(
        st.tuples(st.just("put"), _keys, _contents, st.sampled_from([1 << 20, 70_000, 999])),
        st.tuples(st.just("abandon"), _keys, _contents),
        st.tuples(st.just("overflow"), _keys, _contents),
        st.tuples(st.just("read"), _keys, st.integers(0, 200_000), st.one_of(st.none(), st.integers(0, 300_001))),
        st.tuples(st.just("extend"), _keys, _contents, st.sampled_from(["leave", "undo", "commit", "break", "wrong"])),
        st.tuples(st.just("delete"), _keys),
        st.tuples(st.just("sweep")),
        st.tuples(st.just("reopen")),
    ),
    max_size=10,
)


async def blobs_are_a_dict(opener: OpensBlobs, operations: list[tuple[object, ...]]) -> None:
    """Any sequence of calls leaves what the model has, in whatever pieces it was written."""
    model: dict[str, bytes] = {}
    drafts: dict[str, bytes] = {}
    blobs = opener()
    for operation in operations:
        match operation:
            case ("put", str(key), bytes(content), int(chunk)):
                stat = await put(blobs, key, content, limit=len(content), chunk=chunk)
                assert stat == BlobStat(len(content), hashlib.sha256(content).hexdigest())
                model[key] = content
            case ("abandon", str(key), bytes(content)):
                async with blobs.create(key, size_max_bytes=len(content)) as writer:
                    await writer.write(content)
                    assert await contents(blobs) == model
            case ("overflow", str(key), bytes(content)):
                with pytest.raises(StorageFull):
                    await put(blobs, key, content + b"!", limit=len(content))
            case ("read", str(key), int(start), stop):
                if key in model:
                    assert await whole(blobs.read(key, start, stop)) == model[key][start:stop]  # type: ignore[arg-type]
                else:
                    with pytest.raises(NotStored):
                        await whole(blobs.read(key))
                    assert await blobs.stat(key) is None
                    assert blobs.path_for(key) is None
            case ("extend", str(key), bytes(content), "wrong"):
                offset = len(drafts.get(key, b"")) + 1
                with pytest.raises(NotStored):
                    await lengthen(blobs, key, offset, content, "leave")
            case ("extend", str(key), bytes(content), str(how)):
                draft = drafts.get(key, b"")
                assert await lengthen(blobs, key, len(draft), content, how) == (
                    len(draft) if how == "undo" else len(draft) + len(content)
                )
                if how != "undo":
                    draft += content
                drafts[key] = draft
                if how == "commit":
                    model[key] = drafts.pop(key)
            case ("delete", str(key)):
                assert await blobs.delete(key) == (key in model)
                model.pop(key, None)
                drafts.pop(key, None)
            case ("sweep",):
                assert await blobs.sweep() == 0
            case ("reopen",):
                if opener.is_durable:
                    await blobs.aclose()
                    blobs = opener()
                    assert await blobs.sweep() == len(drafts), "none outlives its process"
                    drafts.clear()
            case _:
                raise AssertionError(operation)
        assert await contents(blobs) == model
    await blobs.aclose()


async def blobs_readers_keep_what_they_began(opener: OpensBlobs) -> None:
    blobs = opener()
    old, new = b"old" * 100_000, b"new" * 100_000
    await put(blobs, "k", old)
    reader = aiter(blobs.read("k"))
    got = await anext(reader)
    await put(blobs, "k", new)
    other = aiter(blobs.read("k"))
    other_got = await anext(other)
    await blobs.delete("k")
    assert got + b"".join([piece async for piece in reader]) == old
    assert other_got + b"".join([piece async for piece in other]) == new
    await blobs.aclose()


async def blobs_later_commit_stays(opener: OpensBlobs) -> None:
    blobs = opener()
    async with (
        blobs.create("k", size_max_bytes=9) as first,
        blobs.create("k", size_max_bytes=9) as second,
    ):
        await first.write(b"first")
        await second.write(b"second")
        await second.commit()
        assert await contents(blobs) == {"k": b"second"}
        await first.commit()
    assert await contents(blobs) == {"k": b"first"}
    if opener.is_durable:
        assert await contents(opener()) == {"k": b"first"}


async def blobs_spent_writers_do_not_commit(opener: OpensBlobs) -> None:
    """A truncated file does not pass for a whole one, and a commit is not counted twice."""
    blobs = opener()
    async with blobs.create("k", size_max_bytes=3) as writer:
        await writer.write(b"abc")
        with pytest.raises(StorageFull):
            await writer.write(b"d")
        with pytest.raises(StorageError):
            await writer.commit()
    assert await contents(blobs) == {}
    async with blobs.create("k", size_max_bytes=3) as writer:
        await writer.write(b"abc")
        await writer.commit()
        with pytest.raises(StorageError):
            await writer.commit()
    assert await contents(blobs) == {"k": b"abc"}


async def blobs_copy_files(opener: OpensBlobs) -> None:
    """Copying a file writes its content, from its current position, as far as it goes and no further."""
    blobs = opener()
    content = bytes(range(256)) * 10_000
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.flush()
        for start, size, before in (
            (0, len(content), b""),
            (5, 2_000_000, b"a"),
            (len(content) - 3, 9, b"a"),
            (0, 0, b""),
        ):
            copied = content[start : start + size]
            os.lseek(file.fileno(), start, os.SEEK_SET)
            async with blobs.create("k", size_max_bytes=len(before) + size + 1) as writer:
                await writer.write(before)
                assert await writer.copy_from(file.fileno(), size) == len(copied)
                await writer.write(b"z")
                stat = await writer.commit()
            assert await contents(blobs) == {"k": before + copied + b"z"}
            assert stat == await blobs.stat("k")
            assert stat.sha256 == hashlib.sha256(before + copied + b"z").hexdigest()
        async with blobs.create("k", size_max_bytes=3) as writer:
            with pytest.raises(StorageFull):
                await writer.copy_from(file.fileno(), 4)
            with pytest.raises(StorageError):
                await writer.commit()
    assert await contents(blobs) == {"k": b"z"}


async def blobs_sweep_spares_open_writers(opener: OpensBlobs) -> None:
    blobs = opener()
    async with blobs.create("k", size_max_bytes=3) as writer:
        await writer.write(b"abc")
        assert await blobs.sweep() == 0
        await writer.commit()
    assert await contents(blobs) == {"k": b"abc"}


async def blobs_cancelled_writers_leave_nothing(opener: OpensBlobs) -> None:
    blobs = opener()
    with anyio.CancelScope() as scope:
        async with blobs.create("k", size_max_bytes=1 << 20) as writer:
            await writer.write(b"x" * 500_000)
            scope.cancel()
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert await contents(blobs) == {}


async def blobs_drafts_keep_what_was_written(opener: OpensBlobs) -> None:
    """A draft keeps the bytes of a writer that was cancelled, or met its limit."""
    blobs = opener()
    with anyio.CancelScope() as scope:
        async with blobs.extend("k", offset=0, size_max_bytes=1 << 20) as writer:
            await writer.write(b"x" * 500_000)
            scope.cancel()
            await anyio.sleep_forever()
    assert scope.cancelled_caught and writer.size_bytes == 500_000
    assert await contents(blobs) == {}
    async with blobs.extend("k", offset=500_000, size_max_bytes=500_003) as writer:
        await writer.write(b"ab")
        with pytest.raises(StorageFull):
            await writer.write(b"cd")
        assert writer.size_bytes == 500_002
        await writer.write(b"c")
        await writer.commit()
    assert await contents(blobs) == {"k": b"x" * 500_000 + b"abc"}
    with pytest.raises(NotStored):
        await lengthen(blobs, "k", 500_003, b"", "leave")


async def blobs_a_draft_can_be_taken_back_and_gone_on_with(opener: OpensBlobs) -> None:
    blobs = opener()
    await lengthen(blobs, "k", 0, b"a" * 300_000, "leave")
    async with blobs.extend("k", offset=300_000, size_max_bytes=1 << 20) as writer:
        await writer.write(b"b" * 600_000)
        await writer.undo()
        await writer.write(b"c" * 10)
    await lengthen(blobs, "k", 300_010, b"", "commit")
    assert await contents(blobs) == {"k": b"a" * 300_000 + b"c" * 10}


async def blobs_drafts_have_one_writer_at_a_time(opener: OpensBlobs) -> None:
    blobs = opener()
    steps: list[str] = []

    async def later() -> None:
        await lengthen(blobs, "k", 2, b"cd", "commit")
        steps.append("second")

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            async with blobs.extend("k", offset=0, size_max_bytes=9) as writer:
                tasks.start_soon(later)
                await anyio.wait_all_tasks_blocked()
                await writer.write(b"ab")
                steps.append("first")
    assert steps == ["first", "second"]
    assert await contents(blobs) == {"k": b"abcd"}


async def blobs_sweep_spares_drafts(opener: OpensBlobs) -> None:
    blobs = opener()
    await lengthen(blobs, "k", 0, b"ab", "leave")
    assert await blobs.sweep() == 0
    await lengthen(blobs, "k", 2, b"c", "commit")
    assert await contents(blobs) == {"k": b"abc"}


async def blobs_refuse_bad_keys(opener: OpensBlobs) -> None:
    blobs = opener()
    for key in BAD_KEYS:
        with pytest.raises(ValueError, match="expected segments"):
            async with blobs.create(key, size_max_bytes=1):
                pass
        with pytest.raises(ValueError, match="expected segments"):
            async with blobs.extend(key, offset=0, size_max_bytes=1):
                pass
        with pytest.raises(ValueError, match="expected segments"):
            await anext(aiter(blobs.read(key)))
        with pytest.raises(ValueError, match="expected segments"):
            blobs.path_for(key)
        for call in (blobs.stat(key), blobs.delete(key)):
            with pytest.raises(ValueError, match="expected segments"):
                await call
    for key in GOOD_KEYS:
        await put(blobs, key, key.encode())
    assert await contents(blobs) == {key: key.encode() for key in GOOD_KEYS}
    for start, stop in ((-1, None), (0, -1)):
        with pytest.raises(ValueError, match="expected bounds"):
            await anext(aiter(blobs.read("a", start, stop)))
    await blobs.aclose()


RECORD_LAWS = [
    records_versions_never_repeat,
    records_scan_in_pages,
    records_take_many_at_once,
    records_first_of_rivals_wins,
    records_refuse_bad_keys,
    records_close_for_good,
]
BLOB_LAWS = [
    blobs_readers_keep_what_they_began,
    blobs_later_commit_stays,
    blobs_copy_files,
    blobs_spent_writers_do_not_commit,
    blobs_sweep_spares_open_writers,
    blobs_cancelled_writers_leave_nothing,
    blobs_drafts_keep_what_was_written,
    blobs_a_draft_can_be_taken_back_and_gone_on_with,
    blobs_drafts_have_one_writer_at_a_time,
    blobs_sweep_spares_drafts,
    blobs_refuse_bad_keys,
]
