"""Files of the user: uploads to a server behind isthmus, and what is saved of results."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from anyio import to_thread

from ..base.errors import ConfigError, Failed
from ..base.output import plain
from .schemas import Json, arguments_of
from .session import TrySession

PUT_SUFFIX: Final = "_put_file"
PUT_ARGUMENTS: Final = {"filename", "text", "base64", "more", "append_to"}
PART_BYTES: Final = 2 * 1024 * 1024
"""Bytes of a file in one call: less than the least that isthmus takes by default."""
COPIES_MAX: Final = 1000
"""Names that are tried for a file before it is given up."""


def put_tool(tools: Sequence[Json], tool: str) -> str:
    """Returns the name of the tool that takes files for another tool of the same server; "" if there is none."""
    found: list[str] = [
        one["name"]
        for one in tools
        if one["name"].endswith(PUT_SUFFIX) and arguments_of(one.get("inputSchema")).known.keys() >= PUT_ARGUMENTS
    ]
    alias, separator, _ = tool.partition("__")
    own = [name for name in found if separator and name.startswith(f"{alias}__")]
    return (own or ([] if separator and len(found) > 1 else found) or [""])[0]


def takers(tool: Json, put: str) -> list[str]:
    """Returns the arguments of a tool that take files, by what isthmus notes in their descriptions."""
    if not put:
        return []
    note = str(tool.get("description", "")).rpartition("\n\n")[2]
    known = arguments_of(tool.get("inputSchema")).known
    is_about = put in note and "names a file to read" in note
    before = note.partition("names a file to read")[0]
    return [
        name
        for name, argument in known.items()
        if put in argument.about or (is_about and (f"`{name}`" in before or before.endswith("Where an argument ")))
    ]


def read_file(path: str) -> bytes:
    """Returns the content of a file of the user.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        return Path(path).expanduser().read_bytes()
    except (OSError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{path} cannot be read: {reason}; for a value that begins with @ write :='\"@…\"'") from None


async def upload(session: TrySession, put: str, path: str, data: bytes) -> str:
    """Uploads a file in parts. Returns its handle.

    Raises:
        Failed: it is refused.
    """
    arguments: Json = {"filename": os.path.basename(path), "sha256": hashlib.sha256(data).hexdigest()}
    parts = [data[start : start + PART_BYTES] for start in range(0, len(data), PART_BYTES)] or [b""]
    for i, part in enumerate(parts):
        is_last = i == len(parts) - 1
        sent = {**arguments, "base64": base64.b64encode(part).decode(), "more": not is_last}
        result = await session.request("tools/call", {"name": put, "arguments": sent})
        known = result.get("structuredContent")
        if result.get("isError") or not isinstance(known, dict):
            texts = [str(one.get("text")) for one in result.get("content") or [] if isinstance(one, dict)]
            raise Failed(f"{path} cannot be uploaded: {' '.join(texts)}")
        if is_last:
            return str(known.get("upload_handle"))
        arguments = {**arguments, "append_to": known.get("upload_id")}
    raise AssertionError("a file has at least one part")


async def save(folder: str, name: str, data: bytes) -> str:
    """Writes a new file into a folder, which is made if it is missing. Returns its path; nothing is overwritten.

    Raises:
        Failed: it cannot be written.
    """
    return await to_thread.run_sync(_save, Path(folder).expanduser(), name, data)


def _save(folder: Path, name: str, data: bytes) -> str:
    stem, dot, suffix = name.rpartition(".")
    stem, suffix = (stem, dot + suffix) if stem else (name, "")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(COPIES_MAX):
            path = folder / (name if not number else f"{stem}-{number}{suffix}")
            try:
                with path.open("xb") as file:
                    file.write(data)
            except FileExistsError:
                continue
            return str(path)
    except OSError as error:
        raise Failed(f"{folder}: {plain(name)} cannot be written: {error.strerror or error}") from None
    raise Failed(f"{folder} has {COPIES_MAX} files with names like {plain(name)}: name another folder")
