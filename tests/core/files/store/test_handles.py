"""Tests of handles and links: handles round-trip and nothing else parses, and a link is valid only for what it was
signed for."""

from __future__ import annotations

import base64
import hmac
import random

import pytest
from each_row import each_row
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.files.store.handles import (
    NONCES_MAX,
    NONCES_PER_OWNER_MAX,
    NONCES_PER_SESSION_MAX,
    HandleError,
    Nonces,
    check_download,
    check_upload,
    format_artifact,
    format_upload,
    nonce_of,
    parse_artifact,
    parse_upload,
    sign_download,
    sign_upload,
)

SID, UID, OTHER = "0" * 31 + "a", "0123456789abcdef" * 2, "f" * 32
KEY = b"k" * 32
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


def upload_query() -> dict[str, str]:
    return sign_upload(KEY, server="files", sid=SID, nonce=UID, expires_at_unix=1000)


def test_a_signed_upload_link_is_good_to_the_second_it_expires() -> None:
    query = upload_query()
    assert set(query) == {"mcp_upload_exp", "mcp_upload_nonce", "mcp_upload_sig"}
    assert nonce_of(query) == UID
    assert check_upload(KEY, query, server="files", sid=SID, now_unix=1000) is None
    assert check_upload(KEY, query, server="files", sid=SID, now_unix=1000.5) == "expired"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"mcp_upload_sig": None}, "missing"),
        ({"mcp_upload_exp": None}, "missing"),
        ({"mcp_upload_nonce": None}, "missing"),
        ({"mcp_upload_exp": "1e9"}, "malformed"),
        ({"mcp_upload_exp": "01000"}, "malformed"),
        ({"mcp_upload_exp": "1000\n"}, "malformed"),
        ({"mcp_upload_nonce": "x"}, "malformed"),
        ({"mcp_upload_sig": "é" * 64}, "malformed"),
        ({"mcp_upload_sig": "A" * 64}, "malformed"),
        ({"mcp_upload_exp": "9999"}, "signature"),
        ({"mcp_upload_nonce": OTHER}, "signature"),
        ({"mcp_upload_sig": "0" * 64}, "signature"),
    ],
)
def test_a_changed_upload_link_is_refused_with_its_reason(change: dict[str, str | None], reason: str) -> None:
    changed = {name: value for name, value in (upload_query() | change).items() if value is not None}
    assert check_upload(KEY, changed, server="files", sid=SID, now_unix=1) == reason


def test_an_upload_link_is_valid_for_one_server_session_and_key() -> None:
    query = upload_query()
    assert check_upload(KEY, query, server="other", sid=SID, now_unix=1) == "signature"
    assert check_upload(KEY, query, server="files", sid=OTHER, now_unix=1) == "signature"
    assert check_upload(b"z" * 32, query, server="files", sid=SID, now_unix=1) == "signature"


def test_a_malformed_nonce_is_none() -> None:
    assert nonce_of({}) is None
    assert nonce_of({"mcp_upload_nonce": "../../x"}) is None


FIELDS = {"server": "files", "sid": SID, "artifact": UID, "filename": "a b.txt"}


def test_a_download_link_is_valid_for_one_artifact_under_one_name() -> None:
    query = sign_download(KEY, **FIELDS, expires_at_unix=1000)
    assert set(query) == {"exp", "sig"}
    assert check_download(KEY, query, **FIELDS, now_unix=1000) is None
    assert check_download(KEY, query, **FIELDS, now_unix=1001) == "expired"
    assert check_download(KEY, {}, **FIELDS, now_unix=1) == "missing"
    for name in FIELDS:
        assert check_download(KEY, query, **(FIELDS | {name: "x"}), now_unix=1) == "signature"


def test_fields_cannot_be_shifted_across_their_border() -> None:
    """A path that joins to the same text as a signed one is still another path."""
    query = sign_download(KEY, **FIELDS, expires_at_unix=1000)
    shifted = {"server": f"files\n{SID}", "sid": UID, "artifact": "a b.txt", "filename": "1000"}
    assert check_download(KEY, query, **shifted, now_unix=1) == "signature"
    merged = FIELDS | {"artifact": "", "filename": f"{UID}\na b.txt"}
    assert check_download(KEY, query, **merged, now_unix=1) == "signature"


def test_a_signature_covers_its_purpose_and_every_field() -> None:
    """The expected signature is made by the standard library alone, so links signed by one version are valid in the
    next."""

    def signed(purpose: str, *fields: str) -> bytes:
        return hmac.digest(KEY, "\n".join((f"isthmus {purpose} link 1", *fields)).encode(), "sha256")

    assert upload_query()["mcp_upload_sig"] == signed("upload", "files", SID, "1000", UID).hex()
    query = sign_download(KEY, **FIELDS, expires_at_unix=1000)
    whole = signed("artifact", "files", SID, UID, "a b.txt", "1000")
    assert query["sig"] == base64.urlsafe_b64encode(whole)[:21].decode() + query["sig"][21:]
    assert base64.urlsafe_b64decode(query["sig"] + "==") == whole[:16]
    older = {"mcp_artifact_exp": query["exp"], "mcp_artifact_sig": whole.hex()}
    assert check_download(KEY, older, **FIELDS, now_unix=1) is None, "links were so once"


