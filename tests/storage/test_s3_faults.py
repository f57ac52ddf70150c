"""Tests of what is left after faults: crashes at each request, a server that dies or is silent, old leftovers.

Changes are made by calls of obstore. In turn, each of them fails, before or after the server carried it out; in a crash
all later ones fail too.
"""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import anyio.lowlevel
import laws
import obstore
import pytest
from isthmus.storage import s3, s3_objects
from isthmus.storage.interface import Blobs, NotStored, StorageError, StorageFull
from isthmus.storage.s3 import PAUSE_MAX_S, PIECE_SIZE, WINDOW_SIZE, S3Blobs
from isthmus.storage.s3_location import parse_location
from isthmus.storage.s3_objects import REQUESTS_MAX, Listed, S3Objects
from isthmus.storage.s3_report import examine_objects
from isthmus.storage.s3_sweep import GRACE_S
from obstore.exceptions import GenericError
from one_loop import anyio_backend  # noqa: F401 (a fixture)
from s3_server import (
    BUCKET,
    SECRET,
    OpenedS3,
    S3Server,
    relay,
    running_server,
    server_fixture,  # noqa: F401 (a fixture)
)

pytestmark = [pytest.mark.real, pytest.mark.anyio]

OLD, NEW = b"old" * 100_000, b"new" * 100_000
LONG, OTHER = b"long" * 2_250_000, b"other" * 1_800_000
SMALL_PIECE = 200_000
STEPS_MAX = 20
PATIENCE_S = 1.0


@pytest.fixture
def opener(server: S3Server, tmp_path: Path) -> OpenedS3:
    return OpenedS3(server, tmp_path)


@contextmanager
def later(seconds: float) -> Iterator[None]:
    """The server's clock, as sweeps read it, is ahead."""
    real = S3Objects.clock

    async def clock(objects: S3Objects, name: str) -> float:
        return await real(objects, name) + seconds

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(S3Objects, "clock", clock)
        yield


