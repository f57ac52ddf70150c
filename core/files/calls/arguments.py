"""Handles in the arguments that take files, and their replacement by what the tool can open.

The handles are found and their form is checked before anything is sent; then they are replaced where they stand, and
every other byte of the params stays. `inputs` resolves the handles, and refuses those that the client may not use.
`arguments` with a key twice on the way to a handle are refused: the server might read the other one. Where no argument
is known to take files, `mentions` finds handles anywhere.
"""

from __future__ import annotations

import base64
import itertools
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Final, Literal, NamedTuple
from urllib.parse import quote

import msgspec

from ...base.errors import RemoteProtocolError
from ...base.plan import UPLOAD_SCHEME, Deliver, UploadConsumer
from ...jsonrpc.append import readable_text
from ...jsonrpc.envelope import text_of
from ...jsonrpc.paths import Place, walk
from ...jsonrpc.splice import Edit, elements, members, set_member, take
from ..store.handles import ARTIFACT_SCHEME, NEW_FILE_PREFIX, HandleError, parse_artifact, parse_upload
from .inline_content import is_inline

REFERENCES_MAX: Final = 256
"""Handles in one call. Tools take a handful; each one costs a record to load and a file to place. At it: the call is
refused with an error result."""

ON_DISK: Final = frozenset({Deliver.PATH, Deliver.FILE_URI})
FILE_PREFIX: Final = "file://"
"""Prefix of file URIs. People who know that a tool wants URIs write it before a handle."""

_SEEN_MAX: Final = 80


class Reference(NamedTuple):
    """A handle in the params: its JSON string is `params[start:stop]`, and `text` what that decodes to.

    `uid` names the upload, or the artifact, of session `sid`. Of a new file, `uid` is the URI. Where content stands in
    a handle's place (`inline`), `uid` is where it begins, and `sid` and `text` are empty. `label` is the argument
    (`files[0].path`) and `deliver` what is to stand in it.
    """

    start: int
    stop: int
    sid: str
    uid: str
    text: str
    kind: Literal["upload", "artifact", "new", "inline"] = "upload"
    label: str = ""
    deliver: Deliver = Deliver.PATH

    @property
    def id(self) -> str:
        """The id of the upload or artifact, under the name that `mentions.Mention` has for it."""
        return self.uid


class ArgumentProblem(Exception):
    """Raised for arguments that a tool cannot be called with. The message is for the caller: which argument, what came,
    what to do."""


def tool_named(patterns: Sequence[str], name: str) -> bool:
    """True if an adapter's `tools` cover the tool: by its name, or by a pattern with `*`, `?` or `[...]`."""
    return name in patterns or any(fnmatchcase(name, pattern) for pattern in patterns)


# --- Finding --------------------------------------------------------------------------------------------------------


def find_references(params: bytes, consumers: Sequence[UploadConsumer], *, how: str) -> list[Reference]:
    """Returns the handles at the consumers' arguments in the params of a `tools/call`, in the order they stand in.

    A string is one handle, a list of strings many; an argument that is absent or null holds none. A handle that several
    consumers, or several paths of one, lead to is one reference, delivered as the first of them says. `file://` before
    a handle asks for a file URI where a path would be delivered.

    Args:
        how: how to get a handle, the end of the advice in messages (`UploadTools.how`).

    Raises:
        ArgumentProblem: anything else is there, or more than `REFERENCES_MAX` handles. With `accept_other`, a value
            that does not begin as a handle does passes.
    """
    found: dict[int, Reference] = {}
    for consumer in consumers:
        search = _Search(params, consumer, how)
        for path in consumer.arguments:
            for reference in search.at(path):
                found.setdefault(reference.start, reference)
                if len(found) > REFERENCES_MAX:
                    raise ArgumentProblem(
                        f"Argument {path}: got more than {REFERENCES_MAX} upload handles, expected at most "
                        f"{REFERENCES_MAX} in one call."
                    )
    ordered = [found[start] for start in sorted(found)]
    for outer, inner in itertools.pairwise(ordered):
        if inner.start < outer.stop:
            raise ArgumentProblem(f"Argument {inner.label}: got a file within the content of another, {outer.label}.")
    return ordered


