"""The tags by which logs, records and pages name sessions, tasks and files, whose whole ids are for their clients."""

from __future__ import annotations

from typing import Final

TAG_CHARS: Final = 6
"""Characters of an id, to tell two of one client apart."""


def tag_of(id: str) -> str:
    """Returns the beginning of the public name of a session, or of the id of a task or file, with the tag of its
    replica."""
    return id[: id.find(".") + 1 + TAG_CHARS]
