"""The credentials of a request, kept out of what is told of its refusal: some servers say what they were sent.

What a server says about a refusal reaches clients, the log and traces. The credentials are those of the proxy, which no
client is to learn.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from ...base.events import Cause, End

WITHHELD: Final = b"[withheld]"
VALUE_MIN_BYTES: Final = 8
"""The shortest value that counts as a credential. A shorter one would be found in words."""


def withhold(cause: Cause, headers: Iterable[tuple[bytes, bytes]]) -> Cause:
    """Returns the end of a channel with a mark in place of each value of these headers, which its request had.

    Args:
        headers: the headers of the proxy itself. Of a value with a scheme in front, such as `Bearer`, the rest counts.
    """
    if cause.end is not End.REFUSED:
        return cause
    found = {value.rpartition(b" ")[2] for _, value in headers}
    values = sorted((value for value in found if len(value) >= VALUE_MIN_BYTES), key=len, reverse=True)
    if not any(value in cause.body or value in cause.challenge.encode("latin-1") for value in values):
        return cause
    body, challenge = cause.body, cause.challenge.encode("latin-1")
    for value in values:
        body, challenge = body.replace(value, WITHHELD), challenge.replace(value, WITHHELD)
    return msgspec.structs.replace(cause, body=body, challenge=challenge.decode("latin-1"))
