"""Signed links: to upload, to download one file, and to go on with a resumable upload.

A link is a capability: a client that has it may do the one thing it names until it expires. So links are signed and
short-lived, and an upload link works once. A link holds all that it grants, so any process that has the key serves it.

The first key signs, and all are accepted. To change the key, put a new one in front and remove the old one when its
last link has expired.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from ...base.ids import NAME_BYTES

UPLOAD_GRANT_MAX: Final = 2048
"""Characters of the grant in an upload link. It holds the caller's name and the name of a tool, beside 80 characters.
At it: an upload tool answers with an error, and a longer link is refused: 403 `bad_credential`."""

_EXPIRY: Final = re.compile(r"[1-9][0-9]{0,11}")
_SIGNATURE: Final = re.compile(r"[0-9a-f]{64}|[A-Za-z0-9_-]{22}")
_GRANT: Final = re.compile(r"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]{22})")
_OWNER_TAG_BYTES: Final = 6


# --- Upload links ---------------------------------------------------------------------------------------------------


class UploadGrant(msgspec.Struct, frozen=True, kw_only=True):
    """The permission that an upload link carries: one upload into a session.

    Attributes:
        sid: public name of the session that the upload is for.
        nonce: a random name. It is used up by the first upload that succeeds.
        expires_at_unix: whole seconds.
        principal: the caller that the link was given to; the owner of the upload.
        is_bearer: the link is valid whether or not the session is open.
        owner_tag: stands for the owner of the session (see `core.base.budget`): it can be compared, but not read.
            "" if there is none.
        tool: the name that the client has for the tool that gave the link, if it is another than the server has.
    """

    sid: str
    nonce: str
    expires_at_unix: int
    principal: str = ""
    is_bearer: bool = False
    owner_tag: str = ""
    tool: str = ""


class _Fields(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A grant as it is encoded: names as bytes, which is half as long as hexadecimal."""

    sid: bytes
    nonce: bytes
    expires_at_unix: int
    principal: bytes
    is_bearer: bool
    owner_tag: str
    tool: str


class BadLink(NamedTuple):
    """An upload link that is refused.

    Attributes:
        fault: why, in one word for the log: "missing", "malformed", "signature" or "expired".
        tool: that of the grant, if the link has expired; else "".
    """

    fault: str
    tool: str = ""


class LinkTooLong(Exception):
    """Raised when a grant would have more than `UPLOAD_GRANT_MAX` characters."""


def owner_tag(key: bytes, owner: str) -> str:
    """Returns the text that stands for an owner in a grant; "" for none."""
    if not owner:
        return ""
    digest = hmac.new(key, b"isthmus owner tag\n" + owner.encode(errors="surrogatepass"), hashlib.sha256).digest()
    return _base64(digest[:_OWNER_TAG_BYTES])


def sign_upload(key: bytes, *, server: str, grant: UploadGrant) -> dict[str, str]:
    """Returns the query parameters of a link that allows what `grant` says, at one server.

    Raises:
        LinkTooLong: the grant is too long for a link.
    """
    fields = _Fields(
        bytes.fromhex(grant.sid),
        bytes.fromhex(grant.nonce),
        grant.expires_at_unix,
        grant.principal.encode(errors="surrogatepass"),
        grant.is_bearer,
        grant.owner_tag,
        grant.tool,
    )
    payload = _base64(msgspec.msgpack.encode(fields))
    text = f"{payload}.{_shortened(_signature(key, 'upload', server, payload))}"
    if len(text) > UPLOAD_GRANT_MAX:
        raise LinkTooLong
    return {"grant": text}


