"""Handles (`upload://`), artifact URIs (`artifact://`), and signed links to either.

A handle grants nothing by itself: `FileStore.find` decides who may use its file. A link is a capability: a client that
has it may do the one thing it names until it expires. So links are signed and short-lived, and an upload link works
once.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from ...base.ids import Entropy, is_minted, mint
from ...base.plan import UPLOAD_SCHEME
from .filenames import safe_filename

ARTIFACT_SCHEME: Final = "artifact://"
NEW_FILE_PREFIX: Final = "artifact://new/"
"""Beginning of the URI of a file that a tool is to write: the rest is its name, in subfolders where it has slashes."""
NEW_FILE_PARTS_MAX: Final = 16
"""Folders and the name in the URI of a new file. Real ones have up to three. At it: the call is refused with an error
result."""
NONCES_MAX: Final = 4096
"""Upload links that can be outstanding at once. Each lives for minutes. At it: the oldest unused link is refused from
then on: 403 `bad_credential`."""
NONCES_PER_OWNER_MAX: Final = 2048
"""Outstanding upload links of one principal or, where clients are not authenticated, of one address, so that nobody
displaces the links of others. At it: the owner's oldest unused link is refused from then on: 403 `bad_credential`."""
NONCES_PER_SESSION_MAX: Final = 64
"""Outstanding upload links of one session, so that no session displaces the links of others. At it: the session's
oldest unused link is refused from then on: 403 `bad_credential`."""

_UPLOAD_REST: Final = re.compile(r"sessions/([^/]+)/([^/]+)(?:/[^/]+)?")
_ARTIFACT_REST: Final = re.compile(r"sessions/([^/]+)/([^/]+)(?:/.*)?", re.DOTALL)
_EXPIRY: Final = re.compile(r"[1-9][0-9]{0,11}")
_SIGNATURE: Final = re.compile(r"[0-9a-f]{64}|[A-Za-z0-9_-]{22}")


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


# --- Signed links ---------------------------------------------------------------------------------------------------


def sign_upload(key: bytes, *, server: str, sid: str, nonce: str, expires_at_unix: int) -> dict[str, str]:
    """Returns the query parameters of a link that allows one upload into a session until it expires."""
    expiry = str(expires_at_unix)
    return {
        "mcp_upload_exp": expiry,
        "mcp_upload_nonce": nonce,
        "mcp_upload_sig": _signature(key, "upload", server, sid, expiry, nonce),
    }


def check_upload(key: bytes, query: Mapping[str, str], *, server: str, sid: str, now_unix: float) -> str | None:
    """Returns why a link is refused, in one word for the log: "missing", "malformed", "signature" or "expired"; None if
    it is good. Earlier use is not checked here, but by `Nonces`."""
    expiry, nonce, signature = (query.get(f"mcp_upload_{name}") for name in ("exp", "nonce", "sig"))
    if expiry is None or nonce is None or signature is None:
        return "missing"
    if not is_minted(nonce):
        return "malformed"
    return _check(key, expiry, signature, now_unix, "upload", server, sid, expiry, nonce)


def nonce_of(query: Mapping[str, str]) -> str | None:
    """Returns the nonce of an upload link if it has the form of one. Nothing else is checked."""
    nonce = query.get("mcp_upload_nonce", "")
    return nonce if is_minted(nonce) else None


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
    key: bytes,
    query: Mapping[str, str],
    *,
    server: str,
    sid: str,
    artifact: str,
    filename: str,
    now_unix: float,
) -> str | None:
    """Returns why a download link is refused, as `check_upload` does. Longer names of the parameters are those of links
    that were given out before."""
    expiry, signature = (query.get(name, query.get(f"mcp_artifact_{name}")) for name in ("exp", "sig"))
    if expiry is None or signature is None:
        return "missing"
    return _check(key, expiry, signature, now_unix, "artifact", server, sid, artifact, filename, expiry)


def sign_resumable(key: bytes, *, server: str, draft: str, expires_at_unix: int) -> dict[str, str]:
    """Returns the query parameters of a link that allows requests about one resumable upload until it expires."""
    expiry = str(expires_at_unix)
    return {"mcp_tus_exp": expiry, "mcp_tus_sig": _signature(key, "draft", server, draft, expiry)}


def check_resumable(key: bytes, query: Mapping[str, str], *, server: str, draft: str, now_unix: float) -> str | None:
    """Returns why the link of a resumable upload is refused, as `check_upload` does."""
    expiry, signature = query.get("mcp_tus_exp"), query.get("mcp_tus_sig")
    if expiry is None or signature is None:
        return "missing"
    return _check(key, expiry, signature, now_unix, "draft", server, draft, expiry)


