"""The lock beside the configuration: the definitions that were approved."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Mapping
from pathlib import Path

from ...core.base.governance import Pinned, PinRules
from ...core.governance.lock import LockError, format_lock, parse_lock
from ..base.errors import ConfigError
from .settings import Settings

_log = logging.getLogger("isthmus.config")


def read_lock(path: str) -> dict[str, tuple[Pinned, ...]] | None:
    """Returns the lock in a file; None if there is none.

    Raises:
        ConfigError: it cannot be used.
    """
    try:
        return parse_lock(Path(path).read_bytes().decode())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (UnicodeDecodeError, LockError) as error:
        raise ConfigError(
            f"{path}: {error}. Nothing is served by a lock that cannot be read: restore it, or remove it and run "
            f"`isthmus pin`"
        ) from error


def write_lock(path: str, lock: Mapping[str, tuple[Pinned, ...]]) -> None:
    """Writes a lock, in place of the one that is there.

    Raises:
        ConfigError: it cannot be written.
    """
    temporary = f"{path}.{os.getpid()}"
    try:
        with open(temporary, "w", encoding="utf-8", newline="\n") as file:
            file.write(format_lock(lock))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise ConfigError(f"{path}: cannot be written: {error.strerror or error}") from error


def pin_rules(settings: Settings, recorded: Mapping[str, tuple[Pinned, ...]] | None = None) -> dict[str, PinRules]:
    """Returns the pins of each server that is inspected; none if pins are off.

    Args:
        recorded: the lock where there is no file.

    Raises:
        ConfigError: the lock cannot be used, or there is none though definitions are to be blocked.
    """
    pins = settings.pins
    if pins.mode == "off" or not os.path.isabs(pins.file):  # settings that were read from no file have no lock beside
        return {}
    lock = recorded if recorded is not None else read_lock(pins.file)
    if lock is None:
        if pins.mode == "block" or (pins.mode is not None and pins.new == "hide"):
            raise ConfigError(f"pins.mode is {pins.mode}, and there is no {pins.file}: run `isthmus pin`")
        if pins.mode is not None:
            _log.warning("pins.mode is %s, and there is no %s: run `isthmus pin`", pins.mode, pins.file)
        return {}
    return {
        server.id: PinRules(
            blocks=pins.mode == "block",
            hides_new=pins.new == "hide",
            entries=lock.get(server.id, ()),
            ignore=ignored_members(settings, server.id),
        )
        for server in settings.servers
        if server.inspect
    }


def ignored_members(settings: Settings, server: str) -> tuple[str, ...]:
    """Returns the members of a server's definitions that may change."""
    given = [entry.rpartition("/") for entry in settings.pins.ignore]
    return tuple(member for id, _, member in given if id in ("", server))
