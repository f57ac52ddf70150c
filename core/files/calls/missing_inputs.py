"""Advice for calls that failed over a file which the server does not have, because its path is of the client's machine.

No path is refused before a call, since the server may well be able to open it. Only when a tool says that something was
not found, or not permitted, and an argument names a file that is not among those of the session, the error gets one
more text: what the server cannot read, and how to pass a file. So does any error over a name that only a client can
have for a file, such as `sandbox:/mnt/data/x`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from ...base.lazy_regex import Pattern
from ...base.path_mapping import to_here
from ...base.plan import UPLOAD_SCHEME
from ...base.storage import Sighting, StorageAnswer, Survey, Surveyed
from ...jsonrpc import envelope
from ...jsonrpc.append import add_items, readable_elements, readable_members
from ...jsonrpc.bounds import has_few_values
from ...jsonrpc.splice import take
from ...state.context import Context
from ...state.storage_orders import StorageOrders
from ..store.handles import ARTIFACT_SCHEME
from .claims import STRINGS_MAX, member_text
from .job import FileCall
from .offers import upload_tools
from .paths_in_text import reads_as_path, spellings

NAMED_MAX: Final = 3
"""Paths that one text names. An agent that reads of some knows what to do with the others."""
BLOCKS_MAX: Final = 16
TEXT_MAX_CHARS: Final = 16 * 1024
"""Characters of an error that are read. What matters stands at the beginning."""

_NOT_THERE: Final = Pattern(
    r"no such|not (?:be )?found|no file|not exist|n't exist|not (?:be )?(?:read|open|access|locate)"
    r"|not a (?:valid )?file|missing"
    r"|(?:cannot|can't|could not|couldn't|unable to|failed to) (?:find|open|read|access|locate|load)"
    r"|ENOENT|EACCES|denied|outside|not (?:allowed|permitted|accessible)|invalid (?:file ?)?path",
    re.IGNORECASE,
)
_WRITES: Final = Pattern(r"(?:write|save|create|make|mkdir|delete|remove)", re.IGNORECASE)
_WRITTEN: Final = Pattern(r"out|dest|target|sav(?:e|ing)|writ|export", re.IGNORECASE)
_OF_CLIENTS: Final = Pattern(r"(?:attachment|sandbox|upload):", re.IGNORECASE)


class MissingInputs:
    """Adds such a text to the results of calls."""

    def __init__(self, context: Context, storage_orders: StorageOrders) -> None:
        self._context = context
        self._storage_orders = storage_orders

    def look(self, job: FileCall, result: bytes, then: Callable[[bytes], None]) -> bool:
        """True if `then` is called with the result, now or later: with the text added if a file is missing. False if
        the result needs none, as far as it can be told without a look at the disk."""
        plan = job.link.plan
        if plan.auto_files is None or job.consumers or not self._context.plan.uploads_enabled:
            return False
        if take(result, readable_members(result).get("isError")) != b"true" or _WRITES.match(job.tool):
            return False
        params = job.exchange.params if job.original_params is None else job.original_params
        arguments = envelope.member_of(params, "arguments")
        values = list(_file_arguments(arguments, self._context.limits.arguments_read_max))
        handles = [mention.text for mention in job.mentions if mention.text]  # their files are there
        values = [value for value in values if not any(handle in value for handle in handles)]
        paths = [value for value in values if not _OF_CLIENTS.match(value)] if _says_missing(result) else []
        values = [value for value in values if value in paths or _OF_CLIENTS.match(value)]
        named = tuple(tuple(to_here(path, plan.shared) for path in spellings(value)) for value in paths)
        if not paths:
            if values:
                then(self._advised(job, result, values))
            return bool(values)

        def seen(answer: StorageAnswer) -> None:
            missing = values
            if isinstance(answer, Surveyed):
                there = [path for path, sighting in zip(paths, answer.named, strict=True) if not _is_missing(sighting)]
                missing = [value for value in values if value not in there]
            then(self._advised(job, result, missing) if missing and isinstance(answer, Surveyed) else result)

        self._storage_orders.order(
            lambda ticket: Survey(ticket=ticket, server=plan.id, workspace=job.link.workspace, named=named), seen
        )
        return True

    def _advised(self, job: FileCall, result: bytes, values: list[str]) -> bytes:
        tools = upload_tools(self._context, job.link.session_of(job.exchange), job.link.plan.id)
        shown = ", ".join(value[:200] for value in values[:NAMED_MAX])
        text = f"This server cannot read {shown}. To pass a file that you have: {tools.how}."
        return add_items(result, "content", [msgspec.json.encode({"type": "text", "text": text})])


def _says_missing(result: bytes) -> bool:
    """True if the text of an error says that something was not found or not permitted."""
    blocks = readable_elements(take(result, readable_members(result).get("content")))[:BLOCKS_MAX]
    return any(_NOT_THERE.search((member_text(block, "text") or "")[:TEXT_MAX_CHARS]) for block in blocks)


def _file_arguments(arguments: bytes | None, limit: int) -> Iterator[str]:
    """Yields the texts in the arguments that read as paths or as names of files in a client's own terms, except where
    the argument is for a file to be written; each once, at most `limit`."""
    if arguments is None or not has_few_values(arguments):
        return
    try:
        waiting: list[tuple[str, object]] = [("", msgspec.json.decode(arguments))]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
    found: dict[str, None] = {}
    for _ in range(STRINGS_MAX):
        if not waiting or len(found) == limit:
            break
        key, value = waiting.pop()
        if isinstance(value, dict):
            waiting.extend((str(name), inner) for name, inner in reversed(value.items()))
        elif isinstance(value, list):
            waiting.extend((key, inner) for inner in reversed(value))
        elif isinstance(value, str) and not _WRITTEN.search(key) and _reads_as_file(value):
            found[value] = None
    yield from found


def _reads_as_file(value: str) -> bool:
    if _OF_CLIENTS.match(value):
        return reads_as_path(value.partition(":")[2]) or value.lower().startswith(UPLOAD_SCHEME)
    return not value.startswith(ARTIFACT_SCHEME) and reads_as_path(value) and bool(spellings(value))


def _is_missing(sighting: Sighting) -> bool:
    return not sighting.is_folder and sighting.problem.startswith(("missing", "not permitted"))
