"""A search for inputs that reach new code, with the standard library alone, for platforms without an atheris wheel.

An input joins the corpus if it goes from one line of our code to another as none did before; further inputs are made by
small changes to the corpus. Lines are traced with `sys.settrace`, which makes runs ten times slower. So this search
finds failures near the seeds, and atheris finds more in the same time. Equal seeds, targets and numbers of executions
give equal searches.
"""

from __future__ import annotations

import random
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple

INPUT_MAX_BYTES: Final = 4096
"""The bound on the size of an input: a failure that needs more is rare, and takes far longer to find."""
CORPUS_MAX: Final = 1024
"""The bound on inputs to change further; beyond it the oldest that is not a seed is dropped."""
FINDINGS_MAX: Final = 8
"""The number of different failures that ends a search: further ones can wait until these are fixed."""

WORDS: Final = (
    b"\0",
    b"\r\n",
    b"\n",
    b"\xff",
    b'"',
    b"\\",
    b"{}",
    b"[]",
    b"null",
    b"-1",
    b"1e9",
    b"%2f",
    b"..",
    b"\x7f",
)
Place = tuple[CodeType, int]


class Finding(NamedTuple):
    """An input that failed, with its traceback."""

    data: bytes
    report: str


class Search(NamedTuple):
    """The outcome of a search. `kept` has the inputs that reached new code, in the order in which they were found."""

    executions: int
    arcs: int
    kept: list[bytes]
    findings: list[Finding]


class Tracer:
    """A recorder of the steps from line to line in files below `root`, except those below one of `but`."""

    def __init__(self, root: Path, but: Iterable[Path] = ()) -> None:
        self._root = f"{root}/"
        self._but = tuple(f"{path}/" for path in but)
        self._is_ours: dict[CodeType, bool] = {}
        self._last: Place | None = None
        self.arcs: set[tuple[Place | None, Place]] = set()

    def run(self, call: Callable[[bytes], None], data: bytes) -> str | None:
        """Calls it with the input, and returns the traceback if it failed. `arcs` then has the steps of this run."""
        self.arcs = set()
        self._last = None
        sys.settrace(self._enter)
        try:
            call(data)
        except Exception:  # an exception that the target did not expect is a finding
            sys.settrace(None)
            return traceback.format_exc()
        finally:
            sys.settrace(None)
        return None

    def _enter(self, frame: FrameType, event: str, arg: Any) -> Callable[..., Any] | None:
        code = frame.f_code
        is_ours = self._is_ours.get(code)
        if is_ours is None:
            name = code.co_filename
            is_ours = self._is_ours[code] = name.startswith(self._root) and not name.startswith(self._but)
        return self._step if is_ours else None

    def _step(self, frame: FrameType, event: str, arg: Any) -> Callable[..., Any]:
        if event == "line":
            here = (frame.f_code, frame.f_lineno)
            self.arcs.add((self._last, here))
            self._last = here
        return self._step


def search(
    call: Callable[[bytes], None],
    seeds: list[bytes],
    tracer: Tracer,
    *,
    seconds: float,
    seed: int = 0,
    executions_max: int | None = None,
) -> Search:
    """Calls it with the seeds, then with inputs made of them, for `seconds` or `executions_max` calls."""
    chance = random.Random(seed)
    ends_at = time.monotonic() + seconds
    corpus = [data[:INPUT_MAX_BYTES] for data in seeds] or [b""]
    waiting = list(reversed(corpus))
    seen: set[tuple[Place | None, Place]] = set()
    places: set[str] = set()
    kept: list[bytes] = []
    findings: list[Finding] = []
    executions = 0
    while len(findings) < FINDINGS_MAX and executions != executions_max:
        if not waiting and time.monotonic() >= ends_at:
            break
        is_seed = bool(waiting)
        data = waiting.pop() if waiting else mutated(chance, corpus)
        executions += 1
        report = tracer.run(call, data)
        if report is not None:
            place = "\n".join(line for line in report.splitlines() if line.startswith("  File "))
            if place not in places:
                places.add(place)
                findings.append(Finding(data, report))
        elif not tracer.arcs <= seen:
            if not is_seed:
                kept.append(data)
                corpus.append(data)
                if len(corpus) > CORPUS_MAX:
                    del corpus[min(len(seeds), CORPUS_MAX)]
        seen |= tracer.arcs
    return Search(executions, len(seen), kept, findings)


def mutated(chance: random.Random, corpus: list[bytes]) -> bytes:
    """Returns an input of the corpus with a few changes, each of a byte or a range; at most `INPUT_MAX_BYTES`."""
    data = bytearray(chance.choice(corpus))
    for _ in range(chance.choice((1, 1, 2, 3, 5))):
        start = chance.randint(0, len(data))
        stop = min(len(data), start + chance.choice((0, 1, 1, 2, 4, 16, 64)))
        other = chance.choice(corpus)
        at = chance.randint(0, len(other))
        match chance.randrange(7):
            case 0:
                del data[start:stop]
            case 1:
                data[start:stop] = chance.choice(WORDS)
            case 2:
                data[start:stop] = chance.randbytes(chance.randint(1, 3))
            case 3 if start < len(data):
                data[start] ^= 1 << chance.randrange(8)
            case 4:
                data[start:start] = other[at : at + chance.choice((1, 2, 4, 8, 32, 256))]
            case 5:
                data[start:stop] = data[start:stop] * chance.choice((2, 3, 40))
            case _:
                data[start:] = other[at:]
    return bytes(data[:INPUT_MAX_BYTES])
