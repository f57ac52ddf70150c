"""Logins in a file, sealed with a passphrase, on their way to another machine.

A login is moved and not copied: two machines that renew one login would send a refresh token twice, and the provider
would revoke it.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import AsyncExitStack
from typing import Final

import anyio.to_thread
import msgspec

from ...core.logins.credentials import Record, decode_record
from .interface import LoginKey, LoginStore
from .records import Kept, read_all
from .sealing import Cipher, StoreError, UnreadableRecord, sync_folder

PASSPHRASE_MIN_CHARS: Final = 12
"""The shortest passphrase of an export, since a person who has the file can try many. At it: nothing is exported."""
EXPORT_MAX_BYTES: Final = 64 * 1024 * 1024
"""The largest file of logins, each of which has some KB. At it: it is neither written nor read."""

_HEAD: Final = b"isthmus-logins 1\n"
_NAME: Final = "logins"
_SALT_BYTES: Final = 16
# 128 MiB of memory and some tenths of a second for each try. Source: RFC 7914, 2.
_COST: Final = 2**17
_BLOCKS: Final = 8
_MEMORY_MAX_BYTES: Final = 2 * 128 * _COST * _BLOCKS


class _Login(msgspec.Struct, frozen=True):
    key: LoginKey
    record: bytes


async def export_logins(store: LoginStore, path: str, passphrase: str) -> list[LoginKey]:
    """Moves all logins of a store into a new file. Returns them; without any, there is no file.

    Raises:
        StoreError: the store cannot be used, or the file cannot be written. Nothing was moved.
    """
    if len(passphrase) < PASSPHRASE_MIN_CHARS:
        raise StoreError(f"got a passphrase of {len(passphrase)} characters, expected {PASSPHRASE_MIN_CHARS} or more")
    # One order for all processes, so that none waits for another in a circle.
    found = sorted((kept.key for kept in read_all(await store.records()) if _is_login(kept)), key=lambda key: key.name)
    async with AsyncExitStack() as stack:
        held = {key: await stack.enter_async_context(store.lock(key)) for key in found}
        logins = []
        for key, each in held.items():
            data = await each.read()  # it may have been renewed or removed meanwhile
            record = None if data is None else decode_record(data)
            if data is not None and record is not None and record.access_token:
                logins.append(_Login(key, data))
        if logins:
            await anyio.to_thread.run_sync(_write, path, msgspec.json.encode(logins), passphrase)
        for login in logins:
            await held[login.key].remove(login.record)
    return [login.key for login in logins]


async def import_logins(store: LoginStore, path: str, passphrase: str) -> tuple[list[LoginKey], list[LoginKey]]:
    """Puts the logins of a file into a store. Returns them, and those that it did not replace.

    Raises:
        StoreError: the file cannot be used, or the store.
    """
    plain = await anyio.to_thread.run_sync(_read, path, passphrase)
    try:
        logins = msgspec.json.decode(plain, type=list[_Login])
    except msgspec.DecodeError:
        raise StoreError(f"a later version of isthmus wrote {path}: use that one") from None
    added, left = [], []
    for login in logins:
        record = decode_record(login.record)
        if record is None or record.registration.issuer != login.key.issuer:
            raise StoreError(f"a later version of isthmus wrote {path}: use that one")
        async with store.lock(login.key) as held:
            data = await _readable(store, login.key)
            if data is not None and data != login.record and _has_tokens(decode_record(data)):
                left.append(login.key)
                continue
            await held.write(login.record)
            added.append(login.key)
    return added, left


async def _readable(store: LoginStore, key: LoginKey) -> bytes | None:
    try:
        return await store.read(key)
    except UnreadableRecord:
        return None  # the store keeps it beside what is written


def _is_login(kept: Kept) -> bool:
    return _has_tokens(kept.record)


def _has_tokens(record: Record | None) -> bool:
    return record is not None and bool(record.access_token)


def _cipher(passphrase: str, salt: bytes) -> Cipher:
    key = hashlib.scrypt(
        passphrase.encode("utf-8", "surrogateescape"),
        salt=salt,
        n=_COST,
        r=_BLOCKS,
        p=1,
        maxmem=_MEMORY_MAX_BYTES,
        dklen=32,
    )
    return Cipher(key, "this passphrase")


def _write(path: str, plain: bytes, passphrase: str) -> None:
    """Writes a new file, which only its owner can read. It is on the disk when this returns."""
    salt = os.urandom(_SALT_BYTES)
    sealed = _HEAD + salt + _cipher(passphrase, salt).seal(plain, _NAME)
    if len(sealed) > EXPORT_MAX_BYTES:
        raise StoreError(f"the logins have {len(sealed)} bytes, expected {EXPORT_MAX_BYTES} at most: remove some")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        file = os.open(path, flags, 0o600)
    except FileExistsError:
        raise StoreError(f"{path} is there already: name a new file") from None
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror or error}") from None
    try:
        with os.fdopen(file, "wb") as opened:
            opened.write(sealed)
            opened.flush()
            os.fsync(opened.fileno())
        sync_folder(os.path.dirname(os.path.abspath(path)))
    except OSError as error:
        os.unlink(path)
        raise StoreError(f"cannot write {path}: {error.strerror or error}") from None


def _read(path: str, passphrase: str) -> bytes:
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
            sealed = file.read(EXPORT_MAX_BYTES + 1)
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror or error}") from None
    if len(sealed) > EXPORT_MAX_BYTES or not sealed.startswith(_HEAD):
        raise StoreError(f"{path} is no file of logins, expected one of `isthmus auth export`")
    salt, rest = sealed[len(_HEAD) :][:_SALT_BYTES], sealed[len(_HEAD) + _SALT_BYTES :]
    try:
        return _cipher(passphrase, salt).open(rest, _NAME)
    except UnreadableRecord:
        raise StoreError(f"{path} was sealed with another passphrase, or is damaged") from None
