"""Content in a call's arguments where a handle belongs becomes an upload, which the tool is given like any other.

An adapter's arguments take a `data:` URI or an embedded resource. With `files: auto`, a `data:` URI that is an argument
as a whole, or an item of its list, becomes a file where the tool takes paths: as far as its schema, or else the name of
the argument, says so. A tool that takes URIs reads such a URI itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from ...base.errors import RemoteProtocolError
from ...base.lazy_regex import Pattern
from ...jsonrpc.splice import elements, members
from ...state.context import Context
from ...state.tool_hints import Hints
from ..store.owners import user_of
from ..store.puts import Outcome, Part, Problem, Progress, Puts
from ..store.store import FileStore
from .arguments import ArgumentProblem, Reference
from .inline_content import InlineFile, is_data_uri, read_inline
from .job import FileCall
from .mentions import Mention
from .upload_tools import UploadTools

_PATH_NAME: Final = Pattern(r"(?i:(?:^|[_\-.\s])(?:file)?(?:path|file|filename)s?$)|(?<=[a-z0-9])(?:Path|File)s?$")


def find_data_uris(params: bytes, hints: Hints, *, limit: int) -> list[Mention]:
    """Returns the `data:` URIs that are arguments for paths, in the params of a `tools/call`, at most `limit`.
    Arguments that cannot be read hold none."""
    if b'"data:' not in params:
        return []
    try:
        return [mention for mention, _ in zip(_data_uris(params, hints), range(limit), strict=False)]
    except RemoteProtocolError:
        return []


def _data_uris(params: bytes, hints: Hints) -> Iterator[Mention]:
    outer = members(params).get("arguments")
    if outer is None or params[outer.start : outer.start + 1] != b"{":
        return
    for key, (start, stop) in members(params[outer.start : outer.stop]).items():
        start, stop = outer.start + start, outer.start + stop
        if not _takes_paths(key, hints):
            continue
        if params[start : start + 1] == b"[":
            items = [(start + first, start + last) for first, last in elements(params[start:stop])]
        else:
            items = [(start, stop)]
        for first, last in items:
            if is_data_uri(params[first:last]):
                # Between the quotes, as the other mentions stand.
                yield Mention(first + 1, last - 1, key, key, "inline", "", str(first), "", True, False, ("json",))


def _takes_paths(key: str, hints: Hints) -> bool:
    if hints.wants_uri(key, key):
        return False
    return hints.verdicts.get(key) is False or _PATH_NAME.search(key) is not None


class InlineInputs:
    """Stores the content in calls."""

    def __init__(self, context: Context, file_store: FileStore, puts: Puts) -> None:
        self._context = context
        self._file_store = file_store
        self._puts = puts

    def read(self, job: FileCall, found: Sequence[Reference | Mention], tools: UploadTools) -> None:
        """Reads the content that stands in the arguments.

        Raises:
            ArgumentProblem: it cannot be decoded, or there is too much of it.
        """
        params, limit = job.exchange.params, self._context.limits.upload_part_max_bytes
        assert params is not None
        for one in found:
            if one.kind != "inline":
                continue
            raw = params[one.start : one.stop]
            file = read_inline(b'"%b"' % raw if isinstance(one, Mention) else raw)
            if file is None:
                raise ArgumentProblem(
                    f"Argument {one.label}: got content that cannot be decoded, expected a data: URI in base64 or "
                    f"percent-encoded, or a resource with blob or text. To pass a file in another way: {tools.how}."
                )
            if len(file.data) > limit:
                raise ArgumentProblem(
                    f"Argument {one.label}: the content has {len(file.data)} bytes, and at most {limit} are taken in "
                    f"an argument. To pass a larger file: {tools.how}."
                )
            job.add_inline(one, file)

    def store(self, job: FileCall, then: Callable[[], None]) -> None:
        """Stores the content of a call, one file after another, as its inputs. Calls `then` at the end, or with the
        problem of the call set."""
        self._store_next(job, list(job.inline.items()), then)

    def _store_next(
        self, job: FileCall, left: list[tuple[tuple[str, str, str], tuple[str, InlineFile]]], then: Callable[[], None]
    ) -> None:
        if not left or job.is_over or job.problem is not None:
            then()
            return
        (key, (label, file)), *rest = left
        session = job.link.session_of(job.exchange)

        def stored(outcome: Outcome) -> None:
            assert not isinstance(outcome, Progress)
            if isinstance(outcome, Problem):
                job.fail(f"Argument {label}: {outcome.text}")
            elif not job.is_over:
                entry = self._file_store.find(
                    user_of(self._context, session), of_sid=outcome.sid, id=outcome.id, kind="upload"
                )
                assert entry is not None, "it was stored at this moment"
                self._file_store.pin(entry)
                job.add_input(key, entry)
            self._store_next(job, rest, then)

        self._puts.put(session, Part(file.data, file.filename, file.mime_type), stored)
