"""Asks what listens on a port that is taken."""

from __future__ import annotations

from typing import Final

import anyio
import msgspec
from anyio import to_thread

LIMIT_S: Final = 1.0
"""Seconds for all of it: a person waits for the message."""
ANSWER_MAX_BYTES: Final = 4096
SERVICE: Final = "isthmus"


class _Health(msgspec.Struct):
    """The members of the answer of `GET /healthz` that matter here."""

    service: str
    version: str


async def isthmus_at(host: str, port: int) -> str:
    """Returns the version of the isthmus that serves plain HTTP at an address, or "" if none answers in time."""
    with anyio.move_on_after(LIMIT_S):
        return await to_thread.run_sync(_ask, host, port, abandon_on_cancel=True)
    return ""


def _ask(host: str, port: int) -> str:
    import http.client  # late: a proxy needs no HTTP client of the standard library

    connection = http.client.HTTPConnection(host, port, timeout=LIMIT_S)
    try:
        connection.request("GET", "/healthz")
        health = msgspec.json.decode(connection.getresponse().read(ANSWER_MAX_BYTES), type=_Health)
    except (OSError, http.client.HTTPException, msgspec.DecodeError, UnicodeError):
        return ""
    finally:
        connection.close()
    is_ours = health.service == SERVICE and health.version.isascii() and health.version.isprintable()
    return health.version[:32] if is_ours else ""
