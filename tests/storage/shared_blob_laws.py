"""The laws of stores of blobs that several processes share, with two or more openers at once."""

from __future__ import annotations

from typing import Protocol

import anyio
import anyio.lowlevel
import laws
import pytest
from hypothesis import strategies as st
from isthmus.storage.interface import Blobs, BlobStat, NotStored, StorageFull


class OpensShared(Protocol):
    """Opens the same store for each replica."""

    is_durable: bool

    def __call__(self, replica: str = "a") -> Blobs: ...


_replicas = st.sampled_from(["a", "b"])
shared_operations = st.lists(
    st.one_of(
        st.tuples(st.just("put"), _replicas, laws._keys, laws._contents),
        st.tuples(st.just("abandon"), _replicas, laws._keys, laws._contents),
        st.tuples(st.just("overflow"), _replicas, laws._keys, laws._contents),
        st.tuples(st.just("read"), _replicas, laws._keys, st.integers(0, 200_000), st.none() | st.integers(0, 300_001)),
        st.tuples(st.just("extend"), _replicas, laws._keys, laws._contents, st.sampled_from(["leave", "commit"])),
        st.tuples(st.just("delete"), _replicas, laws._keys),
        st.tuples(st.just("sweep"), _replicas),
        st.tuples(st.just("reopen"), _replicas),
    ),
    max_size=10,
)


async def shared_blobs_are_a_dict(opener: OpensShared, operations: list[tuple[object, ...]]) -> None:
    """Any sequence of calls of two replicas leaves one dictionary. Drafts are each replica's own."""
    model: dict[str, bytes] = {}
    drafts: dict[str, dict[str, bytes]] = {"a": {}, "b": {}}
    replicas = {name: opener(name) for name in drafts}
    for operation in operations:
        match operation:
            case ("put", str(name), str(key), bytes(content)):
                await laws.put(replicas[name], key, content)
                model[key] = content
            case ("abandon", str(name), str(key), bytes(content)):
                async with replicas[name].create(key, size_max_bytes=len(content)) as writer:
                    await writer.write(content)
                    for replica in replicas.values():
                        assert await replica.sweep() == 0
            case ("overflow", str(name), str(key), bytes(content)):
                with pytest.raises(StorageFull):
                    await laws.put(replicas[name], key, content + b"!", limit=len(content))
            case ("read", str(name), str(key), int(start), stop):
                if key in model:
                    found = await laws.whole(replicas[name].read(key, start, stop))  # type: ignore[arg-type]
                    assert found == model[key][start:stop]  # type: ignore[misc]
                else:
                    with pytest.raises(NotStored):
                        await laws.whole(replicas[name].read(key))
            case ("extend", str(name), str(key), bytes(content), str(how)):
                draft = drafts[name].pop(key, b"")
                await laws.lengthen(replicas[name], key, len(draft), content, how)
                (model if how == "commit" else drafts[name])[key] = draft + content
            case ("delete", str(name), str(key)):
                assert await replicas[name].delete(key) == (key in model)
                model.pop(key, None)
                drafts[name].pop(key, None)
            case ("sweep", str(name)):
                assert await replicas[name].sweep() == 0
            case ("reopen", str(name)):
                await replicas[name].aclose()
                replicas[name] = opener(name)
                assert await replicas[name].sweep() == len(drafts[name])
                drafts[name].clear()
            case _:
                raise AssertionError(operation)
        for replica in replicas.values():
            assert await laws.contents(replica) == model
    for replica in replicas.values():
        await replica.aclose()


async def readers_keep_what_another_replaced(opener: OpensShared) -> None:
    """A reader that has its first chunk gets the rest, though another process replaces and deletes the blob."""
    writer, reader = opener("a"), opener("b")
    old, new = b"old" * 1_500_000, b"new" * 1_500_000
    await laws.put(writer, "k", old)
    first = aiter(reader.read("k"))
    got_first = await anext(first)
    await laws.put(writer, "k", new)
    second = aiter(reader.read("k"))
    got_second = await anext(second)
    assert await writer.delete("k")
    await writer.sweep()
    await writer.sweep()
    assert await reader.stat("k") is None
    assert got_first + b"".join([piece async for piece in first]) == old
    assert got_second + b"".join([piece async for piece in second]) == new
    with pytest.raises(NotStored):
        await laws.whole(reader.read("k"))


