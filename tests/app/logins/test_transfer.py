"""Logins in a sealed file: between two stores on disk."""

from __future__ import annotations

import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from isthmus.app.logins import transfer
from isthmus.app.logins.interface import LoginKey
from isthmus.app.logins.records import key_of
from isthmus.app.logins.sealing import StoreError
from isthmus.app.logins.store import CredentialStore
from isthmus.app.logins.transfer import EXPORT_MAX_BYTES, PASSPHRASE_MIN_CHARS, export_logins, import_logins
from isthmus.core.logins.credentials import Record, encode_record
from isthmus.core.logins.requests import Registration

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

PASSPHRASE = "correct horse battery"
COST = transfer._COST


@pytest.fixture(autouse=True)
async def patience(anyio_backend: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    monkeypatch.setattr(transfer, "_COST", 2**10)  # of no matter to what is tested
    with anyio.fail_after(60):
        yield


@pytest.fixture
def here(tmp_path: Path) -> CredentialStore:
    return CredentialStore(str(tmp_path / "here" / "credentials"), {"ISTHMUS_STORE_KEY": "00" * 32})


@pytest.fixture
def there(tmp_path: Path) -> CredentialStore:
    return CredentialStore(str(tmp_path / "there" / "credentials"), {"ISTHMUS_STORE_KEY": "11" * 32})


def login(resource: str = "https://a.example/mcp", **changes: Any) -> Record:
    about: dict[str, Any] = {"access_token": "SECRET7391", "refresh_token": "SECRET5512", **changes}
    registration = Registration("https://as.example", "client", "SECRET1234")
    return Record(registration, resource, "https://as.example/token", resource, **about)


async def keep(store: CredentialStore, record: Record, principal: str = "") -> LoginKey:
    key = key_of(record, "")
    key = LoginKey(key.issuer, key.client, key.resource, principal)
    async with store.lock(key) as held:
        await held.write(encode_record(record))
    return key


async def test_logins_move_to_another_store(here: CredentialStore, there: CredentialStore, tmp_path: Path) -> None:
    """The login of a caller is moved as well. Here nothing stays that a renewal could send a second time."""
    path = tmp_path / "logins"
    keys = {await keep(here, login()), await keep(here, login("https://b.example/mcp"), "token:ci")}
    empty = await keep(here, login("https://c.example/mcp", access_token="", refresh_token=""))
    assert set(await export_logins(here, str(path), PASSPHRASE)) == keys
    assert [each.key for each in await here.records()] == [empty]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert b"SECRET" not in path.read_bytes()
    assert b"example" not in path.read_bytes()
    added, left = await import_logins(there, str(path), PASSPHRASE)
    assert (set(added), left) == (keys, [])
    for key in keys:
        assert await there.read(key) == encode_record(login(key.resource))


async def test_a_login_that_is_here_is_not_replaced(
    here: CredentialStore, there: CredentialStore, tmp_path: Path
) -> None:
    path = str(tmp_path / "logins")
    key = await keep(here, login())
    await export_logins(here, path, PASSPHRASE)
    await keep(there, login(access_token="other"))
    assert await import_logins(there, path, PASSPHRASE) == ([], [key])
    assert await there.read(key) == encode_record(login(access_token="other"))
    await keep(there, login(access_token="", refresh_token=""))
    assert await import_logins(there, path, PASSPHRASE) == ([key], []), "the client of a login that was taken back"
    assert await import_logins(there, path, PASSPHRASE) == ([key], []), "the same login"


async def test_a_renewal_comes_first_or_not_at_all(
    here: CredentialStore, there: CredentialStore, tmp_path: Path
) -> None:
    """A process that is renewing holds the lock: what it gets is what is moved."""
    path = str(tmp_path / "logins")
    key = await keep(here, login())
    async with anyio.create_task_group() as tasks:
        async with here.lock(key) as held:
            tasks.start_soon(export_logins, here, path, PASSPHRASE)
            await anyio.wait_all_tasks_blocked()
            await held.write(encode_record(login(access_token="renewed")))
    await import_logins(there, path, PASSPHRASE)
    assert await there.read(key) == encode_record(login(access_token="renewed"))


async def test_a_file_that_is_there_is_not_replaced(here: CredentialStore, tmp_path: Path) -> None:
    path = tmp_path / "logins"
    path.write_text("mine")
    key = await keep(here, login())
    with pytest.raises(StoreError, match="is there already"):
        await export_logins(here, str(path), PASSPHRASE)
    with pytest.raises(StoreError, match="cannot write"):
        await export_logins(here, str(tmp_path / "missing" / "logins"), PASSPHRASE)
    assert path.read_text() == "mine"
    assert await here.read(key) is not None, "nothing was moved"


async def test_a_passphrase_that_is_too_short(here: CredentialStore, tmp_path: Path) -> None:
    await keep(here, login())
    with pytest.raises(StoreError, match="expected 12 or more"):
        await export_logins(here, str(tmp_path / "logins"), "x" * (PASSPHRASE_MIN_CHARS - 1))
    assert await export_logins(here, str(tmp_path / "logins"), "x" * PASSPHRASE_MIN_CHARS)


async def test_a_store_without_logins_makes_no_file(here: CredentialStore, tmp_path: Path) -> None:
    assert await export_logins(here, str(tmp_path / "logins"), PASSPHRASE) == []
    assert not (tmp_path / "logins").exists()


async def test_files_that_cannot_be_opened(here: CredentialStore, there: CredentialStore, tmp_path: Path) -> None:
    path = tmp_path / "logins"
    with pytest.raises(StoreError, match="cannot read"):
        await import_logins(there, str(path), PASSPHRASE)
    await keep(here, login())
    await export_logins(here, str(path), PASSPHRASE)
    with pytest.raises(StoreError, match="another passphrase, or is damaged"):
        await import_logins(there, str(path), PASSPHRASE + "x")
    whole = path.read_bytes()
    for at in range(0, len(whole), 7):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(StoreError):
            await import_logins(there, str(path), PASSPHRASE)
    path.write_bytes(whole[:-1])
    with pytest.raises(StoreError, match="damaged"):
        await import_logins(there, str(path), PASSPHRASE)
    assert await there.records() == []


async def test_a_file_that_is_too_large(here: CredentialStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert EXPORT_MAX_BYTES == 64 * 2**20
    monkeypatch.setattr(transfer, "EXPORT_MAX_BYTES", 100)
    key = await keep(here, login())
    with pytest.raises(StoreError, match="expected 100 at most"):
        await export_logins(here, str(tmp_path / "logins"), PASSPHRASE)
    assert await here.read(key) is not None
    (tmp_path / "other").write_bytes(b"isthmus-logins 1\n" + bytes(100))
    with pytest.raises(StoreError, match="is no file of logins"):
        await import_logins(here, str(tmp_path / "other"), PASSPHRASE)


def test_a_guess_is_costly(anyio_backend: str) -> None:
    """Source: RFC 7914, 2: memory is 128 times block size times cost."""
    assert 128 * COST * transfer._BLOCKS >= 128 * 2**20
