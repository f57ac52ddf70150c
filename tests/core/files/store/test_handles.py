"""Tests of handles: they round-trip, and nothing else parses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.files.store.handles import (
    HandleError,
    format_artifact,
    format_upload,
    parse_artifact,
    parse_upload,
)

SID, UID = "0" * 31 + "a", "0123456789abcdef" * 2
IDS = st.binary(min_size=16, max_size=16).map(bytes.hex)
FILENAMES = st.text(min_size=1, max_size=30)


@given(sid=IDS, uid=IDS, scheme=st.sampled_from(["upload://", "file+up://", "u:"]))
def test_upload_handles_round_trip(sid: str, uid: str, scheme: str) -> None:
    handle = format_upload(sid, uid, scheme)
    assert parse_upload(handle, scheme) == (sid, uid)
    assert parse_upload(handle + "/a b.txt", scheme) == (sid, uid)


@given(sid=IDS, aid=IDS, filename=FILENAMES)
def test_artifact_uris_round_trip_under_any_name(sid: str, aid: str, filename: str) -> None:
    uri = format_artifact(sid, aid, filename)
    assert uri.isascii()
    assert uri.count("/") == 5
    assert parse_artifact(uri) == (sid, aid)


@pytest.mark.parametrize("ending", ["", "/", "/a/b", "/%2e%2e"])
def test_the_name_in_an_artifact_uri_does_not_matter(ending: str) -> None:
    assert parse_artifact(f"artifact://sessions/{SID}/{UID}{ending}") == (SID, UID)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/etc/hostname",
        "upload://",
        f"upload://sessions/{SID}",
        f"upload://sessions/{SID}/",
        f"upload://sessions/{SID}/{UID}/",
        f"upload://sessions/{SID}/{UID}/a/b",
        f"upload://sessions/{SID}/{UID}\n",
        f" upload://sessions/{SID}/{UID}",
        f"UPLOAD://sessions/{SID}/{UID}",
        f"upload://sessions/{SID.upper()}/{UID}",
        f"upload://sessions/{SID}/nope",
        f"upload://sessions/../{UID}",
        f"upload://sessions/{SID}/..",
        f"upload://sessions/{SID}/{UID}0",
        f"upload://other/{SID}/{UID}",
        f"artifact://sessions/{SID}/{UID}",
        f"upload://sessions/{'٠' * 32}/{UID}",
    ],
)
def test_nothing_else_is_an_upload_handle(text: str) -> None:
    with pytest.raises(HandleError):
        parse_upload(text, "upload://")


@given(text=st.text(st.characters(exclude_categories=())))
def test_any_text_parses_or_is_refused(text: str) -> None:
    for parse in (lambda: parse_upload(text, "upload://"), lambda: parse_artifact(text)):
        with pytest.raises(HandleError):
            parse()
