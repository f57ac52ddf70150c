"""Dotted paths into JSON, such as `options.files[*].path`, and the spans of the values they name.

`[*]` stands for each element of an array. There is no escape: a key that holds a dot cannot be named.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from .splice import elements, members

EACH: Final = "[*]"


class Place(NamedTuple):
    """One value: `data[start:stop]` is its JSON, and `label` its path with indices (`files[0].path`).

    With `fits` false the value is not the target of the path but an obstacle before it: it is neither null nor an
    object (or an array, for `[*]`).
    """

    label: str
    start: int
    stop: int
    fits: bool


def parse_path(path: str) -> tuple[str, ...]:
    """Returns the steps of a path: keys, and `EACH`."""
    steps: list[str] = []
    for part in path.split("."):
        key = part
        while key.endswith(EACH):
            key = key.removesuffix(EACH)
        if key or key == part:
            steps.append(key)
        steps.extend([EACH] * ((len(part) - len(key)) // len(EACH)))
    return tuple(steps)


def walk(data: bytes, path: str) -> list[Place]:
    """Returns the values at `path` in the JSON `data`, in order. Absent members, and members of null, yield no values.

    Raises:
        RemoteProtocolError: an object along the path has a key twice, or `data` is not JSON.
    """
    found = [Place("", 0, len(data), True)]
    for step in parse_path(path):
        found = [below for place in found for below in _step(data, place, step)]
    return found


def _step(data: bytes, place: Place, step: str) -> list[Place]:
    raw = data[place.start : place.stop]
    if not place.fits or raw == b"null":
        return [] if place.fits else [place]
    if not raw.startswith(b"[" if step == EACH else b"{"):
        return [place._replace(fits=False)]
    if step == EACH:
        return [
            Place(f"{place.label}[{index}]", place.start + start, place.start + stop, True)
            for index, (start, stop) in enumerate(elements(raw))
        ]
    span = members(raw).get(step)
    label = f"{place.label}.{step}" if place.label else step
    return [] if span is None else [Place(label, place.start + span.start, place.start + span.stop, True)]
