"""The key of the credential store, and the sealing of records with it: AES-256-GCM."""

from __future__ import annotations

import base64
import binascii
import contextlib
import os
import stat
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_VARIABLE: Final = "ISTHMUS_STORE_KEY"
KEY_FILE: Final = "store.key"
KEY_BYTES: Final = 32
NONCE_BYTES: Final = 12
"""Random: fewer than 2^32 records are ever sealed with one key. Source: NIST SP 800-38D, 8.3."""
MAGIC: Final = b"isthmus-credential "
VERSION: Final = b"1"
_HEAD: Final = MAGIC + VERSION + b"\n"


class StoreError(Exception):
    """Raised when the store cannot be used. The message says what to do, and has nothing of a record."""


class UnreadableRecord(StoreError):
    """Raised for a record that is there and cannot be read. It stays as it is."""


class Cipher:
    """Seals and opens records with one key."""

    def __init__(self, key: bytes, source: str) -> None:
        self._aead = _aead(key)
        self._source = source

    def seal(self, plain: bytes, name: str) -> bytes:
        """Returns what is written to the file of that name."""
        nonce = os.urandom(NONCE_BYTES)
        return _HEAD + nonce + self._aead.encrypt(nonce, plain, _HEAD + name.encode())

    def open(self, sealed: bytes, name: str) -> bytes:
        """Returns the content of the file of that name.

        Raises:
            UnreadableRecord: it is of another version, was sealed with another key or under another name, or is
                damaged.
        """
        from cryptography.exceptions import InvalidTag

        head, end, _ = sealed[: len(_HEAD) + 16].partition(b"\n")
        if not head.startswith(MAGIC) or not end:
            raise UnreadableRecord("it is no record of credentials")
        if head != _HEAD[:-1]:
            raise UnreadableRecord("a later version of isthmus wrote it")
        nonce, rest = sealed[len(_HEAD) :][:NONCE_BYTES], sealed[len(_HEAD) + NONCE_BYTES :]
        try:
            return self._aead.decrypt(nonce, rest, _HEAD + name.encode())
        except (InvalidTag, ValueError):
            raise UnreadableRecord(
                f"it was sealed with another key than that of {self._source}, or is damaged"
            ) from None


def load_cipher(folder: str, environ: Mapping[str, str]) -> Cipher:
    """Returns the cipher of a folder: with the key of the environment, or of the file there, which is made if missing.

    Raises:
        StoreError: the key cannot be used, or the package for sealing is not installed.
        OSError: the file cannot be read or made.
    """
    text = environ.get(KEY_VARIABLE, "")
    if text:
        return Cipher(_parse(text), KEY_VARIABLE)
    path = os.path.join(folder, KEY_FILE)
    return Cipher(_parse(_read(path) or _make(path), path), path)


def cipher_of_all(environ: Mapping[str, str]) -> Cipher:
    """Returns the cipher of logins that several machines share: with the key of the environment.

    Raises:
        StoreError: there is none, it cannot be used, or the package for sealing is not installed.
    """
    text = environ.get(KEY_VARIABLE, "")
    if not text:
        seen = f"logins are kept in storage.records, and there is no {KEY_VARIABLE}"
        raise StoreError(f"{seen}: set it to the same key for all replicas and commands: openssl rand -hex 32")
    return Cipher(_parse(text), KEY_VARIABLE)


def _parse(text: str, where: str = KEY_VARIABLE) -> bytes:
    found = b""
    with contextlib.suppress(ValueError, binascii.Error):
        found = bytes.fromhex(text)
    if len(found) != KEY_BYTES:
        with contextlib.suppress(ValueError, binascii.Error):
            found = base64.b64decode(text.strip().replace("-", "+").replace("_", "/") + "==")
    if len(found) != KEY_BYTES:
        raise StoreError(
            f"{where}: got another text, expected 32 bytes as 64 hex digits or base64: openssl rand -hex 32"
        )
    return found


def _read(path: str) -> str:
    """Returns the text of a key file; "" if there is none."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return ""
    with os.fdopen(file, "rb") as opened:
        mode = stat.S_IMODE(os.fstat(opened.fileno()).st_mode)
        if mode & 0o077:
            raise StoreError(f"{path} may be read by others (mode {mode:04o}), expected 0600: chmod 600 {path}")
        text = opened.read(1024)
    if not text.strip():
        raise StoreError(f"{path} is empty: put the key back there, or remove it and log in again")
    return text.decode("latin-1")


def _make(path: str) -> str:
    """Makes a key file, complete from the moment it has its name. Returns the text of whichever process was first."""
    made = f"{path}.{os.getpid()}-{os.urandom(4).hex()}"
    file = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(file, "wb") as opened:
            opened.write(os.urandom(KEY_BYTES).hex().encode() + b"\n")
            opened.flush()
            os.fsync(opened.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(made, path)
        sync_folder(os.path.dirname(path))
    finally:
        os.unlink(made)
    return _read(path)


def sync_folder(folder: str) -> None:
    """Writes the names in a folder to the disk."""
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _aead(key: bytes) -> AESGCM:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ModuleNotFoundError:
        raise StoreError(
            "credentials are sealed with a package that is not installed: pip install 'isthmus[auth]'"
        ) from None
    return AESGCM(key)
