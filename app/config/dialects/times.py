"""Converts the time limits of a server, each in the unit of its client, to seconds."""

from __future__ import annotations

import re
from typing import Final

from ...base.durations import parse_duration
from .clients import Client
from .entries import Entry, Member
from .findings import Findings
from .keys import Meaning

GUESSED_S_MAX: Final = 3600
"""The largest number without a known unit that is taken for seconds. Clients that count in seconds allow an hour; fewer
than four seconds are rarely meant, and too long a limit does less harm than one that ends every call."""
_SECONDS_MAX: Final = 18_000
"""The largest `timeout` of a client that counts in seconds. A larger one was meant for a client that counts in
milliseconds: five hours are no time to wait for a tool."""
_NANOSECONDS_MIN: Final = 1_000_000
"""The smallest number that is taken for nanoseconds, in which programs written in Go count. Less is taken for seconds:
nobody waits for a millisecond."""
_PER_SECOND: Final = {"s": 1, "ms": 1000, "ns": 1_000_000_000}


def read_times(entry: Entry, client: Client, findings: Findings) -> tuple[dict[str, object], dict[str, str]]:
    """Returns the time limits of our form, the shortest of each kind, and the keys of the file they come from."""
    found: dict[str, list[tuple[float, str]]] = {"call_timeout_seconds": [], "start_timeout_seconds": [], "total": []}
    units = {
        Meaning.CALL_S: ("call_timeout_seconds", "s"),
        Meaning.CALL_MS: ("call_timeout_seconds", "ms"),
        Meaning.TOTAL_MS: ("total", "ms"),
        Meaning.START: ("start_timeout_seconds", ""),
        Meaning.START_S: ("start_timeout_seconds", "s"),
        Meaning.START_MS: ("start_timeout_seconds", "ms"),
        Meaning.TIMEOUT: ("call_timeout_seconds", client.timeout),
    }
    if client.timeout == "start":
        units[Meaning.TIMEOUT] = ("start_timeout_seconds", "ms")
    for meaning, (ours, unit) in units.items():
        for member in entry.all(meaning):
            seconds = read_seconds(member, unit, findings, is_sure=meaning is not Meaning.TIMEOUT)
            if seconds is not None:
                found[ours].append((seconds, member.key))
    made: dict[str, object] = {}
    origins: dict[str, str] = {}
    for ours, given in found.items():
        if given:
            seconds, key = min(given)
            name = "tool_time_limits" if ours == "total" else ours
            made[name] = {"*": seconds} if ours == "total" else seconds
            origins[name] = key
    return made, origins


def read_seconds(member: Member, unit: str, findings: Findings, *, is_sure: bool = True) -> float | None:
    """Returns a time in seconds; None if it has a fault, which is noted.

    Args:
        unit: s, ms, ns, or "" if its size decides.
        is_sure: the name of the key says the unit.
    """
    value = member.value
    if isinstance(value, str):
        if re.fullmatch(r"[0-9]{1,15}(\.[0-9]{1,9})?", value.strip()):
            value = float(value)
        else:
            try:
                return _above_0(member.key, parse_duration(value.strip()), findings)
            except ValueError:
                pass
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        findings.refuse_type(member.key, "a number above 0, or a time such as 90s", value)
        return None
    if unit == "ns" and value < _NANOSECONDS_MIN:
        unit = "s"
    elif not unit or (unit == "s" and not is_sure and value > _SECONDS_MAX):
        unit = "s" if value <= GUESSED_S_MAX else "ms"
        word = "seconds" if unit == "s" else "milliseconds"
        findings.notes.append(f"{member.key} is taken for {word}: {value:g}")
    return _above_0(member.key, value / _PER_SECOND[unit], findings)


def _above_0(key: str, seconds: float, findings: Findings) -> float | None:
    if not seconds > 0:
        findings.refuse(key, "a number above 0; without this key the limit is that of Isthmus", f"got {seconds:g}")
        return None
    return int(seconds) if seconds == int(seconds) else seconds
