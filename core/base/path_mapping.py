"""Mapping of paths for a server that sees a folder of the proxy under another name (`ServerPlan.shared`)."""

from __future__ import annotations

from collections.abc import Sequence

from .plan import SharedFolder


def to_there(path: str, shared: Sequence[SharedFolder]) -> str:
    """Returns a path of the proxy as the server has it. The innermost shared folder counts."""
    return _moved(path, [(folder.here, folder.there) for folder in shared])


def to_here(path: str, shared: Sequence[SharedFolder]) -> str:
    """Returns a path of the server as the proxy has it. A path outside of all shared folders is returned unchanged: it
    is not the proxy's to read."""
    return _moved(path, [(folder.there, folder.here) for folder in shared])


def _moved(path: str, pairs: Sequence[tuple[str, str]]) -> str:
    for old, new in sorted(pairs, key=lambda pair: -len(pair[0])):
        folder = old.rstrip("/")
        if path == folder or path.startswith(folder + "/"):
            return (new.rstrip("/") + path[len(folder) :]) or "/"
    return path
