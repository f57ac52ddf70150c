"""The options of `serve` and `wrap` that say where to listen: `--listen`, `--host` and `--port`."""

from __future__ import annotations

import argparse
import os
import re
from typing import Final, NamedTuple

import msgspec

from ..base.errors import ConfigError
from ..config.settings import Core
from ..config.value_checks import UNIX_PATH_MAX_BYTES

DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 8932
DEFAULT_LISTEN: Final = f"{DEFAULT_HOST}:{DEFAULT_PORT}"
_PORT_MAX: Final = 65535
STDIO: Final = "stdio"


class Address(NamedTuple):
    """An address to listen on: host and port, or the path of a Unix socket, which may carry lines as stdio does."""

    host: str = DEFAULT_HOST
    port: int | None = DEFAULT_PORT
    path: str | None = None
    is_lines: bool = False


def add_listen_options(to: argparse.ArgumentParser, *, metavar: str, about: str, defaults: str) -> None:
    """Adds the options. `defaults` is what holds without them, in words."""
    to.add_argument("--listen", metavar=metavar, help=about)
    to.add_argument("--port", type=port, metavar="N", help=f"port to listen on; 0: any free port; {defaults}")
    to.add_argument("--host", metavar="HOST", help="address to listen on; 0.0.0.0: all addresses")


def port(text: str) -> int:
    """Reads a port, for argparse."""
    if re.fullmatch(r"[0-9]{1,5}", text) is None or int(text) > _PORT_MAX:
        raise argparse.ArgumentTypeError(f"got {text!r}, expected a port from 0 to {_PORT_MAX}; 0 takes a free one")
    return int(text)


def given(options: argparse.Namespace) -> tuple[str, ...]:
    """Returns the names of the options that are given.

    Raises:
        ConfigError: they say it twice.
    """
    names = tuple(name for name in ("listen", "host", "port") if getattr(options, name) is not None)
    if "listen" in names and len(names) > 1:
        raise ConfigError(f"got --listen and --{names[1]}, expected --listen alone, or --host and --port")
    return tuple(f"--{name}" for name in names)


def address_of(options: argparse.Namespace) -> Address:
    """Returns where `isthmus wrap` listens.

    Raises:
        ConfigError: the options say nothing that can be listened on.
    """
    if "--listen" in given(options):
        return _parsed(options.listen, f"{STDIO}, unix:PATH or stdio+unix:PATH")
    return Address(
        DEFAULT_HOST if options.host is None else _host(options.host),
        DEFAULT_PORT if options.port is None else options.port,
    )


def with_address(core: Core, options: argparse.Namespace) -> Core:
    """Returns the listener of a configuration with what the options of `isthmus serve` say in its place.

    Raises:
        ConfigError: the options say nothing that it can listen on.
    """
    names = given(options)
    if "--listen" not in names:
        host = core.host if options.host is None else _host(options.host)
        if options.host is not None and options.port is None and core.port is None:
            raise ConfigError("got --host, and core.port says that no port is listened on, expected --port N beside it")
        return msgspec.structs.replace(core, host=host, port=core.port if options.port is None else options.port)
    if options.listen == STDIO:
        raise ConfigError("got --listen stdio, expected `isthmus serve --stdio`, or a port or unix:PATH to listen on")
    found = _parsed(options.listen, "or unix:PATH")
    if found.is_lines:
        raise ConfigError(f"got --listen {options.listen}, expected unix:PATH; servers have a unix_socket for lines")
    if found.port is None and core.tls is not None:
        raise ConfigError("got --listen unix:PATH, and core.tls is for a port, expected HOST:PORT")
    return msgspec.structs.replace(core, host=found.host, port=found.port, unix_socket=found.path)


def _parsed(text: str, others: str) -> Address:
    socket = re.fullmatch(r"(stdio\+)?unix:([^\0]+)", text)
    if socket is not None:
        path = os.path.abspath(socket[2])
        if len(path.encode()) > UNIX_PATH_MAX_BYTES:
            raise ConfigError(f"got --listen {text}, expected a path of at most {UNIX_PATH_MAX_BYTES} bytes")
        return Address(DEFAULT_HOST, None, path, socket[1] is not None)
    match = re.fullmatch(r"(?:(?:\[([0-9A-Fa-f:.]+)\]|([^:]*)):)?([0-9]{1,5})", text)
    if match is None or int(match[3]) > _PORT_MAX:
        raise ConfigError(f"got --listen {text}, expected PORT or HOST:PORT, such as {DEFAULT_LISTEN}, {others}")
    if text.startswith(":"):  # all addresses for some programs, this machine for others
        raise ConfigError(
            f"got --listen {text}, expected {DEFAULT_HOST}{text} for this machine alone, or 0.0.0.0{text} for others "
            "as well"
        )
    return Address(match[1] or match[2] or DEFAULT_HOST, int(match[3]))


def _host(text: str) -> str:
    found = re.fullmatch(r"\[([0-9A-Fa-f:.]+)\]|([^\s/\[\]]+)", text)
    host = found and (found[1] or found[2])
    if not host or host.count(":") == 1:
        raise ConfigError(
            f"got --host {text[:64]}, expected a name or an address of this machine, and --port N beside it"
        )
    return host