class Machine:
    """Counts the calls that change something, and fails those that `fails` selects."""

    def __init__(self, fails: Callable[[int], bool], *, is_carried_out: bool) -> None:
        self.count = 0
        self._fails = fails
        self._is_carried_out = is_carried_out

    @contextmanager
    def running(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for name in ("put", "delete"):
                patch.setattr(obstore, name, self._faulty(getattr(obstore, name)))
            yield

    def _faulty(self, real: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **kwargs: object) -> object:
            self.count += 1
            if not self._fails(self.count):
                return real(*args, **kwargs)
            if self._is_carried_out:
                real(*args, **kwargs)
            raise GenericError(f"error performing PUT https://host/bucket: <AWSAccessKeyId>{SECRET}</AWSAccessKeyId>")

        return call


async def replace(blobs: Blobs) -> None:
    await laws.put(blobs, "k", NEW)


async def create(blobs: Blobs) -> None:
    await laws.put(blobs, "fresh", NEW)


async def delete(blobs: Blobs) -> None:
    await blobs.delete("k")


async def leave(blobs: Blobs) -> None:
    async with blobs.create("k", size_max_bytes=len(NEW)) as writer:
        await writer.write(NEW)


async def grow(blobs: Blobs) -> None:
    """Writes a draft in two steps, after the remains of an earlier attempt."""
    await blobs.delete("fresh")
    await laws.lengthen(blobs, "fresh", 0, NEW[:300_000], "leave")
    await laws.lengthen(blobs, "fresh", 300_000, NEW[300_000:], "commit")


BEFORE = {"k": OLD, "k/k": b"other"}
AFTER = {
    replace: {"k": NEW, "k/k": b"other"},
    create: {"k": OLD, "k/k": b"other", "fresh": NEW},
    grow: {"k": OLD, "k/k": b"other", "fresh": NEW},
    delete: {"k/k": b"other"},
    leave: BEFORE,
}


def pieces(content: bytes) -> int:
    return -(-len(content) // s3.PIECE_SIZE)


async def swept(opener: OpenedS3) -> None:
    """Sweeps until everything is old, and checks that nothing is left over."""
    blobs = opener("sweeper")
    found = await laws.contents(blobs)
    with later(GRACE_S + 2):
        await blobs.sweep()
        await blobs.sweep()
    assert await laws.contents(blobs) == found
    names = opener.server.names(opener.prefix)
    assert len([name for name in names if name.startswith("data/")]) == sum(map(pieces, found.values()))
    assert sorted(name for name in names if not name.startswith("data/")) == sorted(
        ["clock", *(f"blobs/{key}" for key in found)]
    )
    assert opener.server.multipart_uploads() == 0


def _checked(error: StorageError) -> bool:
    assert SECRET not in str(error) and "host" not in str(error)
    return False


@pytest.mark.parametrize("is_crash", [False, True])
@pytest.mark.parametrize("is_carried_out", [False, True])
@pytest.mark.parametrize("change", AFTER)
async def test_a_fault_at_any_request_leaves_old_or_new(
    change: Callable[[Blobs], Awaitable[None]],
    is_carried_out: bool,
    is_crash: bool,
    server: S3Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(s3, "PIECE_SIZE", SMALL_PIECE)
    for step in range(1, STEPS_MAX):
        opener = OpenedS3(server, tmp_path / str(step))
        blobs = opener("a")
        for key, content in BEFORE.items():
            await laws.put(blobs, key, content)
        machine = Machine(
            lambda count, step=step: count >= step if is_crash else count == step,  # type: ignore[misc]
            is_carried_out=is_carried_out,
        )
        with machine.running():
            try:
                await change(blobs)
                is_done = True
            except StorageError as error:
                is_done = _checked(error)
        found = await laws.contents(opener("b"))
        assert found in ((AFTER[change],) if is_done else (BEFORE, AFTER[change]))
        assert await laws.contents(blobs) == found
        if not is_crash:
            await change(blobs)  # the store still works
            found = await laws.contents(opener("b"))
        await swept(opener)
        assert await laws.contents(opener("b")) == found
        if machine.count < step:
            return
    raise AssertionError("the change never ran to its end")


async def test_what_is_replaced_and_deleted_goes_after_the_grace(opener: OpenedS3) -> None:
    blobs = opener("a")
    for key in ("a", "a.b", "a/b", "b"):
        await laws.put(blobs, key, b"first")
    await laws.put(blobs, "a", b"second")
    await blobs.delete("a.b")
    await blobs.delete("b")
    assert len([name for name in opener.server.names(opener.prefix) if name.startswith("data/")]) == 5
    with later(GRACE_S - 60):
        assert await blobs.sweep() == 0
    assert not [name for name in opener.server.names(opener.prefix) if name.startswith("dead/")]
    with later(GRACE_S + 2):
        assert await blobs.sweep() == 0
    assert len([name for name in opener.server.names(opener.prefix) if name.startswith("dead/")]) == 3
    with later(GRACE_S - 60):
        assert await blobs.sweep() == 0, "the marks are young"
    assert len([name for name in opener.server.names(opener.prefix) if name.startswith("data/")]) == 5
    with later(GRACE_S + 2):
        assert await opener("b").sweep() == 3, "any replica may"
    assert await laws.contents(blobs) == {"a": b"second", "a/b": b"first"}
    await swept(opener)


async def test_sweeps_at_once_do_no_harm(opener: OpenedS3) -> None:
    replicas = [opener(name) for name in "abc"]
    for number in range(5):
        await laws.put(replicas[0], "k", b"%d" % number)
    with later(GRACE_S + 2):
        for _ in range(2):
            async with anyio.create_task_group() as tasks:
                for replica in replicas:
                    tasks.start_soon(replica.sweep)
    assert await laws.contents(replicas[0]) == {"k": b"4"}
    await swept(opener)


async def test_an_upload_that_takes_hours_is_spared(opener: OpenedS3, monkeypatch: pytest.MonkeyPatch) -> None:
    """The age of a content is that of its newest piece."""
    real = S3Objects.listing

    async def listing(objects: S3Objects, folder: str) -> AsyncGenerator[Listed, None]:
        async for found in real(objects, folder):
            is_first = found.name.endswith("/000000")
            yield found._replace(modified_at_unix=found.modified_at_unix - (2 * GRACE_S if is_first else 0))

    monkeypatch.setattr(S3Objects, "listing", listing)
    blobs = opener("a")
    async with blobs.create("k", size_max_bytes=len(LONG) * 3) as writer:
        for _ in range(3):
            await writer.write(LONG)
        assert await opener("b").sweep() == 0
        assert not [name for name in opener.server.names(opener.prefix) if name.startswith("dead/")]
        await writer.commit()
    assert await opener("b").sweep() == 0
    assert await laws.contents(opener("b")) == {"k": LONG * 3}


async def test_a_reader_that_outlasts_the_grace_is_told(opener: OpenedS3) -> None:
    """A reader gets the bytes that it began with, or an error, and never the bytes of another blob."""
    blobs = opener("a")
    await laws.put(blobs, "k", LONG)
    reader = aiter(blobs.read("k"))
    await anext(reader)
    await laws.put(blobs, "k", OTHER)
    with later(GRACE_S + 2):
        await blobs.sweep()
        await blobs.sweep()
    with pytest.raises(StorageError, match="replaced or deleted long ago"):
        while piece := await anext(reader):
            assert piece in LONG
    assert await laws.contents(blobs) == {"k": OTHER}


async def test_a_writer_that_paused_for_long_is_refused(opener: OpenedS3, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep of another process may have taken its pieces for leftovers."""
    blobs, now = opener("a"), 0.0
    monkeypatch.setattr(s3, "monotonic", lambda: now)
    for pause, is_refused in ((PAUSE_MAX_S, False), (PAUSE_MAX_S + 1, True)):
        async with blobs.create(f"k{is_refused:d}", size_max_bytes=len(LONG)) as writer:
            await writer.write(LONG[:PIECE_SIZE])
            now += pause
            await writer.write(LONG[PIECE_SIZE:])
            if not is_refused:
                await writer.commit()
            else:
                with pytest.raises(StorageError, match="expected more"):
                    await writer.commit()
    assert await laws.contents(blobs) == {"k0": LONG}
    await swept(opener)


def s3_pieces(opener: OpenedS3) -> list[str]:
    return [name for name in opener.server.names(opener.prefix) if name.startswith("data/")]


async def test_an_abandoned_writer_leaves_nothing(opener: OpenedS3) -> None:
    blobs = opener("a")
    for _ in range(2):
        async with blobs.create("k", size_max_bytes=1 << 30) as writer:
            for _ in range(3):
                await writer.write(LONG)
            assert len(s3_pieces(opener)) == 3
        assert opener.server.names(opener.prefix) == []
        assert opener.server.multipart_uploads() == 0
    with anyio.CancelScope() as scope:
        async with blobs.create("k", size_max_bytes=1 << 30) as writer:
            await writer.write(LONG)
            scope.cancel()
            await writer.write(LONG)
            await writer.write(LONG)
    assert scope.cancelled_caught
    assert opener.server.names(opener.prefix) == []
    with pytest.raises(StorageFull):
        await laws.put(blobs, "k", LONG, limit=len(LONG) - 1)
    assert opener.server.names(opener.prefix) == []


async def test_requests_are_as_few_as_promised(opener: OpenedS3) -> None:
    """The table of the module `storage.s3` holds."""
    blobs = opener("a")

    async def cost(work: Awaitable[object]) -> int:
        before = len(opener.server.requests())
        await work
        return len(opener.server.requests()) - before

    async def leave(content: bytes) -> None:
        async with blobs.create("left", size_max_bytes=len(content)) as writer:
            await writer.write(content)

    async def keys() -> None:
        assert [key async for key in blobs.keys()] == sorted(sizes)  # noqa: SIM118

    sizes = {
        "empty": 0,
        "small": 100,
        "piece": PIECE_SIZE,
        "two": PIECE_SIZE + 1,
        "three": 2 * PIECE_SIZE + WINDOW_SIZE,
    }
    n = {key: -(-size // PIECE_SIZE) for key, size in sizes.items()}
    windows = {"empty": 0, "small": 1, "piece": 4, "two": 5, "three": 9}
    for key, size in sizes.items():
        assert await cost(laws.put(blobs, key, b"x" * size)) == n[key] + 1
        assert await cost(laws.put(blobs, key, b"y" * size)) == n[key] + 1, "it replaces"
        assert await cost(laws.whole(blobs.read(key))) == 1 + windows[key]
        assert await cost(laws.whole(blobs.read(key, 0, 50))) == 1 + min(1, windows[key])
        assert await cost(blobs.stat(key)) == 1
    assert await cost(keys()) == 1
    assert await cost(leave(b"z" * 100)) == 0
    assert await cost(leave(b"z" * (2 * PIECE_SIZE + 1))) == 3
    for key in sizes:
        assert await cost(blobs.delete(key)) == 2
    assert await cost(blobs.delete("nothing")) == 1
    assert await cost(opener("b").sweep()) == 2 + 3


async def test_a_connection_that_breaks_in_a_write_leaves_nothing_to_be_seen(opener: OpenedS3, tmp_path: Path) -> None:
    """The relay cuts off in the second piece, and refuses all that comes after."""
    with relay(opener.server) as between, anyio.fail_after(60):
        between.limit = PIECE_SIZE + 3_000_000
        objects = opener.server.objects(
            opener.prefix, port=between.port, attempt_timeout_s=PATIENCE_S, retry_timeout_s=PATIENCE_S
        )
        blobs = S3Blobs(objects, str(tmp_path / "cut"))
        with pytest.raises(StorageError, match="the object store cannot be used"):
            await laws.put(blobs, "k", LONG * 2)
        with pytest.raises(StorageError, match="there is no connection to it"):
            await blobs.stat("k")
        await laws.lengthen(blobs, "draft", 0, b"ab", "leave")
        with pytest.raises(StorageError):
            await laws.lengthen(blobs, "draft", 2, b"c", "commit")
    other = opener("b")
    assert await other.stat("k") is None
    assert await laws.contents(other) == {}
    assert len(s3_pieces(opener)) == 1
    await swept(opener)


async def test_a_silent_server_is_not_waited_for(opener: OpenedS3, tmp_path: Path) -> None:
    """Each call ends with an error, and works again when the server does."""
    with relay(opener.server) as between, anyio.fail_after(120):
        objects = opener.server.objects(
            opener.prefix, port=between.port, attempt_timeout_s=PATIENCE_S, retry_timeout_s=PATIENCE_S / 10
        )
        blobs = S3Blobs(objects, str(tmp_path / "silent"))
        await laws.put(blobs, "k", LONG)
        reader = aiter(blobs.read("k"))
        await anext(reader)
        between.pause()
        calls: list[Awaitable[object]] = [blobs.stat("k"), blobs.delete("k"), laws.put(blobs, "k", OTHER)]
        calls += [laws.contents(blobs), blobs.sweep(), laws.whole(reader)]
        for call in calls:
            with pytest.raises(StorageError, match="it did not answer in time"):
                await call
        between.resume()
    assert await laws.contents(opener("b")) in ({"k": LONG}, {"k": OTHER}, {})


async def test_a_request_does_not_wait_for_others_for_ever(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    objects, end = server.objects(uuid.uuid4().hex), threading.Event()
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            for _ in range(REQUESTS_MAX):
                tasks.start_soon(objects.run, end.wait, 60)
            await anyio.wait_all_tasks_blocked()
            with monkeypatch.context() as patch:
                # Only now: the requests above may take longer to get their threads.
                patch.setattr(s3_objects, "QUEUE_TIMEOUT_S", 0.01)
                with pytest.raises(StorageError, match="too many requests wait"):
                    await objects.get("k", 0, 1)
            end.set()
        assert await objects.get("k", 0, 1) is None


async def test_a_server_that_is_killed_in_a_write_is_told_of(tmp_path: Path) -> None:
    with running_server(tmp_path) as server, anyio.fail_after(120):
        objects = server.objects("p", attempt_timeout_s=PATIENCE_S, retry_timeout_s=PATIENCE_S)
        blobs = S3Blobs(objects, str(tmp_path / "drafts"))
        await laws.put(blobs, "kept", b"kept")
        with pytest.raises(StorageError):
            async with blobs.create("k", size_max_bytes=1 << 30) as writer:
                await writer.write(LONG)
                server.kill()
                await writer.write(LONG)
                await writer.write(LONG)
                await writer.commit()
        for call in (blobs.stat("kept"), blobs.delete("kept"), laws.contents(blobs), blobs.sweep()):
            with pytest.raises(StorageError, match="there is no connection to it") as raised:
                await call
            assert str(server.port) not in str(raised.value) and SECRET not in str(raised.value)


async def test_a_missing_bucket_is_not_an_empty_store(server: S3Server, tmp_path: Path) -> None:
    location = parse_location(f"s3://no-such-bucket?endpoint=http://127.0.0.1:{server.port}&region=us-east-1")
    blobs = S3Blobs(S3Objects(location), str(tmp_path))
    calls = [blobs.stat("k"), blobs.delete("k"), laws.contents(blobs), laws.put(blobs, "k", b"v"), blobs.sweep()]
    for call in [*calls, laws.whole(blobs.read("k")), blobs.examine()]:
        with pytest.raises(StorageError, match="NoSuchBucket; create the bucket, or correct its name") as raised:
            await call
        assert raised.type is StorageError


async def test_objects_of_others_are_left_alone(opener: OpenedS3) -> None:
    blobs, objects = opener("a"), opener.server.objects(opener.prefix)
    foreign = ["blobs/a b", "data/mine", "data/k!1/x", "dead/mine", "notes"]
    for name in foreign:
        await objects.put(name, b"mine")
    await laws.put(blobs, "k", b"v")
    with later(GRACE_S + 2):
        assert [await blobs.sweep() for _ in range(2)] == [0, 0]
    assert await laws.contents(blobs) == {"k": b"v"}
    assert set(foreign) <= set(opener.server.names(opener.prefix))
    await objects.put("blobs/k", b'{"content": "../../x"}')
    for call in (blobs.stat("k"), laws.whole(blobs.read("k"))):
        with pytest.raises(StorageError, match="nothing else may write to the prefix"):
            await call
    assert await blobs.delete("k")
    assert await blobs.stat("k") is None


async def test_a_content_that_somebody_removed_is_not_stored(opener: OpenedS3) -> None:
    blobs = opener("a")
    await laws.put(blobs, "k", b"v")
    await opener.server.objects(opener.prefix).delete(s3_pieces(opener))
    with pytest.raises(NotStored):
        await laws.whole(blobs.read("k"))
    assert await blobs.delete("k")


async def test_a_content_that_somebody_cut_short_is_not_passed_on(opener: OpenedS3) -> None:
    blobs = opener("a")
    await laws.put(blobs, "k", b"content")
    await opener.server.objects(opener.prefix).put(s3_pieces(opener)[0], b"cont")
    with pytest.raises(StorageError, match="the content of blob k"):
        await laws.whole(blobs.read("k"))


async def test_the_report_says_where_and_how(server: S3Server, tmp_path: Path) -> None:
    prefix = uuid.uuid4().hex
    before = len(server.requests())
    report = await S3Blobs(server.objects(prefix), str(tmp_path)).examine()
    assert len(server.requests()) - before == 9
    assert report.engine == f"S3 at 127.0.0.1:{server.port}"
    assert report.place == f"{BUCKET}/{prefix}"
    assert abs(report.clock_skew_s) < 60
    assert server.names(prefix) == ["clock"]


async def test_a_store_without_order_is_refused(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    real = obstore.list
    monkeypatch.setattr(obstore, "list", lambda *args, **kwargs: [page[::-1] for page in real(*args, **kwargs)])
    with pytest.raises(StorageError, match="in no order"):
        await examine_objects(server.objects(uuid.uuid4().hex))


BIG = """
import hashlib, resource, sys, time
import anyio
from isthmus.storage.s3 import S3Blobs
from isthmus.storage.s3_location import parse_location
from isthmus.storage.s3_objects import REQUESTS_MAX, Listed, S3Objects

CHUNK, COUNT = bytes(range(256)) * 256, 3200

def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

async def main() -> None:
    blobs = S3Blobs(S3Objects(parse_location(sys.argv[1])), sys.argv[2])
    async with blobs.create("small", size_max_bytes=9) as writer:
        await writer.write(b"small")
        await writer.commit()
    before = peak()
    async with blobs.create("big", size_max_bytes=len(CHUNK) * COUNT) as writer:
        for _ in range(COUNT):
            await writer.write(CHUNK)
        stat = await writer.commit()
    written = peak()
    found = hashlib.sha256()
    async for chunk in blobs.read("big"):
        found.update(chunk)
    assert found.hexdigest() == stat.sha256 and stat.size_bytes == 200 * 1024 * 1024
    async with blobs.extend("draft", offset=0, size_max_bytes=len(CHUNK) * COUNT) as draft:
        for _ in range(COUNT):
            await draft.write(CHUNK)
        assert await draft.commit() == stat
    print(before, written - before, peak() - before)

anyio.run(main)
"""


async def test_a_big_file_takes_little_memory(
    opener: OpenedS3, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Writing, reading and uploading 200 MiB takes the memory of some pieces."""
    url = f"s3://{BUCKET}/{opener.prefix}?endpoint=http://127.0.0.1:{opener.server.port}&region=us-east-1"
    program = [sys.executable, "-c", BIG, url, str(tmp_path / "drafts")]
    done = await anyio.to_thread.run_sync(
        lambda: subprocess.run(program, capture_output=True, text=True, timeout=300, check=False)
    )
    assert done.returncode == 0, done.stderr
    figures = re.findall(r"\d+", done.stdout)
    assert len(figures) == 3 and int(figures[2]) < 8 * PIECE_SIZE // 2**20, done.stdout
    for key in ("big", "draft", "small"):
        assert await opener("b").delete(key)
    with later(GRACE_S + 2):
        assert [await opener("b").sweep() for _ in range(2)] == [0, 3]
