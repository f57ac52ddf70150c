"""Any text is tried as a handle, a link, a path or a file name: only minted ones are accepted, and names are safe.

The first byte says where a valid link is changed, the second how; the rest is the text. Accepted outcomes:
`HandleError` for text that is no handle; a reason for a link that is not valid; a name that can be the last part of a
path on any system.
"""

from __future__ import annotations

import re
from urllib.parse import quote

from isthmus.core.base.plan import UPLOAD_SCHEME
from isthmus.core.files.calls.paths_in_text import CANDIDATES_MAX, mentions, reads_as_path, spellings
from isthmus.core.files.store.filenames import NAME_MAX_BYTES, is_text, mime_type_of, safe_filename, with_suffix
from isthmus.core.files.store.handles import (
    ARTIFACT_SCHEME,
    HandleError,
    format_artifact,
    format_upload,
    parse_artifact,
    parse_upload,
)
from isthmus.core.files.store.links import (
    BadLink,
    UploadGrant,
    check_download,
    check_resumable,
    read_upload,
    sign_download,
    sign_resumable,
    sign_upload,
)

KEY = b"the key of this target"
ONE, OTHER = "0123456789abcdef" * 2, "fedcba9876543210" * 2


def test_one_input(data: bytes) -> None:
    at, by, rest = data[0] if data else 0, data[1] if len(data) > 1 else 0, data[2:]
    text = rest.decode("utf-8", "surrogateescape")
    check_handles(text)
    check_links(text, at, by)
    check_names(text, rest)
    check_paths(text)


def check_handles(text: str) -> None:
    try:
        ids = parse_upload(text, UPLOAD_SCHEME)
    except HandleError:
        pass
    else:
        assert text.startswith(format_upload(*ids))
    try:
        ids = parse_artifact(text)
    except HandleError:
        pass
    else:
        assert text.startswith(f"{ARTIFACT_SCHEME}sessions/{ids[0]}/{ids[1]}")
    assert parse_artifact(format_artifact(ONE, OTHER, text)) == (ONE, OTHER)
    assert parse_upload(
        format_upload(ONE, OTHER) + "/" + (quote(text, safe="", errors="replace") or "x"), UPLOAD_SCHEME
    )


def check_links(text: str, at: int, by: int) -> None:
    """Checks that a link with one character changed, or with this text as one of its values, is refused."""
    upload = sign_upload(KEY, server="ops", grant=UploadGrant(sid=ONE, nonce=OTHER, expires_at_unix=2000))
    draft = sign_resumable(KEY, server="ops", draft=ONE, expires_at_unix=2000)
    name = text.replace("\n", " ")
    download = sign_download(KEY, server="ops", sid=ONE, artifact=OTHER, filename=name, expires_at_unix=2000)

    def refusals(query: dict[str, str], now_unix: float = 1000) -> list[str | None]:
        found = read_upload([KEY], query, server="ops", now_unix=now_unix)
        return [
            found.fault if isinstance(found, BadLink) else None,
            check_resumable([KEY], query, server="ops", draft=ONE, now_unix=now_unix),
            check_download([KEY], query, server="ops", sid=ONE, artifact=OTHER, filename=name, now_unix=now_unix),
        ]

    for i, query in enumerate((upload, draft, download)):
        assert [refusal is None for refusal in refusals(query)] == [j == i for j in range(3)]
        assert refusals(query, 3000)[i] == "expired"
        key = sorted(query)[at % len(query)]
        old = query[key]
        place = at % len(old)
        changed = old[:place] + chr(ord(old[place]) ^ by) + old[place + 1 :]
        for value in (changed, text):
            other = {**query, key: value}
            assert value == old or None not in refusals(other)


def check_names(text: str, head: bytes) -> None:
    for fallback in ("", text):
        name = safe_filename(text, fallback)
        assert 1 <= len(name.encode()) <= NAME_MAX_BYTES
        assert not re.search(r"[/\\:\x00-\x1f\x7f]", name)
        assert name not in (".", "..") and not name.startswith(".")
        assert safe_filename(name, "x") == name
        for declared in (None, text):
            mime = mime_type_of(name, head[:512], declared)
            assert re.fullmatch(r"[a-z0-9!#$&^_.+-]+/[a-z0-9!#$&^_.+-]+", mime)
            assert isinstance(is_text(mime), bool)
            suffixed = with_suffix(name, mime)
            assert len(suffixed.encode()) <= NAME_MAX_BYTES
            assert safe_filename(suffixed, "x") == suffixed


def check_paths(text: str) -> None:
    found = mentions(text, ())
    assert len(found) <= CANDIDATES_MAX
    assert all(reading and "\0" not in reading for readings in found for reading in readings)
    assert len(set(spellings(text))) == len(spellings(text))
    assert isinstance(reads_as_path(text), bool)