def _check(key: bytes, expiry: str, signature: str, now_unix: float, purpose: str, *fields: str) -> str | None:
    if not (_EXPIRY.fullmatch(expiry) and _SIGNATURE.fullmatch(signature)):
        return "malformed"
    expected = _signature(key, purpose, *fields)
    if not hmac.compare_digest(signature, expected if len(signature) == len(expected) else _shortened(expected)):
        return "signature"
    return "expired" if now_unix > int(expiry) else None


def _signature(key: bytes, purpose: str, *fields: str) -> str:
    """Returns the HMAC-SHA256 of the fields, joined by newlines, in hexadecimal.

    What is signed contains no newline. Text with as many newlines as there are fields can be split only one way, so a
    field that arrives with a newline never matches.
    """
    signed = "\n".join((f"isthmus {purpose} link 1", *fields))
    return hmac.new(key, signed.encode(errors="surrogatepass"), hashlib.sha256).hexdigest()


def _shortened(signature: str) -> str:
    """Returns the first half of a signature, which is 128 bits, as 22 characters."""
    return base64.urlsafe_b64encode(bytes.fromhex(signature)[:16]).decode().rstrip("=")


class Grant(NamedTuple):
    """The purpose that an upload link was issued for.

    Attributes:
        expires_at: deadline on the caller's monotonic clock.
        principal: owner of the uploads, for a client without sessions; else the session's principal counts.
        is_bearer: the link is valid whether or not the session is alive; any client that has it may upload, and use
            the file.
        owner: the owner of the session that issued it, see `core.base.budget`.
        tool: the name that the client has for the tool that gave it; "" for the one that the server's clients see.
    """

    server: str
    sid: str
    expires_at: float
    principal: str = ""
    is_bearer: bool = False
    owner: str = ""
    tool: str = ""


class Nonces:
    """The upload links that can still be used. Each lasts until it is spent, expires, or is displaced by newer ones.

    A link that an upload under way uses is kept.
    """

    def __init__(self) -> None:
        self._grants: dict[str, Grant] = {}
        self._uses: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._grants)

    def mint(
        self,
        entropy: Entropy,
        *,
        server: str,
        sid: str,
        expires_at: float,
        principal: str = "",
        is_bearer: bool = False,
        owner: str = "",
        tool: str = "",
    ) -> str:
        """Returns a fresh nonce for one link. At a bound, the oldest unused link is dropped for it."""
        nonce = mint(entropy)
        own = [other for other, grant in self._grants.items() if grant.sid == sid]
        of_owner = [other for other, grant in self._grants.items() if owner and grant.owner == owner]
        if len(own) >= NONCES_PER_SESSION_MAX:
            self._drop_oldest(own)
        elif len(of_owner) >= NONCES_PER_OWNER_MAX:
            self._drop_oldest(of_owner)
        elif len(self._grants) >= NONCES_MAX:
            self._drop_oldest(list(self._grants))
        self._grants[nonce] = Grant(server, sid, expires_at, principal, is_bearer, owner, tool)
        return nonce

    def _drop_oldest(self, nonces: list[str]) -> None:
        # None if all are in use: then the bound is exceeded until an upload is over.
        found = next((nonce for nonce in nonces if nonce not in self._uses), None)
        if found is not None:
            del self._grants[found]

    def find(self, nonce: str) -> Grant | None:
        """Returns the grant that the nonce was minted for; None if there is none, or it is spent or dropped."""
        return self._grants.get(nonce)

    def begin(self, nonce: str) -> None:
        """Marks the nonce as used by an upload under way."""
        self._uses[nonce] = self._uses.get(nonce, 0) + 1

    def end(self, nonce: str) -> None:
        """Marks one upload with the nonce as over."""
        self._uses[nonce] -= 1
        if not self._uses[nonce]:
            del self._uses[nonce]

    def is_used(self, sid: str) -> bool:
        """True if an upload with a link of that session is under way."""
        return any(nonce in self._grants and self._grants[nonce].sid == sid for nonce in self._uses)

    def spend(self, nonce: str) -> None:
        """Uses the nonce up: its link stops working."""
        self._grants.pop(nonce, None)

    def drop_expired(self, now: float) -> None:
        """Drops the links that have expired, except those in use."""
        self._grants = {
            nonce: grant for nonce, grant in self._grants.items() if grant.expires_at >= now or nonce in self._uses
        }
