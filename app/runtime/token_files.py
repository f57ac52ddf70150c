"""The files by which the commands of a user find the local tokens of gateways of that user, one for each listener.

A file is named after the address of its listener, and holds the token alone. Its gateway holds a lock on it, which the
system frees when the process ends in any way. A file without a lock is stale: a token outlasts restarts of its gateway,
so it must not go to whatever listens at that address by then.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import ipaddress
import logging
import os
import stat
from collections.abc import Collection, Iterator, Mapping
from typing import Final, NamedTuple

from ...core.wire.http.origin import is_loopback
from ..config.addresses import host_of

FILE_MAX_BYTES: Final = 256
"""Bytes of a file that are read. A token has 64. At it: the rest is left out, and the gateway refuses the token."""
STALE_MAX: Final = 1_000
"""Files in the folder that a gateway looks at when it starts, to remove those of gateways that were killed. At it: the
others stay for the next start."""
_LOCALHOST: Final = ("127.0.0.1", "::1")

Place = tuple[str, int] | str
"""The address of a listener: its IP address and port, or the path of its Unix domain socket."""

_log = logging.getLogger("isthmus.server")


class Found(NamedTuple):
    """The local token of a listener.

    Attributes:
        host: the IP address of the listener; "" for a Unix domain socket. The token belongs to it: `localhost` may
            lead to another listener, of somebody else.
    """

    token: str
    host: str = ""


class TokenFiles:
    """The files of one gateway."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._folders = token_folders(environ)
        self._held: dict[str, int] = {}

    def show(self, places: Collection[Place], token: str | None) -> None:
        """Has a file for each of these listeners, and no other. Without a folder for them, there are none, and the log
        says so.

        Args:
            token: the local token; None: there is none, and so no file.
        """
        names = set() if token is None else set(map(_name, places))
        for path in [path for path in self._held if os.path.basename(path) not in names]:
            self._remove(path)
        for name in sorted(names - set(map(os.path.basename, self._held))):
            self._write(name, token or "")

    def __enter__(self) -> TokenFiles:
        return self

    def __exit__(self, *error: object) -> None:
        """Removes the files."""
        for path in list(self._held):
            self._remove(path)

    def _write(self, name: str, token: str) -> None:
        """Writes a file to the first folder that can be used."""
        problem = ""
        for folder in self._folders:
            try:
                _make_folder(folder)
                _remove_stale(folder, name)
                self._held[os.path.join(folder, name)] = _written(os.path.join(folder, name), token)
                return
            except OSError as error:
                problem = f"{folder}: {error.strerror or error}"
        _log.warning(
            "no file with the local token can be written (%s), so commands such as isthmus ps do not find it: set "
            "XDG_RUNTIME_DIR, or core.management.token",
            problem,
        )

    def _remove(self, path: str) -> None:
        file = self._held.pop(path)
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(file), os.lstat(path)):  # not that of a gateway in another container
                os.unlink(path)
        os.close(file)


def find(place: Place, environ: Mapping[str, str] = os.environ) -> Found | None:
    """Returns the local token of the listener at an address; None if no gateway of this user shows one.

    Args:
        place: a host and a port, or the path of a Unix domain socket. Only a loopback host can have a token.
    """
    hosts = ("",) if isinstance(place, str) else _addresses(place[0])
    for host in hosts:
        name = _name(place if isinstance(place, str) else (host, place[1]))
        for folder in token_folders(environ):
            token = _read(folder, name)
            if token is not None:
                return Found(token, host)
    return None


def _addresses(host: str) -> tuple[str, ...]:
    if host.lower() == "localhost":
        return _LOCALHOST
    try:
        return (str(ipaddress.ip_address(host.strip("[]"))),) if is_loopback(host_of(host)) else ()
    except ValueError:  # 127.0.0.256
        return ()


def _name(place: Place) -> str:
    if isinstance(place, str):
        return f"unix_{hashlib.sha256(os.path.realpath(place).encode()).hexdigest()[:32]}"
    host, port = place
    return f"{host}_{port}".replace(":", "-")


def token_folders(environ: Mapping[str, str] = os.environ) -> list[str]:
    """Returns the folders of such files, the one to write to first. A command of cron may lack what the gateway had.

    Source: XDG Base Directory Specification, where relative paths are ignored.
    """
    runtime, state = environ.get("XDG_RUNTIME_DIR", ""), environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(state):
        state = os.path.join(os.path.expanduser("~"), ".local", "state")
    found = [os.path.join(state, "isthmus", "run")]
    return [os.path.join(runtime, "isthmus"), *found] if os.path.isabs(runtime) else found


def _make_folder(folder: str) -> None:
    """Makes the folder, for its owner alone.

    Raises:
        OSError: it cannot be made, or is that of another user.
    """
    os.makedirs(folder, mode=0o700, exist_ok=True)
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise OSError("it is no folder of this user")
    if found.st_mode & 0o077:
        os.chmod(folder, 0o700)


def _written(path: str, token: str) -> int:
    """Writes a file, which appears whole and locked. Returns its descriptor, which holds the lock."""
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".{name}.{os.getpid()}")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary)
    file = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(file, f"{token}\n".encode())
        os.replace(temporary, path)
    except BaseException:
        os.close(file)
        raise
    return file


def _read(folder: str, name: str) -> str | None:
    """Returns the token in a file of this user; None if there is none, or its gateway is gone."""
    with contextlib.suppress(OSError), _opened(os.path.join(folder, name)) as file:
        found = os.fstat(file)
        is_ours = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077
        if is_ours and _is_locked(file):
            return os.read(file, FILE_MAX_BYTES).decode("ascii", errors="replace").strip() or None
    return None


def _remove_stale(folder: str, wanted: str) -> None:
    """Removes the files of gateways that are gone, but that with the name `wanted`, which is about to be replaced."""
    with os.scandir(folder) as entries:
        for _, entry in zip(range(STALE_MAX), entries, strict=False):
            if entry.name != wanted and not entry.name.startswith("."):
                with contextlib.suppress(OSError), _opened(entry.path) as file:
                    if not _is_locked(file):
                        os.unlink(entry.path)


@contextlib.contextmanager
def _opened(path: str) -> Iterator[int]:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        yield file
    finally:
        os.close(file)


def _is_locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False