def read_upload(
    keys: Sequence[bytes], query: Mapping[str, str], *, server: str, now_unix: float
) -> UploadGrant | BadLink:
    """Returns what an upload link grants, or why it is refused. Earlier use is not checked here."""
    text = query.get("grant")
    if text is None:
        return BadLink("missing")
    match = _GRANT.fullmatch(text) if len(text) <= UPLOAD_GRANT_MAX else None
    if match is None:
        return BadLink("malformed")
    payload = match[1]
    if not _is_signed(keys, match[2], "upload", server, payload):
        return BadLink("signature")
    try:
        fields = msgspec.msgpack.decode(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)), type=_Fields)
        principal = fields.principal.decode(errors="surrogatepass")
    except (msgspec.DecodeError, ValueError):  # signed by another release, under the same key
        return BadLink("malformed")
    if not len(fields.sid) == len(fields.nonce) == NAME_BYTES:
        return BadLink("malformed")
    if now_unix > fields.expires_at_unix:
        return BadLink("expired", fields.tool)
    return UploadGrant(
        sid=fields.sid.hex(),
        nonce=fields.nonce.hex(),
        expires_at_unix=fields.expires_at_unix,
        principal=principal,
        is_bearer=fields.is_bearer,
        owner_tag=fields.owner_tag,
        tool=fields.tool,
    )


# --- Links to files and drafts --------------------------------------------------------------------------------------


def sign_download(
    key: bytes, *, server: str, sid: str, artifact: str, filename: str, expires_at_unix: int
) -> dict[str, str]:
    """Returns the query parameters of a link that allows reading one artifact under one name until it expires. Models
    read and repeat it, so it is short."""
    assert "\n" not in filename, "file names are made safe before they are signed"
    expiry = str(expires_at_unix)
    return {
        "exp": expiry,
        "sig": _shortened(_signature(key, "artifact", server, sid, artifact, filename, expiry)),
    }


def check_download(
    keys: Sequence[bytes],
    query: Mapping[str, str],
    *,
    server: str,
    sid: str,
    artifact: str,
    filename: str,
    now_unix: float,
) -> str | None:
    """Returns why a download link is refused, in one word for the log: "missing", "malformed", "signature" or
    "expired"; None if it is good. Longer names of the parameters are those of links that were given out before."""
    expiry, signature = (query.get(name, query.get(f"mcp_artifact_{name}")) for name in ("exp", "sig"))
    if expiry is None or signature is None:
        return "missing"
    return _check(keys, expiry, signature, now_unix, "artifact", server, sid, artifact, filename, expiry)


def sign_resumable(key: bytes, *, server: str, draft: str, expires_at_unix: int) -> dict[str, str]:
    """Returns the query parameters of a link that allows requests about one resumable upload until it expires."""
    expiry = str(expires_at_unix)
    return {"mcp_tus_exp": expiry, "mcp_tus_sig": _signature(key, "draft", server, draft, expiry)}


def check_resumable(
    keys: Sequence[bytes], query: Mapping[str, str], *, server: str, draft: str, now_unix: float
) -> str | None:
    """Returns why the link of a resumable upload is refused, as `check_download` does."""
    expiry, signature = query.get("mcp_tus_exp"), query.get("mcp_tus_sig")
    if expiry is None or signature is None:
        return "missing"
    return _check(keys, expiry, signature, now_unix, "draft", server, draft, expiry)


def _check(
    keys: Sequence[bytes], expiry: str, signature: str, now_unix: float, purpose: str, *fields: str
) -> str | None:
    if not (_EXPIRY.fullmatch(expiry) and _SIGNATURE.fullmatch(signature)):
        return "malformed"
    if not _is_signed(keys, signature, purpose, *fields):
        return "signature"
    return "expired" if now_unix > int(expiry) else None


def _is_signed(keys: Sequence[bytes], signature: str, purpose: str, *fields: str) -> bool:
    found = False
    for key in keys:  # all of them, so that the time does not tell which
        expected = _signature(key, purpose, *fields)
        expected = expected if len(signature) == len(expected) else _shortened(expected)
        found |= hmac.compare_digest(signature, expected)
    return found


def _signature(key: bytes, purpose: str, *fields: str) -> str:
    """Returns the HMAC-SHA256 of the fields, joined by newlines, in hexadecimal.

    What is signed contains no newline. Text with as many newlines as there are fields can be split only one way, so a
    field that arrives with a newline never matches.
    """
    signed = "\n".join((f"isthmus {purpose} link 1", *fields))
    return hmac.new(key, signed.encode(errors="surrogatepass"), hashlib.sha256).hexdigest()


def _shortened(signature: str) -> str:
    """Returns the first half of a signature, which is 128 bits, as 22 characters."""
    return _base64(bytes.fromhex(signature)[:16])


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
