"""Hints about environment variables that a child asked for, on stderr, before it ended."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from ...core.base.setting_names import SettingNames

SHOWN_MAX: Final = 3
"""Variables that a hint names."""

_NAME: Final = re.compile(r"(?<![A-Za-z0-9_])[A-Za-z][A-Za-z0-9]*(?:_[A-Za-z0-9]+)+(?![A-Za-z0-9_])")
_ASKS: Final = re.compile(
    r"\brequire[ds]?\b|missing|\bset\b|not (found|provided|configured|defined)|\bunset\b|undefined|\bmust\b|\bneeds?\b|"
    r"please|\bprovide\b|\benviron(ment)?\b|getenv|process\.env|KeyError|Field required",
    re.IGNORECASE,
)
_OF_ENVIRONMENT: Final = re.compile(r"environ|\benv\b|getenv|variable|KeyError|\bset\b", re.IGNORECASE)
_SECRET: Final = re.compile(r".*_(KEY|TOKEN|SECRET|PASSWORD)")
_ERROR_CODE: Final = re.compile(r"ERR_|E?[A-Z]+_ERR|.*_(NOT_FOUND|ERROR|EXPORTED)$")
_REFUSED: Final = re.compile(
    r"\bE40[134]\b|\b404 Not Found|Unauthorized|Forbidden|No solution found|Not found in the package registry|"
    r"No matching distribution",
    re.IGNORECASE,
)
_OF_NPM: Final = re.compile(r"(npm_config|npm|node_auth)_", re.IGNORECASE)
_OF_PYTHON: Final = re.compile(r"(uv|pip|pipx)_", re.IGNORECASE)


def hint_about(
    stderr: Sequence[str], ours: Mapping[str, str], theirs: Mapping[str, str], names: SettingNames
) -> str | None:
    """Returns a hint about variables that the child lacked, if it asked for some. Values are never repeated.

    Args:
        stderr: its last lines.
        ours: our environment.
        theirs: the environment that the child had.
    """
    withheld = {name for name, value in ours.items() if value and name not in theirs}
    if asked := _first(name for name in _asked_for(stderr) if name in withheld):
        return _not_handed_on(asked, names)
    text = "\n".join(stderr)
    of_runner = _OF_NPM if re.search(r"\bnpm\b", text) else _OF_PYTHON
    if _REFUSED.search(text) and (kept := _first(filter(of_runner.match, sorted(withheld)))):
        return f"its registry may want what is in the environment; {_not_handed_on(kept, names)}"
    if absent := _first(name for name in _surely_asked_for(stderr) if name not in ours and name not in theirs):
        are, them = ("is", "it") if len(absent) == 1 else ("are", "them")
        return f"{_listed(absent)} {are} not set: set {them}, and hand {them} on: {names.variables(absent)}"
    return None


def _not_handed_on(variables: Sequence[str], names: SettingNames) -> str:
    are = "is" if len(variables) == 1 else "are"
    return f"{_listed(variables)} {are} set here, but not handed on: {names.variables(variables)}"


def _asked_for(stderr: Sequence[str]) -> Iterator[str]:
    """Yields what may be names of variables, in lines that ask for something, and in those beside."""
    for i, line in enumerate(stderr):
        if any(map(_ASKS.search, stderr[max(i - 1, 0) : i + 2])):
            yield from (found[0].upper() for found in _NAME.finditer(line))


def _surely_asked_for(stderr: Sequence[str]) -> Iterator[str]:
    """Yields names in upper case, in lines that ask for variables, or for what is usually in one."""
    for line in filter(_ASKS.search, stderr):
        is_of_environment = _OF_ENVIRONMENT.search(line) is not None
        for name in (found[0] for found in _NAME.finditer(line)):
            if name.isupper() and (_SECRET.fullmatch(name) or (is_of_environment and _ERROR_CODE.match(name) is None)):
                yield name


def _first(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))[:SHOWN_MAX]


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
