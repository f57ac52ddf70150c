"""Tests of the store of credentials, with processes of their own where several use it."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import anyio.lowlevel
import msgspec
import pytest
from credential_process import KEY
from isthmus.app.logins.interface import KEPT_MAX, RECORD_MAX_BYTES, LoginKey
from isthmus.app.logins.sealing import KEY_FILE, KEY_VARIABLE, StoreError, UnreadableRecord
from isthmus.app.logins.store import CredentialStore, default_folder

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

PATIENCE_S = 60.0
SCRIPT = Path(__file__).parent.parent / "credential_process.py"
OTHER = LoginKey("https://idp.example", "client", "https://mcp.example/mcp", "alice")
ENVIRON = {KEY_VARIABLE: "00" * 32}
RECORD = b'{"access_token":"SECRET7391"}'


@pytest.fixture(autouse=True)
async def patience(anyio_backend: str) -> AsyncIterator[None]:
    with anyio.fail_after(PATIENCE_S):
        yield


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state" / "isthmus" / "credentials"


@pytest.fixture
def store(folder: Path) -> CredentialStore:
    return CredentialStore(str(folder), {})


async def write(store: CredentialStore, record: bytes, key: LoginKey = KEY) -> None:
    async with store.lock(key) as held:
        await held.write(record)


@contextmanager
def process(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, str(SCRIPT), str(folder), *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as started:
        try:
            yield started
        finally:
            started.kill()


async def line_of(started: subprocess.Popen[str]) -> str:
    assert started.stdout is not None
    return (await anyio.to_thread.run_sync(started.stdout.readline)).strip()


async def end_of(started: subprocess.Popen[str]) -> int:
    return await anyio.to_thread.run_sync(lambda: started.wait(PATIENCE_S))


# --- One process ----------------------------------------------------------------------------------------------------


async def test_a_record_is_what_was_written_last(store: CredentialStore, folder: Path) -> None:
    assert await store.read(KEY) is None and not folder.exists()
    await write(store, b"one")
    await write(store, RECORD)
    await write(store, b"of alice", OTHER)
    again = CredentialStore(str(folder), {})
    assert (await store.read(KEY), await again.read(KEY), await again.read(OTHER)) == (RECORD, RECORD, b"of alice")
    assert {(one.key, one.record, one.problem) for one in await again.records()} == {
        (KEY, RECORD, ""),
        (OTHER, b"of alice", ""),
    }


async def test_each_part_of_the_key_has_a_record_of_its_own(store: CredentialStore) -> None:
    parts = [("a", "b", "c", "d"), ("ab", "", "c", "d"), ("a", "b", "cd", ""), ("a", "bc", "", "d"), ("", "", "", "")]
    for part in parts:
        await write(store, repr(part).encode(), LoginKey(*part))
    assert len({LoginKey(*part).name for part in parts}) == len(parts)
    for part in parts:
        assert await store.read(LoginKey(*part)) == repr(part).encode()


async def test_only_what_was_seen_is_removed(store: CredentialStore) -> None:
    await write(store, b"new")
    async with store.lock(KEY) as held:
        assert not await held.remove(b"old") and await held.read() == b"new"
        assert await held.remove(b"new") and await held.read() is None
        assert not await held.remove(b"new")


@pytest.mark.parametrize("environ", [{}, ENVIRON])
async def test_files_are_for_their_owner_and_have_no_plain_text(folder: Path, environ: dict[str, str]) -> None:
    before = os.umask(0)
    try:
        await write(CredentialStore(str(folder), environ), RECORD)
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700 and stat.S_IMODE(folder.parent.stat().st_mode) == 0o700
    names = {path.name for path in folder.iterdir()}
    assert names == {KEY.name, KEY.name + ".lock"} | ({KEY_FILE} if not environ else set())
    for path in folder.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        content = path.read_bytes()
        for secret in (b"SECRET7391", b"U0VDUkVUNzM5M", b"access_token", b"idp.example", b"mcp.example"):
            assert secret not in content and secret not in path.name.encode()


async def test_two_records_of_the_same_text_are_sealed_differently(store: CredentialStore, folder: Path) -> None:
    sealed = set()
    for _ in range(3):
        await write(store, RECORD)
        sealed.add((folder / KEY.name).read_bytes())
    assert len(sealed) == 3


@pytest.mark.parametrize(
    "text",
    ["AA" * 32, "aa" * 32 + "\n", "q" * 42 + "o=", "_" * 42 + "8", "+" * 42 + "8="],
)
async def test_keys_of_the_environment(folder: Path, text: str) -> None:
    await write(CredentialStore(str(folder), {KEY_VARIABLE: text}), RECORD)
    assert await CredentialStore(str(folder), {KEY_VARIABLE: text}).read(KEY) == RECORD


@pytest.mark.parametrize("text", ["SECRET7391", "ab" * 31, "ab" * 33, "correct horse battery staple"])
async def test_other_keys_are_refused(folder: Path, text: str) -> None:
    with pytest.raises(StoreError, match="expected 32 bytes as 64 hex digits or base64") as caught:
        await write(CredentialStore(str(folder), {KEY_VARIABLE: text}), RECORD)
    assert text not in str(caught.value) and not (folder / KEY.name).exists()


async def test_a_record_has_a_largest_size(store: CredentialStore) -> None:
    largest = b"x" * RECORD_MAX_BYTES
    await write(store, largest)
    with pytest.raises(StoreError, match=f"expected {RECORD_MAX_BYTES} at most"):
        await write(store, largest + b"x")
    assert await store.read(KEY) == largest


# --- What cannot be read --------------------------------------------------------------------------------------------


def damaged(sealed: bytes) -> bytes:
    return sealed[:-1] + bytes([sealed[-1] ^ 1])


SPOILT: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "damaged": (damaged, "was sealed with another key than that of "),
    "cut": (lambda sealed: sealed[:30], "was sealed with another key than that of "),
    "empty": (lambda sealed: b"", "is no record of credentials"),
    "foreign": (lambda sealed: b'{"access_token":"SECRET7391"}\n', "is no record of credentials"),
    "later": (lambda sealed: sealed.replace(b" 1\n", b" 2\n", 1), "a later version of isthmus wrote it"),
    "large": (lambda sealed: sealed + b"x" * 2 * RECORD_MAX_BYTES, "is larger than a record"),
}


@pytest.mark.parametrize("name", SPOILT)
async def test_an_unreadable_record_is_reported_and_kept(store: CredentialStore, folder: Path, name: str) -> None:
    spoil, words = SPOILT[name]
    await write(store, RECORD)
    spoilt = spoil((folder / KEY.name).read_bytes())
    (folder / KEY.name).write_bytes(spoilt)
    with pytest.raises(UnreadableRecord, match=words) as caught:
        await store.read(KEY)
    assert str(caught.value).startswith(f"{folder / KEY.name}: ") and "SECRET7391" not in str(caught.value)
    (listed,) = await store.records()
    assert (listed.key, listed.record, listed.problem) == (None, b"", str(caught.value))
    async with store.lock(KEY) as held:
        with pytest.raises(UnreadableRecord):
            await held.remove(RECORD)
        assert (folder / KEY.name).read_bytes() == spoilt
        await held.write(b"new")  # of a new login
    assert await store.read(KEY) == b"new"
    assert (folder / f"{KEY.name}.kept-1").read_bytes() == spoilt


async def test_another_key_reads_nothing_and_destroys_nothing(folder: Path) -> None:
    store, other = CredentialStore(str(folder), ENVIRON), CredentialStore(str(folder), {})
    await write(store, RECORD)
    with pytest.raises(UnreadableRecord, match=f"sealed with another key than that of {folder / KEY_FILE}"):
        await other.read(KEY)
    await write(other, b"of the other key")
    with pytest.raises(UnreadableRecord, match=f"sealed with another key than that of {KEY_VARIABLE}"):
        await store.read(KEY)
    listed = {one.path: one.record for one in await store.records()}
    assert listed == {str(folder / KEY.name): b"", str(folder / f"{KEY.name}.kept-1"): RECORD}


async def test_so_many_unreadable_records_are_kept(store: CredentialStore, folder: Path) -> None:
    for number in range(KEPT_MAX):
        await write(store, b"%d" % number)
        (folder / KEY.name).write_bytes(b"%d" % number)
    await write(store, b"last")
    (folder / KEY.name).write_bytes(b"unreadable")
    with pytest.raises(StoreError, match=f"{KEPT_MAX} unreadable records of this login are kept already"):
        await write(store, b"one more")
    assert (folder / KEY.name).read_bytes() == b"unreadable"
    kept = {path.read_bytes() for path in folder.glob("*.kept-*")}
    assert kept == {b"%d" % number for number in range(KEPT_MAX)}


async def test_a_record_under_the_name_of_another(store: CredentialStore, folder: Path) -> None:
    await write(store, RECORD)
    (folder / OTHER.name).write_bytes((folder / KEY.name).read_bytes())
    with pytest.raises(UnreadableRecord):
        await store.read(OTHER)


async def test_a_link_in_place_of_a_record(store: CredentialStore, folder: Path, tmp_path: Path) -> None:
    await write(store, RECORD, OTHER)
    (folder / KEY.name).symlink_to(folder / OTHER.name)
    with pytest.raises(UnreadableRecord):
        await store.read(KEY)
    target = tmp_path / "target"
    target.write_bytes(b"theirs")
    (folder / f"{KEY.name}.new").symlink_to(target)
    with pytest.raises(StoreError, match="cannot use the folder of credentials"):
        await write(store, RECORD)
    assert target.read_bytes() == b"theirs"


async def test_folders_and_keys_that_others_may_read(store: CredentialStore, folder: Path) -> None:
    await write(store, RECORD)
    (folder / KEY_FILE).chmod(0o640)
    with pytest.raises(StoreError, match=rf"may be read by others \(mode 0640\).*chmod 600 {folder / KEY_FILE}"):
        await CredentialStore(str(folder), {}).read(KEY)
    (folder / KEY_FILE).chmod(0o600)
    folder.chmod(0o750)
    with pytest.raises(StoreError, match=rf"open to others \(mode 0750\).*chmod 700 {folder}"):
        await write(store, b"new")
    folder.chmod(0o700)
    assert await CredentialStore(str(folder), {}).read(KEY) == RECORD


async def test_an_empty_key_file(store: CredentialStore, folder: Path) -> None:
    await write(store, RECORD)
    (folder / KEY_FILE).write_bytes(b"")
    with pytest.raises(StoreError, match="is empty: put the key back there"):
        await CredentialStore(str(folder), {}).read(KEY)


async def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "state").write_bytes(b"a file")
    with pytest.raises(StoreError, match="cannot use the folder of credentials"):
        await write(CredentialStore(str(tmp_path / "state" / "isthmus" / "credentials"), {}), RECORD)


async def test_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_folder({"XDG_STATE_HOME": "/state"}) == "/state/isthmus/credentials"
    for environ in ({}, {"XDG_STATE_HOME": ""}, {"XDG_STATE_HOME": "relative"}):
        assert default_folder(environ) == f"{tmp_path}/.local/state/isthmus/credentials"


# --- Locks and several processes ------------------------------------------------------------------------------------


async def test_tasks_of_one_process_take_turns(store: CredentialStore, folder: Path) -> None:
    async def add(store: CredentialStore) -> None:
        for _ in range(5):
            async with store.lock(KEY) as held:
                seen = int(await held.read() or b"0")
                await anyio.lowlevel.checkpoint()
                await held.write(b"%d" % (seen + 1))

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(add, store)
            tasks.start_soon(add, CredentialStore(str(folder), {}))
    assert await store.read(KEY) == b"30"


async def test_a_wait_for_a_lock_is_bounded_and_keys_do_not_wait_for_each_other(folder: Path) -> None:
    store = CredentialStore(str(folder), ENVIRON, lock_timeout_s=0.2)
    async with store.lock(KEY):
        with pytest.raises(StoreError, match=r"for 0\.2 s: end the one that has .*\.lock open"):
            async with store.lock(KEY):
                raise AssertionError
        await write(store, RECORD, OTHER)
    await write(store, RECORD)


async def test_the_time_under_a_lock_is_not_bounded(folder: Path) -> None:
    store = CredentialStore(str(folder), ENVIRON, lock_timeout_s=0.05)
    async with store.lock(KEY) as held:
        await anyio.sleep(0.1)
        await held.write(RECORD)
    assert await store.read(KEY) == RECORD


async def test_a_cancelled_holder_gives_the_lock_back(store: CredentialStore) -> None:
    held = anyio.Event()

    async def hold() -> None:
        async with store.lock(KEY):
            held.set()
            await anyio.sleep_forever()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(hold)
        await held.wait()
        tasks.cancel_scope.cancel()
    await write(store, RECORD)
    with anyio.CancelScope() as scope:
        async with store.lock(KEY) as record:
            scope.cancel()
            await record.write(b"not reached, or whole")
    assert await store.read(KEY) in (RECORD, b"not reached, or whole")


@pytest.mark.parametrize("processes", [2, 3])
async def test_processes_take_turns(folder: Path, processes: int) -> None:
    started = [process(folder, "count", "15") for _ in range(processes)]
    async with anyio.create_task_group() as tasks:

        async def run(one: object) -> None:
            with one as running:  # type: ignore[attr-defined]
                assert await end_of(running) == 0

        for one in started:
            tasks.start_soon(run, one)
    assert await CredentialStore(str(folder), {}).read(KEY) == b"%d" % (15 * processes)


async def test_one_of_three_processes_uses_a_refresh_token(
    store: CredentialStore, folder: Path, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    await write(store, b"7")
    refresh = ("refresh", str(log))
    with process(folder, *refresh) as one, process(folder, *refresh) as two, process(folder, *refresh) as three:
        for running in (one, two, three):
            assert await line_of(running) == "ready"
        for running in (one, two, three):
            assert running.stdin is not None
            running.stdin.write("go\n")
            running.stdin.flush()
        for running in (one, two, three):
            assert await line_of(running) == "8"
    assert log.read_text().split() == ["7"]


async def test_a_killed_holder_gives_the_lock_back(folder: Path) -> None:
    store = CredentialStore(str(folder), {}, lock_timeout_s=0.2)
    with process(folder, "hold") as holder:
        assert await line_of(holder) == "held"
        with pytest.raises(StoreError, match="another process"):
            await write(store, RECORD)
        holder.kill()
        assert await end_of(holder) == -9
    await write(store, RECORD)
    assert await store.read(KEY) == RECORD


async def test_a_record_is_whole_whenever_its_writer_is_killed(store: CredentialStore, folder: Path) -> None:
    for _ in range(3):
        with process(folder, "write") as writer:
            assert await line_of(writer) == "writes"
            for _ in range(20):
                record = await store.read(KEY)
                assert record is not None
                assert record == record[: len(record) // 2_000] * 2_000
            writer.kill()
            await end_of(writer)
        record = await store.read(KEY)
        assert record is not None and record == record[: len(record) // 2_000] * 2_000
    await write(store, RECORD)
    assert await store.read(KEY) == RECORD
    assert {path.suffix for path in folder.iterdir()} <= {".credential", ".lock", ".key"}


async def test_processes_that_start_at_once_agree_on_the_key(folder: Path) -> None:
    keys = [LoginKey("i", "c", "r", str(number)) for number in range(8)]
    stores = [CredentialStore(str(folder), {}) for _ in keys]
    async with anyio.create_task_group() as tasks:
        for one, key in zip(stores, keys, strict=True):
            tasks.start_soon(write, one, RECORD, key)
    for key in keys:
        assert await CredentialStore(str(folder), {}).read(key) == RECORD
    assert [path.name for path in folder.iterdir() if path.name.startswith(KEY_FILE)] == [KEY_FILE]


async def test_the_content_of_a_later_version(store: CredentialStore, folder: Path) -> None:
    """A record that opens with the key and is not understood is of a later version. It is kept too."""
    await write(store, RECORD)
    sealed = store._cipher().seal(msgspec.json.encode({"shape": "unknown"}), KEY.name)
    (folder / KEY.name).write_bytes(sealed)
    with pytest.raises(UnreadableRecord, match="a later version of isthmus wrote it; it is kept"):
        await store.read(KEY)
    await write(store, b"new")
    assert (folder / f"{KEY.name}.kept-1").read_bytes() == sealed
