"""Handles (`upload://`), artifact URIs (`artifact://`), and signed links to either.

A handle grants nothing by itself: `FileStore.find` decides who may use its file. A link is a capability: a client that
has it may do the one thing it names until it expires. So links are signed and short-lived, and an upload link works
once.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote, unquote

from ...base.ids import is_minted
from ...base.plan import UPLOAD_SCHEME
from .filenames import safe_filename

ARTIFACT_SCHEME: Final = "artifact://"
NEW_FILE_PREFIX: Final = "artifact://new/"
"""Beginning of the URI of a file that a tool is to write: the rest is its name, in subfolders where it has slashes."""
NEW_FILE_PARTS_MAX: Final = 16
"""Folders and the name in the URI of a new file. Real ones have up to three. At it: the call is refused with an error
result."""
_UPLOAD_REST: Final = re.compile(r"sessions/([^/]+)/([^/]+)(?:/[^/]+)?")
_ARTIFACT_REST: Final = re.compile(r"sessions/([^/]+)/([^/]+)(?:/.*)?", re.DOTALL)


class HandleError(ValueError):
    """Raised for text that is not a handle. The message says what was expected; it does not repeat the text."""


def format_upload(sid: str, uid: str, scheme: str = UPLOAD_SCHEME) -> str:
    """Returns the handle of an upload."""
    return f"{scheme}sessions/{sid}/{uid}"


def parse_upload(text: str, scheme: str) -> tuple[str, str]:
    """Returns the session id and upload id of a handle. A file name after them is accepted and ignored.

    Raises:
        HandleError: the text is anything else; both ids must have exactly the form that is minted here.
    """
    ids = _ids(text, scheme, _UPLOAD_REST)
    if ids is None:
        raise HandleError(f"expected an upload handle, {scheme}sessions/<session>/<upload>")
    return ids


def format_artifact(sid: str, aid: str, filename: str) -> str:
    """Returns the URI of an artifact, with its file name percent-encoded."""
    return f"{ARTIFACT_SCHEME}sessions/{sid}/{aid}/{quote(filename, safe='', errors='replace')}"


def parse_artifact(uri: str) -> tuple[str, str]:
    """Returns the session id and artifact id of a URI. Whatever follows them is ignored.

    Raises:
        HandleError: the text is anything else.
    """
    ids = _ids(uri, ARTIFACT_SCHEME, _ARTIFACT_REST)
    if ids is None:
        raise HandleError(f"expected an artifact URI, {ARTIFACT_SCHEME}sessions/<session>/<artifact>/<name>")
    return ids


def parse_new_file(uri: str) -> str:
    """Returns the path of a new file below the session's output folder, each part of it a safe name; it ends in a
    slash if the URI does, and then is a folder.

    Raises:
        HandleError: the text is anything else, has no name, or more than `NEW_FILE_PARTS_MAX` parts.
    """
    text = uri.removeprefix(NEW_FILE_PREFIX)
    decoded = unquote(text)
    # A name such as frame_%03d.png is a pattern for many names, and not percent-encoded.
    parts = (decoded if decoded.isprintable() else text).split("/") if uri.startswith(NEW_FILE_PREFIX) else []
    names = [part for part in parts if part.strip(" .")]
    if not names or len(names) > NEW_FILE_PARTS_MAX:
        raise HandleError(f"expected a name of up to {NEW_FILE_PARTS_MAX} parts, {NEW_FILE_PREFIX}<name>")
    path = "/".join(safe_filename(name, "file") for name in names)
    return path if parts[-1].strip(" .") else path + "/"


def _ids(text: str, scheme: str, rest: re.Pattern[str]) -> tuple[str, str] | None:
    match = rest.fullmatch(text, len(scheme)) if text.startswith(scheme) else None
    if match is None or not (is_minted(match[1]) and is_minted(match[2])):
        return None
    return match[1], match[2]
