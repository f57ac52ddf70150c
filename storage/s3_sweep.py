"""The removal of contents that no pointer names, from blobs in S3 (see `s3`).

A content is *dead* if its newest piece is older than `GRACE_S` and the pointer of its key does not name it: its writer
would be refused by now, and a pointer that named it once will not do so again. A sweep marks each dead content by an
object `dead/KEY!CONTENT`. A content is removed when its mark is older than `GRACE_S`, so that readers which began
before the blob was replaced or deleted can end.

All ages are differences of times that the server says. No process has to have the right time, or to stay alive.

Names sort like the keys in them, as `!` sorts before all that a key may hold. So the pointers and the contents are
compared page by page, however many there are.

Requests: 2, and 1 for each 1,000 objects of either kind; for each dead content 3 until it is marked, 2 in each sweep
until its mark is old, and 3 for its removal.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Final, NamedTuple

from .keys import check_key
from .s3_objects import LISTED_MAX, S3Objects

GRACE_S: Final = 3600.0
"""Seconds for which a content stays that may still be read, or written. A download of 1 GiB takes as long at
2.4 Mbit/s."""
CLOCK: Final = "clock"
"""The object that is written to learn the server's time."""

_POINTERS: Final = "blobs"
_DATA: Final = "data"
_DEAD: Final = "dead"
_PIECE: Final = re.compile(rf"{_DATA}/(?P<key>[^!]+)!(?P<content>[0-9a-f]{{32}})/[0-9]{{6,}}")
_MARK: Final = re.compile(rf"{_DEAD}/(?P<key>[^!]+)!(?P<content>[0-9a-f]{{32}})")


class Content(NamedTuple):
    """A content that was listed, and the time of its newest piece."""

    key: str
    name: str
    modified_at_unix: float


def pointer_name(key: str) -> str:
    return f"{_POINTERS}/{key}"


def content_folder(key: str, content: str) -> str:
    return f"{_DATA}/{key}!{content}"


def mark_name(key: str, content: str) -> str:
    return f"{_DEAD}/{key}!{content}"


async def pointers(objects: S3Objects, *, min_age_s: float = 0.0) -> AsyncGenerator[str, None]:
    """Yields the keys that have a pointer, in order. With `min_age_s`, only of pointers as old as that."""
    until = await objects.clock(CLOCK) - min_age_s if min_age_s else float("inf")
    async with aclosing(objects.listing(_POINTERS)) as listing:
        async for found in listing:
            if found.modified_at_unix > until:
                continue
            key = found.name.removeprefix(f"{_POINTERS}/")
            try:
                yield check_key(key)
            except ValueError:
                continue  # an object of somebody else


async def remove_orphans(objects: S3Objects, named: Callable[[str], Awaitable[str | None]]) -> int:
    """Marks the dead contents, and removes those whose marks are old. Returns how many were removed.

    Args:
        named: returns the content that the pointer of a key names now.
    """
    now = await objects.clock(CLOCK)
    count = 0
    async with aclosing(objects.listing(_DEAD)) as marks:
        async for mark in marks:
            match = _MARK.fullmatch(mark.name)
            if match is not None and mark.modified_at_unix + GRACE_S <= now:
                await _remove(objects, content_folder(match["key"], match["content"]))
                await objects.delete([mark.name])
                count += 1
    async with aclosing(pointers(objects)) as keys, aclosing(_by_key(objects)) as contents:
        key: str | None = ""
        async for found in contents:
            while key is not None and key < found[0].key:
                key = await anext(keys, None)
            has_pointer = key == found[0].key
            if has_pointer and len(found) == 1:
                continue  # a pointer names a content that exists, and there is no other
            living = await named(found[0].key) if has_pointer else None
            for content in found:
                if content.name != living and content.modified_at_unix + GRACE_S <= now:
                    mark_to_write = mark_name(content.key, content.name)
                    if await objects.get(mark_to_write, 0, 1) is None:
                        await objects.put(mark_to_write, b"1")
    return count


async def _remove(objects: S3Objects, folder: str) -> None:
    names: list[str] = []
    async with aclosing(objects.listing(folder)) as pieces:
        async for piece in pieces:
            names.append(piece.name)
            if len(names) == LISTED_MAX:
                await objects.delete(names)
                names.clear()
    await objects.delete(names)


async def _by_key(objects: S3Objects) -> AsyncGenerator[list[Content], None]:
    """Yields the contents that exist, those of one key together, ordered by key."""
    contents: list[Content] = []
    async with aclosing(objects.listing(_DATA)) as pieces:
        async for piece in pieces:
            match = _PIECE.fullmatch(piece.name)
            if match is None:
                continue  # an object of somebody else
            found = Content(match["key"], match["content"], piece.modified_at_unix)
            last = contents[-1] if contents else found
            if last.key != found.key:
                yield contents
                contents = [found]
            elif contents and last.name == found.name:
                contents[-1] = found._replace(modified_at_unix=max(last.modified_at_unix, found.modified_at_unix))
            else:
                contents.append(found)
    if contents:
        yield contents
