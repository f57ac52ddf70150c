"""Relative names that a tool refuses because it takes absolute paths only.

Such a name is made absolute: it starts from the server's working directory, as it would for any other tool. That is
learned from a refusal, and then done for this argument of the tool in every call.
"""

from __future__ import annotations

import posixpath
import re
from collections import OrderedDict
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from ...base.lazy_regex import Pattern
from ...jsonrpc.append import readable_elements, readable_members, readable_text
from ...jsonrpc.splice import Edit, elements, splice, take
from .job import FileCall
from .paths_in_text import reads_as_path

LEARNED_MAX: Final = 1024
"""Arguments known from a refusal to take absolute paths: those of some hundred tools, over all servers. At it: the
oldest is forgotten."""
DEPTH_MAX: Final = 4
"""Levels of arguments in which names are made absolute. Real ones lie in the first or second. At it: names further
within stay as they are."""
ENTRIES_MAX: Final = 1000
"""Arguments of one call that are looked at. At it: further ones stay as they are."""
NAME_MAX_CHARS: Final = 255
"""Longest relative name that is made absolute: more is a text. At it: the argument stays as it is."""
REFUSAL_MAX_CHARS: Final = 4096
"""Longest refusal that is read: more is the output of a tool that ran. At it: nothing is made absolute."""

_ABSOLUTE: Final = Pattern(r"absolut|fully[ -]qualified|绝对路径|絕對路徑|絶対パス|절대 경로", re.IGNORECASE)


class _Name(NamedTuple):
    """A relative name in the arguments: the JSON string `params[start:stop]`."""

    start: int
    stop: int
    key: str
    text: str


class AbsoluteNames:
    """The arguments that take absolute paths only."""

    def __init__(self) -> None:
        self._learned: OrderedDict[tuple[str, str, str], None] = OrderedDict()  # server, tool, argument

    def learn(self, job: FileCall, refusal: bytes) -> bool:
        """Learns from a refusal. True if the call is to be sent once more, with what it refused made absolute.

        That is safe if the tool says of itself that a call may be repeated, or if the refusal quotes the name or its
        argument: then the tool has checked its arguments, and done nothing yet.

        Args:
            refusal: the JSON of a result, or of an error.
        """
        text = _refusal_text(refusal)
        if not _ABSOLUTE.search(text):
            return False
        names = [name for name in _relative_names(job.exchange.params or b"{}") if not self._knows(job, name)]
        refused = [name for name in names if _is_quoted(name, text)]
        likely = refused or [name for name in names if reads_as_path(name.text)]
        for name in likely:
            self._learned[job.link.plan.id, job.tool, name.key] = None
            if len(self._learned) > LEARNED_MAX:
                self._learned.popitem(last=False)
        return bool(refused) or (bool(likely) and job.is_harmless)

    def _knows(self, job: FileCall, name: _Name) -> bool:
        return (job.link.plan.id, job.tool, name.key) in self._learned

    def write(self, job: FileCall, params: bytes, cwd: str) -> bytes:
        """Returns the params with the names absolute in the arguments that are known to need it.

        Args:
            cwd: the server's working directory, where it sees it; "" if it is not known.
        """
        if not self._learned or not cwd:
            return params
        edits = [
            Edit(name.start, name.stop, msgspec.json.encode(posixpath.join(cwd, name.text)))
            for name in _relative_names(params)
            if self._knows(job, name)
        ]
        return splice(params, edits) if edits else params


def _is_quoted(name: _Name, text: str) -> bool:
    """True if the text shows the name, or names its argument. A name that is no path at first sight, such as one word,
    counts only in quotes."""
    value = re.escape(name.text) if reads_as_path(name.text) else rf"['\"`‘“«]{re.escape(name.text)}['\"`’”»]"
    return re.search(rf"(?<![0-9A-Za-z_])(?:{value}|{re.escape(name.key)})(?![0-9A-Za-z_])", text) is not None


def _refusal_text(refusal: bytes) -> str:
    """Returns the text of an error, or of a result that says it is one; "" for anything else."""
    spans = readable_members(refusal)
    message = readable_text(take(refusal, spans.get("message")))
    if message is None and take(refusal, spans.get("isError")) == b"true":
        blocks = readable_elements(take(refusal, spans.get("content")))
        texts = [readable_text(take(block, readable_members(block).get("text"))) or "" for block in blocks]
        message = "\n".join(texts)
    return message if message is not None and len(message) <= REFUSAL_MAX_CHARS else ""


def _relative_names(params: bytes) -> Iterator[_Name]:
    """Yields the strings in the arguments that may be the relative name of a file."""
    span = readable_members(params).get("arguments")
    if span is None:
        return
    pending = [(span.start, span.stop, "", 0)]
    for _ in range(ENTRIES_MAX):
        if not pending:
            return
        start, stop, key, depth = pending.pop()
        part = params[start:stop]
        if part.startswith(b'"'):
            text = readable_text(part)
            if text and _is_relative(text):
                yield _Name(start, stop, key, text)
        elif depth == DEPTH_MAX:
            continue
        elif part.startswith(b"["):
            spans = [(key, each) for each in elements(part)] if readable_elements(part) else []
            pending += [(start + each.start, start + each.stop, name, depth + 1) for name, each in reversed(spans)]
        else:
            below = list(readable_members(part).items())
            pending += [(start + each.start, start + each.stop, name, depth + 1) for name, each in reversed(below)]


def _is_relative(text: str) -> bool:
    """True for a name, in folders or not, that stays below the folder it starts from."""
    if len(text) > NAME_MAX_CHARS or not text.isprintable() or text.startswith("~") or ":" in text or "\\" in text:
        return False
    return {"", ".."}.isdisjoint(text.split("/"))
