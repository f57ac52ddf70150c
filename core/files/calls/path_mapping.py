"""Paths of a server that sees a folder of ours under another name, and back (`ServerPlan.shared`)."""

from __future__ import annotations

from collections.abc import Sequence

from ...base.plan import SharedFolder


def to_there(path: str, shared: Sequence[SharedFolder]) -> str:
    """A path of ours as the server has it; the innermost folder counts."""
    return _moved(path, [(folder.here, folder.there) for folder in shared])


def to_here(path: str, shared: Sequence[SharedFolder]) -> str:
    """A path of the server's as we have it. One outside of all shared folders stays: it is not ours to read."""
    return _moved(path, [(folder.there, folder.here) for folder in shared])


def _moved(path: str, pairs: Sequence[tuple[str, str]]) -> str:
    for old, new in sorted(pairs, key=lambda pair: -len(pair[0])):
        folder = old.rstrip("/")
        if path == folder or path.startswith(folder + "/"):
            return (new.rstrip("/") + path[len(folder) :]) or "/"
    return path