@each_row("wrong", ["A" * 22, "A" * 21, "A" * 23, "é" * 22, "", "+" * 22])
def test_a_short_signature_is_compared_in_full(wrong: str) -> None:
    query = sign_download(KEY, **FIELDS, expires_at_unix=1000)
    refused = "signature" if wrong == "A" * 22 else "malformed"
    assert check_download(KEY, query | {"sig": wrong}, **FIELDS, now_unix=1) == refused
    good = query["sig"]
    for index in range(21):
        altered = good[:index] + ("B" if good[index] == "A" else "A") + good[index + 1 :]
        assert check_download(KEY, query | {"sig": altered}, **FIELDS, now_unix=1) == "signature"


def test_a_nonce_is_spent_once() -> None:
    nonces = Nonces()
    nonce = nonces.mint(random.Random(1).randbytes, server="files", sid=SID, expires_at=10.0)
    grant = nonces.find(nonce)
    assert grant is not None
    assert (grant.server, grant.sid, grant.expires_at) == ("files", SID, 10.0)
    nonces.spend(nonce)
    assert nonces.find(nonce) is None
    nonces.spend(nonce)
    assert len(nonces) == 0


def test_expired_nonces_are_dropped_and_others_kept() -> None:
    nonces, entropy = Nonces(), random.Random(2).randbytes
    first = nonces.mint(entropy, server="a", sid=SID, expires_at=10.0)
    second = nonces.mint(entropy, server="a", sid=SID, expires_at=20.0)
    nonces.drop_expired(10.5)
    assert nonces.find(first) is None
    assert nonces.find(second) is not None


def test_the_oldest_nonce_gives_way_at_the_bound() -> None:
    nonces, entropy = Nonces(), random.Random(3).randbytes
    minted = [nonces.mint(entropy, server="a", sid=f"{n % 100}", expires_at=1.0) for n in range(NONCES_MAX + 1)]
    assert len(nonces) == NONCES_MAX
    assert nonces.find(minted[0]) is None
    assert nonces.find(minted[1]) is not None
    assert nonces.find(minted[-1]) is not None


def test_the_bound_of_an_owner_drops_only_its_own_links() -> None:
    """The number of its sessions does not matter."""
    nonces, entropy = Nonces(), random.Random(3).randbytes
    other = nonces.mint(entropy, server="a", sid=OTHER, expires_at=1.0, owner="principal bob")
    minted = [
        nonces.mint(entropy, server="a", sid=f"{n}", expires_at=1.0, owner="principal ann")
        for n in range(NONCES_PER_OWNER_MAX + 1)
    ]
    assert nonces.find(other) is not None
    assert [nonces.find(nonce) is None for nonce in minted] == [True] + [False] * NONCES_PER_OWNER_MAX


def test_the_bound_of_a_session_drops_only_its_own_links() -> None:
    nonces, entropy = Nonces(), random.Random(3).randbytes
    other = nonces.mint(entropy, server="a", sid=OTHER, expires_at=1.0)
    minted = [nonces.mint(entropy, server="a", sid=SID, expires_at=1.0) for _ in range(NONCES_PER_SESSION_MAX + 1)]
    assert nonces.find(other) is not None
    assert [nonces.find(nonce) is None for nonce in minted] == [True] + [False] * NONCES_PER_SESSION_MAX


def test_a_link_in_use_is_kept_until_its_uploads_are_over() -> None:
    """An upload under way is ended by neither the age of its link nor newer links."""
    nonces, entropy = Nonces(), random.Random(4).randbytes
    used = nonces.mint(entropy, server="a", sid=SID, expires_at=10.0)
    nonces.begin(used)
    nonces.begin(used)
    for _ in range(NONCES_PER_SESSION_MAX):
        nonces.mint(entropy, server="a", sid=SID, expires_at=20.0)
    nonces.end(used)
    nonces.drop_expired(15.0)
    assert nonces.find(used) is not None
    nonces.end(used)
    nonces.drop_expired(15.0)
    assert nonces.find(used) is None


def test_links_that_are_all_in_use_are_all_kept() -> None:
    """The bound is exceeded by one for the newest link."""
    entropy = random.Random(3).randbytes
    nonces = Nonces()
    for _ in range(NONCES_PER_SESSION_MAX):
        nonces.begin(nonces.mint(entropy, server="s", sid="a", expires_at=9.0))
    more = nonces.mint(entropy, server="s", sid="a", expires_at=9.0)
    assert len(nonces) == NONCES_PER_SESSION_MAX + 1
    last = nonces.mint(entropy, server="s", sid="a", expires_at=9.0)
    assert nonces.find(more) is None, "the only one that was not in use gave way"
    assert nonces.find(last) is not None
    assert len(nonces) == NONCES_PER_SESSION_MAX + 1