class _Search:
    """The search for the handles that one consumer takes."""

    def __init__(self, params: bytes, consumer: UploadConsumer, how: str) -> None:
        self._params = params
        self._consumer = consumer
        self._schemes = (consumer.uri_scheme, UPLOAD_SCHEME, ARTIFACT_SCHEME)
        self._advice = f"To pass a file: {how}."

    def at(self, path: str) -> Iterator[Reference]:
        for place in _places(self._params, f"arguments.{path}"):
            label = place.label.removeprefix("arguments.")
            raw = self._params[place.start : place.stop]
            if not place.fits:
                if self._is_other(raw):
                    continue
                raise ArgumentProblem(f"Argument {label}: got {_shown(raw)}, which cannot hold {path}. {self._advice}")
            if raw == b"null":
                continue
            if not raw.startswith(b"["):
                yield from self._reference(raw, place.start, label)
            elif self._may_hold_handles(raw):
                for index, (start, stop) in enumerate(elements(raw)):
                    yield from self._reference(raw[start:stop], place.start + start, f"{label}[{index}]")

    def _may_hold_handles(self, raw: bytes) -> bool:
        """False only for a list that passes as a whole. It may be long, so its items are not looked at then."""
        if not self._consumer.accept_other or b"\\" in raw:
            return True
        return any(scheme.encode() in raw for scheme in self._schemes)

    def _is_other(self, raw: bytes) -> bool:
        """True if the value is no handle and passes unchanged."""
        if not self._consumer.accept_other:
            return False
        text = readable_text(raw)
        return text is None or not text.removeprefix(FILE_PREFIX).startswith(self._schemes)

    def _reference(self, raw: bytes, start: int, label: str) -> Iterator[Reference]:
        if self._is_other(raw):
            return
        deliver = self._consumer.deliver
        if is_inline(raw):
            yield Reference(start, start + len(raw), "", str(start), "", "inline", label, deliver)
            return
        text = readable_text(raw) or ""
        bare = text
        if text.startswith(FILE_PREFIX) and text.removeprefix(FILE_PREFIX).startswith(self._schemes):
            bare = text.removeprefix(FILE_PREFIX)
            deliver = Deliver.FILE_URI if deliver is Deliver.PATH else deliver
        kind: Literal["upload", "artifact", "new"] = "upload"
        try:
            if bare.startswith(NEW_FILE_PREFIX):
                kind, sid, uid = "new", "", bare
                if deliver not in ON_DISK:
                    raise ArgumentProblem(
                        f"Argument {label}: got {_shown(raw)}, a name for a new file, where the tool takes a file's "
                        f"content. {self._advice}"
                    )
            elif bare.startswith(ARTIFACT_SCHEME) and self._consumer.uri_scheme != ARTIFACT_SCHEME:
                kind = "artifact"
                sid, uid = parse_artifact(bare)
            else:
                is_usual = bare.startswith(UPLOAD_SCHEME)  # accepted as well where another scheme is configured
                sid, uid = parse_upload(bare, UPLOAD_SCHEME if is_usual else self._consumer.uri_scheme)
        except HandleError as error:
            raise ArgumentProblem(f"Argument {label}: got {_shown(raw)}, {error}. {self._advice}") from None
        yield Reference(start, start + len(raw), sid, uid, text, kind, label, deliver)


# --- Delivering -----------------------------------------------------------------------------------------------------


def form(deliver: Deliver, path: str) -> str:
    """Returns the absolute path of a file as a tool takes it: as it is, or as its `file://` URI."""
    assert deliver in (Deliver.PATH, Deliver.FILE_URI), "the other forms are not made of a path"
    return FILE_PREFIX + quote(path) if deliver is Deliver.FILE_URI else path


def embedded(deliver: Deliver, data: bytes, mime_type: str, *, label: str) -> str:
    """Returns a file's content as a tool takes it: as text, in base64, or as a data URI.

    Raises:
        ArgumentProblem: the content is to be text and is not UTF-8.
    """
    if deliver is Deliver.TEXT:
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise ArgumentProblem(
                f"Argument {label}: the file's content is to be passed as text, and it is not UTF-8 (byte "
                f"{data[error.start]:#04x} at offset {error.start}). Convert the file to UTF-8 and send it again."
            ) from None
    text = base64.b64encode(data).decode()
    if deliver is Deliver.DATA_URI:
        return f"data:{mime_type};base64,{text}"
    assert deliver is Deliver.BASE64, "the other forms are not made of content"
    return text


def deliveries(placed: Sequence[tuple[Reference, str]]) -> list[Edit]:
    """Returns the edits that replace each reference by a JSON string of the text beside it."""
    return [Edit(at.start, at.stop, msgspec.json.encode(text)) for at, text in placed]


# --- Output path ----------------------------------------------------------------------------------------------------


def requested_filename(params: bytes, argument: str) -> str | None:
    """Returns the caller's string in the output path argument; None if there is none."""
    try:
        places = walk(params, f"arguments.{argument}")
    except RemoteProtocolError:
        return None
    return text_of(params[places[0].start : places[0].stop]) if places and places[0].fits else None


def place_output(params: bytes, argument: str, path: str) -> bytes:
    """Returns the params with the output path argument set to `path`; objects missing on the way are made.

    Raises:
        ArgumentProblem: something on the way is neither an object nor null, or has a key twice.
    """
    return _set_at(params, ("arguments", *argument.split(".")), 0, msgspec.json.encode(path))


def _set_at(data: bytes, keys: tuple[str, ...], depth: int, value: bytes) -> bytes:
    if depth == len(keys):
        return value
    if data == b"null":
        data = b"{}"
    label = ".".join(keys[1:depth]) or "arguments"
    if not data.startswith(b"{"):
        raise ArgumentProblem(f"Argument {label}: got {_shown(data)}, expected an object.")
    try:
        below = take(data, members(data).get(keys[depth])) or b"null"
    except RemoteProtocolError as error:
        raise ArgumentProblem(f"Argument {label}: {error.message}.") from None
    return set_member(data, keys[depth], _set_at(below, keys, depth + 1, value))


def _places(params: bytes, path: str) -> list[Place]:
    try:
        return walk(params, path)
    except RemoteProtocolError as error:
        raise ArgumentProblem(f"Argument {path.removeprefix('arguments.')}: {error.message}.") from None


def _shown(raw: bytes) -> str:
    text = raw[: 4 * _SEEN_MAX].decode(errors="replace")
    return text if len(text) <= _SEEN_MAX else text[:_SEEN_MAX] + "…"
