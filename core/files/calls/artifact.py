"""Artifacts in results: what a result says it wrote, and how the artifacts made of that are described in it.

`locate` lists what a result names or holds. `attach` adds to a result. What was there stays byte for byte, except that
its first text may get a line.
"""

from __future__ import annotations

import base64
import datetime
from collections.abc import Sequence
from typing import Final

import msgspec

from ...base.plan import ArtifactProducer, LocatorMode
from ...base.storage import FileSource, Source
from ...jsonrpc.append import add_items, add_members, readable_elements, readable_members, readable_text
from ...jsonrpc.splice import Edit, Span, elements, splice, take
from ..store.filenames import is_text
from .claims import claims_of, is_text_block
from .paths_in_text import CANDIDATES_MAX

_LATEST_UNIX: Final = 253_402_300_799  # the end of the year 9999, which is the last that RFC 3339 can write
_MESSAGE_MAX_CHARS: Final = 1000  # a longer text may be data, which a line would spoil


class Artifact(msgspec.Struct, frozen=True, kw_only=True):
    """A collected file, as clients see it.

    Attributes:
        version: how many artifacts were made of the same path in this session, this one included.
        replaces: the URI of the one before it; None for the first.
    """

    artifact_uri: str
    artifact_id: str
    filename: str
    mime_type: str
    size_bytes: int
    sha256: str
    expose_as_resource: bool
    expires_at_unix: float | None = None
    download_url: str | None = None
    version: int = 1
    replaces: str | None = None


def locate(result: bytes, producer: ArtifactProducer, allocated: str | None, limit: int) -> list[Source]:
    """Returns where the output of a finished `tools/call` may be, at most `limit` sources.

    In mode regex there is one source with every path the text names; structured gives one for each value; embedded one
    for each image, audio or resource block that can be decoded. `allocated` is the path put into the output argument,
    tried before the first file named. A result that says `isError` holds no output.

    Raises:
        re.error: a configured pattern does not compile, which reading the configuration should have refused.
    """
    claims = claims_of(result, producer.output_locator, arguments=None, allocated=None, limit=limit)
    if take(result, readable_members(result).get("isError")) == b"true":
        return []
    named = list(claims.named)
    if named and LocatorMode.REGEX in producer.output_locator.modes:
        named = [tuple(dict.fromkeys(path for paths in named for path in paths))[:CANDIDATES_MAX]]
    if allocated is not None:
        first = tuple(path for path in named[0] if path != allocated) if named else ()
        named[:1] = [(allocated, *first)]
    sources: list[Source] = [FileSource(paths) for paths in named]
    return [*sources, *claims.inline][:limit]


def attach(
    result: bytes,
    artifacts: Sequence[Artifact],
    *,
    resource_links: bool,
    has_texts: bool = True,
    may_extend: bool = False,
    raw: Sequence[bytes] = (),
    inline: Sequence[tuple[Artifact, str]] = (),
) -> bytes:
    """Returns the result with `_meta.artifact` for the first artifact and `_meta.artifacts` for all if there are
    several.

    Content grows, at its end, by the blocks in `raw`, a block with the text of each artifact in `inline`, a
    `resource_link` for each exposed artifact (with `resource_links`: 2025-06-18 server/tools, "Resource Links"), and at
    most one text for each: it has the download link if there is one, and the URI unless another text has it. A result
    that is no object is returned unchanged.

    With `resource_links` the text in `inline` is an embedded resource under the artifact's URI. Other clients, many of
    which show people only text blocks, get a text that begins with a line that names the artifact.

    Args:
        has_texts: False leaves out the texts of artifacts that have a `resource_link`.
        may_extend: a URI that no text has is added to the first text, as a line, if that is a short message.
    """
    described = [_describe(artifact) for artifact in artifacts]
    linked = [artifact for artifact in artifacts if resource_links and artifact.expose_as_resource]
    inlined = [_inlined(artifact, text, is_resource=resource_links) for artifact, text in inline]
    told = [artifact for artifact in artifacts if has_texts or artifact not in linked]
    spans = _texts_of(result)
    shown = [result[span.start : span.stop] for span in spans] + ([] if resource_links else inlined)
    first = readable_text(take(result, spans[0])) if spans and may_extend else None
    lines, texts = _told(told, shown, can_extend=first is not None and _is_message(first))
    if lines:
        separator = "" if not first or first.endswith("\n") else "\n"
        end = spans[0].stop - 1
        result = splice(result, [Edit(end, end, msgspec.json.encode(separator + "\n".join(lines))[1:-1])])
    blocks = [*raw, *inlined, *map(_link, linked), *map(_text_block, texts)]
    additions = {"artifact": described[0]} if described else {}
    if len(described) > 1:
        additions["artifacts"] = b"[" + b",".join(described) + b"]"
    return add_members(add_items(result, "content", blocks), "_meta", additions)


