"""Reads the end of an upstream channel: the reason, whether the server lost the session, and the error in the body.

`upstream/failures` decides what follows from that.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from ...base.errors import UPSTREAM_UNAVAILABLE, RemoteProtocolError
from ...base.events import Cause, End
from ...jsonrpc import envelope

NO_CONTENT: Final = 204
BAD_REQUEST: Final = 400
UNAUTHORIZED: Final = 401
NOT_FOUND: Final = 404
METHOD_NOT_ALLOWED: Final = 405
TOO_MANY_REQUESTS: Final = 429
INTERNAL_SERVER_ERROR: Final = 500

ABOUT_SESSION: Final = re.compile(r"session|initiali[sz]", re.IGNORECASE)
"""Finds words about a session or its initialization."""

WORDS_MAX_CHARS: Final = 200
"""Characters of a refusal's body that a message repeats: a sentence or two."""

_TITLE: Final = re.compile(r"<title[^>]*>([^<]*)", re.IGNORECASE)
_CREDENTIAL: Final = re.compile(r"\b(bearer|basic) \S|(token|key|secret|password)[\"']?\s*[=:]", re.IGNORECASE)
"""Finds words that a credential may follow, which the server repeats."""

_REASONS: Final = {
    End.DONE: "its reply ended without an answer",
    End.GONE: "it hung up",
    End.UNREACHABLE: "it cannot be reached",
    End.BROKEN: "the connection broke",
    End.TIMED_OUT: "it took too long",
}


def describe(cause: Cause) -> str:
    """Describes the end of a request, or of a server, for people."""
    if cause.detail:
        return cause.detail
    return f"it answered with HTTP status {cause.status}" if cause.end is End.REFUSED else _REASONS[cause.end]


def words_in(cause: Cause) -> str:
    """Returns what the server says in the body of a refusal, on one line and at most `WORDS_MAX_CHARS` long: the
    message of an error, else the text. "" if it says nothing; of a page for people nothing is taken."""
    text = cause.body.decode(errors="replace").strip() if cause.end is End.REFUSED else ""
    error = error_in(cause)
    if error is not None:
        text = envelope.text_of(envelope.member_of(error, "message")) or ""
    if text.startswith("<"):
        return ""
    return clip(text)


def first_words_in(cause: Cause) -> str:
    """Returns what a refusal says to people, bounded as by `words_in`: the message of an error, in any JSON; the title
    of a page; else the first line. Of a text that names a credential nothing is taken."""
    text = words_in(cause)
    body = cause.body.decode(errors="replace").strip() if cause.end is End.REFUSED else ""
    if body.startswith("<"):
        title = _TITLE.search(body)
        text = clip(title[1]) if title is not None else ""
    elif body.startswith("{") and error_in(cause) is None:
        text = _message_in(body)
    elif error_in(cause) is None:
        text = clip(body.partition("\n")[0])
    return "" if _CREDENTIAL.search(text) else text


def _message_in(body: str) -> str:
    """Returns the text of a JSON object that says what is wrong; "" if it has none."""
    try:
        members = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return ""
    found = (members.get(name) for name in ("message", "error_description", "detail", "error", "title"))
    return next((clip(text) for text in found if isinstance(text, str) and text.strip()), "")


def clip(text: str) -> str:
    """Returns the beginning of a text on one line, at most `WORDS_MAX_CHARS` long."""
    printable = "".join(c if c.isprintable() else " " for c in text[: 4 * WORDS_MAX_CHARS])
    return " ".join(printable.split())[:WORDS_MAX_CHARS]


def denies_session(cause: Cause, *, names_session: bool) -> bool:
    """True if the refusal means that the server does not know our session, and so did not run the request: 404
    (2025-03-26 basic/transports, "Session Management"), but for an error about the request itself.

    Of other refusals that could mean it, see `session_refusal`.

    Args:
        cause: the end of a POST or of a stream.
        names_session: the request named a session.
    """
    if cause.end is not End.REFUSED or not names_session or cause.status != NOT_FOUND:
        return False
    id_raw = None if error_in(cause) is None else id_in(cause)
    is_of_request = id_raw is not None and envelope.number_of(id_raw) is not None
    return not is_of_request or ABOUT_SESSION.search(words_in(cause)) is not None


def may_have_run(status: int) -> bool:
    """True if a request refused with this HTTP status may have run all the same. 501, 503 and 505 mean that it did
    not."""
    return status >= 500 and status not in (501, 503, 505)


def error_in(cause: Cause) -> bytes | None:
    """Returns the JSON-RPC error in the body of a refusal, if it has one. The id is ignored: servers put null,
    "server-error" or the id of the request there."""
    if cause.end is not End.REFUSED or not cause.body.lstrip().startswith(b"{"):
        return None
    try:
        error = envelope.member_of(cause.body.strip(), "error")
        return None if error is None or not error.startswith(b"{") else envelope.usable_error(error)
    except RemoteProtocolError:
        return None


def login_error_in(cause: Cause) -> bytes | None:
    """Returns the JSON of the error for a refusal that a login of ours would end; None for any other end."""
    if not cause.login:
        return None
    data = {"httpStatus": cause.status, "login": msgspec.Raw(cause.login)}
    return msgspec.json.encode({"code": UPSTREAM_UNAVAILABLE, "message": cause.detail, "data": data})


def id_in(cause: Cause) -> bytes | None:
    """Returns the JSON of the id in the body of a refusal; None if there is none."""
    try:
        return envelope.member_of(cause.body.strip(), "id")
    except RemoteProtocolError:
        return None
