"""Names of worlds: a seed, and the parts of its world that are kept, unless all are.

`17` is the whole world of that seed. `17/far,s0,c1.3.8-10` keeps the fault `far`, the server s0, and the operations 3
and 8 to 10 of the client c1. All random numbers come from the seed and from the name of the part that draws them, so
the kept parts behave much as they did among the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

_PART: Final = re.compile(r"([a-z]+\d*)((?:\.\d+(?:-\d+)?)*)")


def parse(name: str) -> tuple[str, frozenset[str] | None]:
    """Returns the seed and the parts that are kept. None stands for all parts.

    Raises:
        ValueError: the text is no name of a world.
    """
    seed, slash, mask = name.partition("/")
    return seed, frozenset(part for text in mask.split(",") if text for part in _spread(text)) if slash else None


def format(seed: str, parts: Iterable[str]) -> str:
    """Returns the name of the world that has these parts of the seed's world."""
    numbers: dict[str, list[int]] = {}
    for part in parts:
        owner, _, number = part.partition(".")
        numbers.setdefault(owner, []).extend([int(number)] if number else [])
    return f"{seed}/" + ",".join(owner + "".join(_runs(sorted(found))) for owner, found in numbers.items())


def _spread(text: str) -> Iterator[str]:
    found = _PART.fullmatch(text)
    if found is None:
        raise ValueError(f"got {text!r}, expected a part such as far, s0 or c1.3.8-10")
    owner, numbers = found.groups()
    yield owner
    for run in numbers.split(".")[1:]:
        first, _, last = run.partition("-")
        yield from (f"{owner}.{number}" for number in range(int(first), int(last or first) + 1))


def _runs(numbers: list[int]) -> Iterator[str]:
    """Yields `.3`, `.8-10`: consecutive numbers become a range."""
    first: int | None = None
    for at, number in enumerate(numbers):
        first = number if first is None else first
        if at + 1 == len(numbers) or numbers[at + 1] != number + 1:
            yield f".{first}" if first == number else f".{first}-{number}"
            first = None
