"""Names of worlds: a seed, and which parts of its world are kept, where not all are.

`17` is the whole world of that seed. `17/far,s0,c1.3.8-10` is what is left of it with the fault `far`, the server s0,
and of the client c1 the operations 3 and 8 to 10. All random numbers come from the seed by the names of those who draw
them, so what is kept goes on much as it did with the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

_PART: Final = re.compile(r"([a-z]+\d*)((?:\.\d+(?:-\d+)?)*)")


def parse(name: str) -> tuple[str, frozenset[str] | None]:
    """The seed, and the parts that are kept; None: all.

    Raises:
        ValueError: it is no name of a world.
    """
    seed, slash, mask = name.partition("/")
    return seed, frozenset(part for text in mask.split(",") if text for part in _spread(text)) if slash else None


def format(seed: str, parts: Iterable[str]) -> str:
    """The name of the world that has these parts of that seed's."""
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
    """`.3`, `.8-10`: what follows one another is written as one."""
    first: int | None = None
    for at, number in enumerate(numbers):
        first = number if first is None else first
        if at + 1 == len(numbers) or numbers[at + 1] != number + 1:
            yield f".{first}" if first == number else f".{first}-{number}"
            first = None
