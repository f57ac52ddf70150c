"""Tests of signed links: each is valid only for what it was signed for, and an upload link says what it grants."""

from __future__ import annotations

import base64
import hmac
import string

import msgspec
import pytest
from each_row import each_row
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.files.store.links import (
    UPLOAD_GRANT_MAX,
    BadLink,
    LinkTooLong,
    UploadGrant,
    check_download,
    check_resumable,
    owner_tag,
    read_upload,
    sign_download,
    sign_resumable,
    sign_upload,
)

SID, UID = "0" * 31 + "a", "0123456789abcdef" * 2
KEY, OLDER = b"k" * 32, b"o" * 32
KEYS = (KEY,)
GRANT = UploadGrant(sid=SID, nonce=UID, expires_at_unix=1000, principal="jwt:https://i.example|ann", tool="x_get_url")
IDS = st.binary(min_size=16, max_size=16).map(bytes.hex)
TEXTS = st.text(st.characters(exclude_categories=()), max_size=40)


@given(
    grant=st.builds(
        UploadGrant,
        sid=IDS,
        nonce=IDS,
        expires_at_unix=st.integers(1, 2**40),
        principal=TEXTS,
        is_bearer=st.booleans(),
        owner_tag=st.sampled_from(["", owner_tag(KEY, "ann")]),
        tool=st.text(max_size=64),
    )
)
def test_an_upload_link_says_what_it_grants_until_it_expires(grant: UploadGrant) -> None:
    query = sign_upload(KEY, server="files", grant=grant)
    (text,) = query.values()
    assert set(text) <= set(string.ascii_letters + string.digits + "-_."), "it needs no escapes in a URL or a shell"
    assert read_upload(KEYS, query, server="files", now_unix=grant.expires_at_unix) == grant
    late = read_upload(KEYS, query, server="files", now_unix=grant.expires_at_unix + 0.5)
    assert late == BadLink("expired", grant.tool)


def test_an_upload_link_is_valid_for_one_server_and_one_key() -> None:
    query = sign_upload(KEY, server="files", grant=GRANT)
    assert read_upload(KEYS, query, server="other", now_unix=1) == BadLink("signature")
    assert read_upload((OLDER,), query, server="files", now_unix=1) == BadLink("signature")
    assert read_upload((OLDER, KEY), query, server="files", now_unix=1) == GRANT
    assert read_upload((), query, server="files", now_unix=1) == BadLink("signature")


@given(data=st.data())
def test_an_altered_upload_link_is_refused(data: st.DataObject) -> None:
    text = sign_upload(KEY, server="files", grant=GRANT)["grant"]
    at = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.sampled_from(string.ascii_letters + string.digits + "-_.+ é"))
    altered = text[:at] + other + text[at + 1 :]
    found = read_upload(KEYS, {"grant": altered}, server="files", now_unix=1)
    assert found == GRANT if altered == text else isinstance(found, BadLink)


@each_row(
    ("query", "fault"),
    [
        ({}, "missing"),
        ({"mcp_upload_nonce": UID}, "missing"),
        ({"grant": ""}, "malformed"),
        ({"grant": "."}, "malformed"),
        ({"grant": "AAAA." + "A" * 21}, "malformed"),
        ({"grant": "AAAA." + "A" * 23}, "malformed"),
        ({"grant": "AA==." + "A" * 22}, "malformed"),
        ({"grant": "AAAA." + "A" * 22 + "\n"}, "malformed"),
        ({"grant": "AAAA." + "A" * 22}, "signature"),
    ],
)
def test_the_fault_of_an_upload_link_is_told(query: dict[str, str], fault: str) -> None:
    assert read_upload(KEYS, query, server="files", now_unix=1) == BadLink(fault)


@pytest.mark.parametrize(
    "fields",
    [
        (),
        "text",
        (bytes(15), bytes(16), 1000, b"", False, "", ""),
        (bytes(16), bytes(17), 1000, b"", False, "", ""),
        (bytes(16), bytes(16), 1000, b"\xff", False, "", ""),
        (bytes(16), bytes(16), "1000", b"", False, "", ""),
        (bytes(16), bytes(16), 1000, b"", False, "", "", 1),
    ],
)
def test_a_signed_grant_of_another_release_is_malformed(fields: object) -> None:
    payload = base64.urlsafe_b64encode(msgspec.msgpack.encode(fields)).decode().rstrip("=")
    digest = hmac.digest(KEY, f"isthmus upload link 1\nfiles\n{payload}".encode(), "sha256")[:16]
    text = f"{payload}.{base64.urlsafe_b64encode(digest).decode().rstrip('=')}"
    assert read_upload(KEYS, {"grant": text}, server="files", now_unix=1) == BadLink("malformed")