async def one_whole_blob_of_two_writers_stays(opener: OpensShared) -> None:
    """The blob of one of several writers of a key stays, whole, and all openers see the same one."""
    replicas = [opener(name) for name in "abcd"]
    contents = [bytes([65 + number]) * (1 + 700_000 * number) for number in range(len(replicas))]
    stats: list[BlobStat] = []

    async def write(replica: Blobs, content: bytes) -> None:
        stats.append(await laws.put(replica, "k", content))

    for _ in range(4):
        async with anyio.create_task_group() as tasks:
            for replica, content in zip(replicas, contents, strict=True):
                tasks.start_soon(write, replica, content)
        found = await laws.contents(replicas[0])
        assert found["k"] in contents and list(found) == ["k"]
        assert await replicas[0].stat("k") in stats
        for replica in replicas[1:]:
            assert await laws.contents(replica) == found


async def the_later_commit_stays(opener: OpensShared) -> None:
    """The order of commits counts, not that of writes or of openers."""
    one, other = opener("a"), opener("b")
    async with one.create("k", size_max_bytes=9) as first, other.create("k", size_max_bytes=9) as second:
        await second.write(b"second")
        await first.write(b"first")
        await second.commit()
        assert await laws.contents(one) == {"k": b"second"}
        await first.commit()
        assert await laws.contents(other) == {"k": b"first"}
    assert await laws.contents(other) == {"k": b"first"}


async def deletes_and_writes_at_once_leave_old_or_new(opener: OpensShared) -> None:
    """A reader sees a whole blob or none while other processes write and delete it."""
    writer, remover, reader = opener("a"), opener("b"), opener("c")
    contents = {b"%d" % number * 300_000 for number in range(4)}
    is_over = anyio.Event()
    seen = 0

    async def read() -> None:
        nonlocal seen
        while not is_over.is_set():
            try:
                assert await laws.whole(reader.read("k")) in contents
                seen += 1
            except NotStored:
                await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        for content in sorted(contents):
            await laws.put(writer, "k", content)
            async with anyio.create_task_group() as rivals:
                rivals.start_soon(remover.delete, "k")
                rivals.start_soon(laws.put, writer, "k", content)
        await laws.put(writer, "k", content)
        assert await laws.whole(reader.read("k")) == content
        is_over.set()
    assert await remover.delete("k")
    assert await writer.stat("k") is None


async def keys_are_seen_by_the_other(opener: OpensShared) -> None:
    one, other = opener("a"), opener("b")
    for key in ("b", "a/b", "a.b", "a", "a-b", "a/b/c"):
        await laws.put(one, key, key.encode())
    assert [key async for key in other.keys()] == ["a", "a-b", "a.b", "a/b", "a/b/c", "b"]  # noqa: SIM118
    await other.delete("a.b")
    assert [key async for key in one.keys()] == ["a", "a-b", "a/b", "a/b/c", "b"]  # noqa: SIM118


async def a_sweep_spares_the_writers_of_others(opener: OpensShared) -> None:
    """A sweep removes neither pieces on their way nor drafts nor blobs, whoever writes them."""
    one, other = opener("a"), opener("b")
    await laws.put(one, "kept", b"kept")
    await laws.lengthen(one, "draft", 0, b"ab", "leave")
    content = b"x" * 20_000_000
    async with one.create("k", size_max_bytes=len(content)) as writer:
        await writer.write(content)
        assert await other.sweep() == 0
        assert await opener("c").sweep() == 0
        await writer.commit()
    assert await other.sweep() == 0
    await laws.lengthen(one, "draft", 2, b"c", "commit")
    assert await laws.contents(other) == {"draft": b"abc", "k": content, "kept": b"kept"}


SHARED_BLOB_LAWS = [
    readers_keep_what_another_replaced,
    one_whole_blob_of_two_writers_stays,
    the_later_commit_stays,
    deletes_and_writes_at_once_leave_old_or_new,
    keys_are_seen_by_the_other,
    a_sweep_spares_the_writers_of_others,
]
