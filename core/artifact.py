"""Files on their way out of a tool: what a result says it wrote, and what we say about it in turn.

Reading: `locate` lists what a result names or holds, without judging whether it exists or may be read; that is for
whoever touches the disk. Writing: `attach` adds to a result and leaves what was there byte for byte.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import posixpath
from collections.abc import Sequence
from typing import Final
from urllib.parse import unquote, urlsplit

import msgspec

from .dotted import walk
from .effects import FileSource, InlineSource, Source
from .enrich import add_items, add_members, readable_elements, readable_members, readable_text
from .errors import RemoteProtocolError
from .filename import is_text, safe_filename, suffix_of
from .pathtext import candidates, spellings
from .plan import ArtifactProducer, LocatorMode
from .rewrite import take

_LATEST_UNIX: Final = 253_402_300_799  # the end of the year 9999, which is the last that RFC 3339 can write


class Artifact(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was taken in, as clients are told of it."""

    artifact_uri: str
    artifact_id: str
    filename: str
    mime_type: str
    size_bytes: int
    sha256: str
    expose_as_resource: bool
    expires_at_unix: float | None = None
    download_url: str | None = None


def locate(result: bytes, producer: ArtifactProducer, allocated: str | None, limit: int) -> list[Source]:
    """Where the output of a finished `tools/call` may be, at most `limit` sources.

    In mode regex there is one source with every path the text names; structured gives one for each value; embedded
    one for each image, audio or resource block that can be decoded. `allocated` is the path put into the output
    argument, tried before the first file named. A result that says `isError` holds no output: the paths in it are
    those it complains about.

    Raises:
        re.error: a configured pattern does not compile, which reading the configuration should have refused.
    """
    spans = readable_members(result)
    if take(result, spans.get("isError")) == b"true":
        return []
    blocks = readable_elements(take(result, spans.get("content")))
    locator = producer.output_locator
    named: list[tuple[str, ...]] = []
    inline: list[Source] = []
    if LocatorMode.REGEX in locator.modes:
        texts = [_member_text(block, "text") for block in blocks if _member_text(block, "type") == "text"]
        named.append(candidates("\n".join(text for text in texts if text is not None), locator.output_path_regexes))
    elif LocatorMode.STRUCTURED in locator.modes and locator.output_path_key is not None:
        named.extend(_structured(result, locator.output_path_key))
    elif LocatorMode.EMBEDDED in locator.modes:
        inline = _embedded(blocks)
    if allocated is not None:
        first = tuple(path for path in named[0] if path != allocated) if named else ()
        named[:1] = [(allocated, *first)]
    sources: list[Source] = [FileSource(paths) for paths in named if paths]
    return (sources + inline)[:limit]


def attach(result: bytes, artifacts: Sequence[Artifact], *, resource_links: bool, raw: Sequence[bytes] = ()) -> bytes:
    """The result with `_meta.artifact` for the first artifact and `_meta.artifacts` for all if there are several.

    Content grows, at its end, by the blocks in `raw`, a `resource_link` for each exposed artifact (with
    `resource_links`: 2025-06-18 server/tools, "Resource Links"), and a text with the link of each that can be
    downloaded. A result that is no object comes back as it came.
    """
    described = [_describe(artifact) for artifact in artifacts]
    blocks = list(raw)
    if resource_links:
        blocks.extend(_link(artifact) for artifact in artifacts if artifact.expose_as_resource)
    blocks.extend(
        _text_block(f"{artifact.filename} ({artifact.size_bytes} bytes) can be downloaded from {artifact.download_url}")
        for artifact in artifacts
        if artifact.download_url is not None
    )
    additions = {"artifact": described[0]} if described else {}
    if len(described) > 1:
        additions["artifacts"] = b"[" + b",".join(described) + b"]"
    return add_members(add_items(result, "content", blocks), "_meta", additions)


def attach_error(result: bytes, reason: str) -> bytes:
    """The result with `_meta.artifact_error`, for people: why a file it should have written was not taken in."""
    return add_members(result, "_meta", {"artifact_error": msgspec.json.encode(reason)})


def tool_error(text: str) -> bytes:
    """A tool result that says the call failed."""
    return b'{"content":[%b],"isError":true}' % _text_block(text)


def raw_block(filename: str, mime: str, data: bytes, uri: str) -> bytes:
    """A content block that holds the file itself: image, audio, or an embedded resource under `uri`."""
    kind = "" if is_text(mime) else mime.partition("/")[0]  # SVG is text to whoever cannot draw it
    meta = {"filename": filename, "size_bytes": len(data)}
    if kind in ("image", "audio"):
        return msgspec.json.encode({"type": kind, "data": _base64(data), "mimeType": mime, "_meta": meta})
    return msgspec.json.encode({"type": "resource", "resource": resource_item(uri, mime, data), "_meta": meta})


def resource_item(uri: str, mime: str, data: bytes) -> dict[str, str]:
    """`TextResourceContents` where the type is text and the bytes are UTF-8, else `BlobResourceContents`."""
    if is_text(mime):
        try:
            return {"uri": uri, "mimeType": mime, "text": data.decode()}
        except UnicodeDecodeError:
            pass
    return {"uri": uri, "mimeType": mime, "blob": _base64(data)}


# --- Reading --------------------------------------------------------------------------------------------------------


def _structured(result: bytes, key: str) -> list[tuple[str, ...]]:
    try:
        places = walk(result, f"structuredContent.{key}")
    except RemoteProtocolError:
        return []
    values = [readable_text(result[place.start : place.stop]) for place in places if place.fits]
    return [tuple(spellings(value)) for value in values if value is not None]


def _embedded(blocks: Sequence[bytes]) -> list[Source]:
    found: list[Source] = []
    counts: dict[str, int] = {}
    for block in blocks:
        kind = _member_text(block, "type")
        if kind not in ("image", "audio", "resource"):
            continue
        held = take(block, readable_members(block).get("resource")) if kind == "resource" else block
        data = _held(held, kind)
        if data is None:
            continue
        counts[kind] = counts.get(kind, 0) + 1
        mime = _member_text(held, "mimeType")
        is_prose = kind == "resource" and _member_text(held, "text") is not None
        ending = suffix_of(mime or "") or ("txt" if is_prose else "bin")
        fallback = f"{kind}-{counts[kind]}.{ending}"
        uri = _member_text(held, "uri") if kind == "resource" else None
        found.append(InlineSource(data, safe_filename(_last_segment(uri or ""), fallback), mime))
    return found


def _held(held: bytes | None, kind: str) -> bytes | None:
    """The content of an image, audio or resource; None if there is none or its base64 is bad."""
    if kind == "resource" and (text := _member_text(held, "text")) is not None:
        return text.encode()
    encoded = _member_text(held, "blob" if kind == "resource" else "data")
    if encoded is None:
        return None
    try:
        return base64.b64decode("".join(encoded.split()), validate=True)  # some encoders break lines
    except (binascii.Error, ValueError):
        return None


def _last_segment(uri: str) -> str:
    try:
        return unquote(posixpath.basename(urlsplit(uri).path))
    except ValueError:  # such as an unclosed [ in the host
        return ""


def _member_text(data: bytes | None, key: str) -> str | None:
    return None if data is None else readable_text(take(data, readable_members(data).get(key)))


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


def _text_block(text: str) -> bytes:
    return msgspec.json.encode({"type": "text", "text": text})


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _rfc3339(at_unix: float) -> str:
    at = datetime.datetime.fromtimestamp(min(max(int(at_unix), 0), _LATEST_UNIX), tz=datetime.UTC)
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")