def test_a_grant_that_is_too_long_is_refused() -> None:
    """A grant above the bound is neither signed nor read."""
    fitting = max(n for n in range(UPLOAD_GRANT_MAX) if _grant_of(n) is not None)
    text = _grant_of(fitting)
    assert text is not None
    assert UPLOAD_GRANT_MAX - 4 <= len(text) <= UPLOAD_GRANT_MAX
    assert isinstance(read_upload(KEYS, {"grant": text}, server="files", now_unix=1), UploadGrant)
    long = "A" * (UPLOAD_GRANT_MAX - 22) + "." + "A" * 22
    assert read_upload(KEYS, {"grant": long}, server="files", now_unix=1) == BadLink("malformed")


def _grant_of(name_chars: int) -> str | None:
    grant = UploadGrant(sid=SID, nonce=UID, expires_at_unix=1000, principal="p" * name_chars)
    try:
        return sign_upload(KEY, server="files", grant=grant)["grant"]
    except LinkTooLong:
        return None


def test_a_tag_tells_owners_apart_and_names_none() -> None:
    assert owner_tag(KEY, "") == ""
    assert owner_tag(KEY, "ann") == owner_tag(KEY, "ann") != owner_tag(KEY, "bob")
    assert owner_tag(KEY, "ann") != owner_tag(OLDER, "ann")
    assert "ann" not in owner_tag(KEY, "ann")


def test_a_link_to_a_draft_is_valid_for_that_draft_under_any_of_the_keys() -> None:
    query = sign_resumable(KEY, server="files", draft=UID, expires_at_unix=1000)
    assert check_resumable((OLDER, KEY), query, server="files", draft=UID, now_unix=1000) is None
    assert check_resumable(KEYS, query, server="files", draft=UID, now_unix=1001) == "expired"
    assert check_resumable(KEYS, query, server="files", draft=SID, now_unix=1) == "signature"
    assert check_resumable(KEYS, {}, server="files", draft=UID, now_unix=1) == "missing"


FIELDS = {"server": "files", "sid": SID, "artifact": UID, "filename": "a b.txt"}


def test_a_download_link_is_valid_for_one_artifact_under_one_name() -> None:
    query = sign_download(KEY, **FIELDS, expires_at_unix=1000)
    assert set(query) == {"exp", "sig"}
    assert check_download(KEYS, query, **FIELDS, now_unix=1000) is None
    assert check_download(KEYS, query, **FIELDS, now_unix=1001) == "expired"
    assert check_download(KEYS, {}, **FIELDS, now_unix=1) == "missing"
    for name in FIELDS:
        assert check_download(KEYS, query, **(FIELDS | {name: "x"}), now_unix=1) == "signature"


def test_fields_cannot_be_shifted_across_their_border() -> None:
    """A path that joins to the same text as a signed one is still another path."""
    query = sign_download(KEY, **FIELDS, expires_at_unix=1000)
    shifted = {"server": f"files\n{SID}", "sid": UID, "artifact": "a b.txt", "filename": "1000"}
    assert check_download(KEYS, query, **shifted, now_unix=1) == "signature"
    merged = FIELDS | {"artifact": "", "filename": f"{UID}\na b.txt"}
    assert check_download(KEYS, query, **merged, now_unix=1) == "signature"


def test_a_signature_covers_its_purpose_and_every_field() -> None:
    """The expected signature is made by the standard library alone, so links signed by one version are valid in the
    next."""

    def signed(purpose: str, *fields: str) -> bytes:
        return hmac.digest(KEY, "\n".join((f"isthmus {purpose} link 1", *fields)).encode(), "sha256")

    payload, _, signature = sign_upload(KEY, server="files", grant=GRANT)["grant"].partition(".")
    assert base64.urlsafe_b64decode(signature + "==") == signed("upload", "files", payload)[:16]
    query = sign_download(KEY, **FIELDS, expires_at_unix=1000)
    whole = signed("artifact", "files", SID, UID, "a b.txt", "1000")
    assert query["sig"] == base64.urlsafe_b64encode(whole)[:21].decode() + query["sig"][21:]
    assert base64.urlsafe_b64decode(query["sig"] + "==") == whole[:16]
    older = {"mcp_artifact_exp": query["exp"], "mcp_artifact_sig": whole.hex()}
    assert check_download(KEYS, older, **FIELDS, now_unix=1) is None, "links were so once"


@each_row("wrong", ["A" * 22, "A" * 21, "A" * 23, "é" * 22, "", "+" * 22])
def test_a_short_signature_is_compared_in_full(wrong: str) -> None:
    query = sign_download(KEY, **FIELDS, expires_at_unix=1000)
    refused = "signature" if wrong == "A" * 22 else "malformed"
    assert check_download(KEYS, query | {"sig": wrong}, **FIELDS, now_unix=1) == refused
    good = query["sig"]
    for index in range(21):
        altered = good[:index] + ("B" if good[index] == "A" else "A") + good[index + 1 :]
        assert check_download(KEYS, query | {"sig": altered}, **FIELDS, now_unix=1) == "signature"
