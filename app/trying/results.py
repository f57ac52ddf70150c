"""Results of calls, resources and prompts: the texts that are printed, and the files that can be saved."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

import msgspec

from ...core.files.store.filenames import safe_filename, with_suffix
from ..base.output import plain
from ..base.sizes import format_size
from .schemas import Json

WEB: Final = ("http", "https")


class File(NamedTuple):
    """Something in a result that is no text.

    Attributes:
        data: its bytes; None: they are read by `uri`.
        size_bytes: None if it is not known.
    """

    name: str
    mime: str
    data: bytes | None
    uri: str = ""
    size_bytes: int | None = None

    @property
    def label(self) -> str:
        """The name, type and size."""
        known = [self.mime, "" if self.size_bytes is None else format_size(self.size_bytes)]
        about = ", ".join(plain(one) for one in known if one)
        return f"{plain(self.uri or self.name)}{f' ({about})' if about else ''}"


class Shown(NamedTuple):
    """A result for people."""

    texts: list[str]
    files: list[File]
    is_error: bool = False


def shown_result(result: Json, tool: str) -> Shown:
    """Returns what a result of a tool holds. Its structured content is a text where there is no other."""
    texts: list[str] = []
    files: list[File] = []
    for block in _objects(result.get("content")):
        _add_block(block, tool, texts, files)
    structured = result.get("structuredContent")
    if structured is not None and not texts:
        texts.append(_as_json(structured))
    files += _artifacts(result.get("_meta"), {file.uri for file in files})
    return Shown(texts, files, result.get("isError") is True)


def shown_resource(result: Json, uri: str) -> Shown:
    """Returns what a resource holds."""
    texts: list[str] = []
    files: list[File] = []
    for item in _objects(result.get("contents")):
        _add_resource(item, uri, texts, files)
    return Shown(texts, files)


def shown_prompt(result: Json, prompt: str) -> Shown:
    """Returns the messages of a prompt, each under the role that it has."""
    texts: list[str] = []
    files: list[File] = []
    for message in _objects(result.get("messages")):
        content = message.get("content")
        inner: list[str] = []
        for block in _objects(content if isinstance(content, list) else [content]):
            before = len(files)
            _add_block(block, prompt, inner, files)
            inner += [f"[{file.label}]" for file in files[before:]]
        texts.append(f"{plain(str(message.get('role', '')))}:\n" + "\n".join(inner))
    return Shown(["\n\n".join(texts)] if texts else [], files)


def _add_block(block: Json, origin: str, texts: list[str], files: list[File]) -> None:
    match block.get("type"):
        case "text" if isinstance(block.get("text"), str):
            texts.append(block["text"])
        case "image" | "audio":
            files.append(_file(block.get("data"), block.get("mimeType"), origin))
        case "resource" if isinstance(block.get("resource"), dict):
            _add_resource(block["resource"], origin, texts, files)
        case "resource_link" if isinstance(block.get("uri"), str):
            files.append(_linked(block, block["uri"]))
        case _:
            texts.append(_as_json(block))


def _add_resource(resource: Json, origin: str, texts: list[str], files: list[File]) -> None:
    if isinstance(resource.get("text"), str):
        texts.append(resource["text"])
        return
    uri = resource.get("uri")
    name = _name_in(uri) if isinstance(uri, str) else ""
    files.append(_file(resource.get("blob"), resource.get("mimeType"), name or origin))


def _file(data: object, mime: object, name: str) -> File:
    mime = mime if isinstance(mime, str) else ""
    try:
        decoded = base64.b64decode(data) if isinstance(data, str) else b""
    except (binascii.Error, ValueError):
        decoded = b""
    return File(_named(name, mime), mime, decoded, "", len(decoded))


def _linked(link: Json, uri: str) -> File:
    mime, size, name = link.get("mimeType"), link.get("size"), link.get("name")
    mime = mime if isinstance(mime, str) else ""
    own = name if isinstance(name, str) and "." in name else _name_in(uri)
    return File(_named(own, mime), mime, None, uri, size if isinstance(size, int) else None)


def _artifacts(meta: object, known: set[str]) -> Iterator[File]:
    """Yields the files that isthmus made of what a tool wrote, where no link in the content names them."""
    if not isinstance(meta, dict):
        return
    for one in _objects(meta.get("artifacts") or [meta.get("artifact")]):
        uri = one.get("artifact_uri")
        if isinstance(uri, str) and uri not in known:
            size = {"size": one.get("size_bytes"), "mimeType": one.get("mime_type"), "name": one.get("filename")}
            yield _linked(size, uri)


def _named(name: str, mime: str) -> str:
    """Returns a name for a file in a folder of the user, with a suffix if its type has one."""
    return with_suffix(safe_filename(name, "file"), mime)


def _name_in(uri: str) -> str:
    try:
        path = urlsplit(uri).path
    except ValueError:
        return ""
    return unquote(path.rstrip("/").rpartition("/")[2])


def is_readable(file: File) -> bool:
    """True if the bytes of a file are here, or can be asked of the server."""
    return file.data is not None or file.uri.partition(":")[0].lower() not in WEB


def _objects(items: object) -> list[Json]:
    return [one for one in items if isinstance(one, dict)] if isinstance(items, list) else []


def _as_json(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