def attach_error(result: bytes, reason: str, *, is_told: bool = False) -> bytes:
    """Returns the result with `_meta.artifact_error`, for people: why a file it should have written was not
    collected. With `is_told` it is also a text block: models are shown no `_meta`."""
    if is_told:
        result = add_items(result, "content", [_text_block(f"Not transferred: {reason}.")])
    return add_members(result, "_meta", {"artifact_error": msgspec.json.encode(reason)})


def raw_block(filename: str, mime: str, data: bytes, uri: str) -> bytes:
    """Returns a content block that holds the file itself: image, audio, or an embedded resource under `uri`."""
    kind = "" if is_text(mime) else mime.partition("/")[0]  # SVG is passed as text, for clients that cannot draw it
    meta = {"filename": filename, "size_bytes": len(data)}
    if kind in ("image", "audio"):
        return msgspec.json.encode({"type": kind, "data": _base64(data), "mimeType": mime, "_meta": meta})
    return msgspec.json.encode({"type": "resource", "resource": resource_item(uri, mime, data), "_meta": meta})


def resource_item(uri: str, mime: str, data: bytes) -> dict[str, str]:
    """Returns `TextResourceContents` where the type is text and the bytes are UTF-8, else `BlobResourceContents`."""
    if is_text(mime):
        try:
            return {"uri": uri, "mimeType": mime, "text": data.decode()}
        except UnicodeDecodeError:
            pass
    return {"uri": uri, "mimeType": mime, "blob": _base64(data)}


# --- Writing --------------------------------------------------------------------------------------------------------


def _describe(artifact: Artifact) -> bytes:
    described: dict[str, object] = {
        "artifact_uri": artifact.artifact_uri,
        "artifact_id": artifact.artifact_id,
        "filename": artifact.filename,
        "mime_type": artifact.mime_type,
        "size_bytes": artifact.size_bytes,
        "sha256": artifact.sha256,
        "expose_as_resource": artifact.expose_as_resource,
    }
    if artifact.expires_at_unix is not None:
        described["expires_at"] = _rfc3339(artifact.expires_at_unix)
    if artifact.download_url is not None:
        described["download_url"] = artifact.download_url
    described["version"] = artifact.version
    if artifact.replaces is not None:
        described["replaces"] = artifact.replaces
    return msgspec.json.encode(described)


def _link(artifact: Artifact) -> bytes:
    return msgspec.json.encode(
        {
            "type": "resource_link",
            "uri": artifact.artifact_uri,
            "name": artifact.filename,
            "mimeType": artifact.mime_type,
            "size": artifact.size_bytes,
        }
    )


def _inlined(artifact: Artifact, text: str, *, is_resource: bool) -> bytes:
    if not is_resource:
        return _text_block(f"{artifact.artifact_uri}:\n{text}")
    resource = {"uri": artifact.artifact_uri, "mimeType": artifact.mime_type, "text": text}
    return msgspec.json.encode({"type": "resource", "resource": resource})


def _told(artifacts: Sequence[Artifact], shown: Sequence[bytes], *, can_extend: bool) -> tuple[list[str], list[str]]:
    """Returns the lines that the first text gets, and the texts that are added.

    Args:
        shown: the JSON of the other texts.
    """
    lines: list[str] = []
    added: list[str] = []
    for artifact in artifacts:
        uri, url = artifact.artifact_uri, artifact.download_url
        is_named = any(uri.encode() in text for text in shown)
        more = f" (version {artifact.version}; replaces {artifact.replaces})" if artifact.replaces else ""
        if can_extend and (not is_named or (more and url is None)):
            lines.append(f"File: {uri}{more}")
            is_named, more = True, ""
        if url is not None:
            added.append(f"Download{more}: {url}" if is_named else f"{uri}{more}, download: {url}")
        elif more or not is_named:
            added.append(f"{uri}{more}")
    return lines, added


def _texts_of(result: bytes) -> list[Span]:
    """Returns where the text of each text block lies."""
    spans: list[Span] = []
    content = readable_members(result).get("content")
    raw = b"" if content is None else result[content.start : content.stop]
    if content is None or not readable_elements(raw):
        return spans
    for start, stop in elements(raw):
        block = raw[start:stop]
        span = readable_members(block).get("text")
        if span is not None and is_text_block(block) and block[span.start : span.start + 1] == b'"':
            offset = content.start + start
            spans.append(Span(offset + span.start, offset + span.stop))
    return spans


def _is_message(text: str) -> bool:
    """True if a text speaks to its reader: it is neither JSON nor long."""
    if len(text) > _MESSAGE_MAX_CHARS:
        return False
    text = text.strip()
    return not (text.startswith(("{", "[")) and text.endswith(("}", "]")))


def _text_block(text: str) -> bytes:
    return msgspec.json.encode({"type": "text", "text": text})


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _rfc3339(at_unix: float) -> str:
    at = datetime.datetime.fromtimestamp(min(max(int(at_unix), 0), _LATEST_UNIX), tz=datetime.UTC)
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")
