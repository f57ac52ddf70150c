"""Checks of `telemetry.audit`, and the address of a syslog server."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from ..base.problem import Problem
from .settings import Settings
from .value_checks import check_path

_KEY: Final = "telemetry.audit"
_SYSLOG: Final = re.compile(
    r"(?P<scheme>udp|tcp)://(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):(?P<port>[0-9]{1,5})|unix:(?P<path>/[^\0]+)"
)


class SyslogAddress(NamedTuple):
    """The address of a syslog server: a host and a port for `udp` and `tcp`, a path for `unix`."""

    scheme: str
    host: str = ""
    port: int = 0
    path: str = ""


def syslog_address(text: str) -> SyslogAddress | None:
    """Returns the address that a value of `telemetry.audit.syslog` names; None if it names none."""
    found = _SYSLOG.fullmatch(text)
    if found is None:
        return None
    if found["path"]:
        return SyslogAddress("unix", path=found["path"])
    port = int(found["port"])
    return SyslogAddress(found["scheme"], found["host"].strip("[]"), port) if 0 < port < 65_536 else None


def check_audit(settings: Settings, is_sound: Callable[[str], bool]) -> Iterator[Problem]:
    """Checks `telemetry.audit`, and what it needs of the servers."""
    if not is_sound("telemetry") or not is_sound(_KEY) or (audit := settings.telemetry.audit) is None:
        return
    if (audit.file is None) == (audit.syslog is None):
        seen = "got neither" if audit.file is None else "got both"
        yield Problem(_KEY, "file or syslog, one of them", seen, "for example file: /var/log/isthmus/audit.jsonl")
    if audit.file is not None:
        yield from check_path(f"{_KEY}.file", audit.file)
    if audit.syslog is not None and syslog_address(audit.syslog) is None:
        yield Problem(f"{_KEY}.syslog", "udp://HOST:PORT, tcp://HOST:PORT, or unix:/PATH such as unix:/dev/log")
    if audit.on_failure != "refuse" or not is_sound(f"{_KEY}.on_failure"):
        return
    if audit.file is None and audit.syslog is not None:
        yield Problem(
            f"{_KEY}.on_failure", "it beside file only: nobody tells whether a syslog server has kept a record"
        )
    for i, server in enumerate(settings.servers or ()):
        if server and is_sound(f"servers[{i}].inspect") and not server.inspect:
            right = "true beside telemetry.audit.on_failure refuse: requests that pass unread have no record"
            yield Problem(f"servers[{i}].inspect", right)
