"""Artifacts in results: what a result says it wrote, and how the artifacts made of that are described in it.

`locate` lists what a result names or holds. `attach` adds to a result and leaves what was there byte for byte.
"""

from __future__ import annotations

import base64
import datetime
from collections.abc import Sequence
from typing import Final

import msgspec

from ...base.plan import ArtifactProducer, LocatorMode
from ...base.storage import FileSource, Source
from ...jsonrpc.append import add_items, add_members, readable_members
from ...jsonrpc.splice import take
from ..store.filenames import is_text
from .claims import claims_of
from .paths_in_text import CANDIDATES_MAX

_LATEST_UNIX: Final = 253_402_300_799  # the end of the year 9999, which is the last that RFC 3339 can write


class Artifact(msgspec.Struct, frozen=True, kw_only=True):
    """A collected file, as clients see it."""

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
    raw: Sequence[bytes] = (),
    inline: Sequence[tuple[Artifact, str]] = (),
) -> bytes:
    """Returns the result with `_meta.artifact` for the first artifact and `_meta.artifacts` for all if there are
    several.

    Content grows, at its end, by the blocks in `raw`, a block with the text of each artifact in `inline`, a
    `resource_link` for each exposed artifact (with `resource_links`: 2025-06-18 server/tools, "Resource Links"), and a
    text with the link of each that can be downloaded. A result that is no object is returned unchanged.

    With `resource_links` the text is an embedded resource under the artifact's URI. Older clients, many of which show
    people only text blocks, get a text that begins with a line that names the artifact.
    """
    described = [_describe(artifact) for artifact in artifacts]
    blocks = list(raw)
    blocks.extend(_inlined(artifact, text, is_resource=resource_links) for artifact, text in inline)
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


def _text_block(text: str) -> bytes:
    return msgspec.json.encode({"type": "text", "text": text})


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _rfc3339(at_unix: float) -> str:
    at = datetime.datetime.fromtimestamp(min(max(int(at_unix), 0), _LATEST_UNIX), tz=datetime.UTC)
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")
