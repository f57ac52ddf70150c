"""The links to the page where a caller logs in at a server.

A link is for one caller and one server. It names the caller by a tag that only this gateway can make: "The server MUST
NOT include sensitive information about the end-user" (2025-11-25 client/elicitation, "URL Mode").
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import struct
from typing import Final

import msgspec

TICKET_TTL_S: Final = 3600
"""Seconds for which a link is good: a person may read the client's question some time later."""
TICKET_CHARS: Final = 56
"""The length of every ticket."""

_TAG_BYTES: Final = 16
_HEAD: Final = struct.Struct(">IH")  # the end in Unix seconds, and the number of the issuer
_SIZE: Final = _HEAD.size + 2 * _TAG_BYTES + 4
_SALT_BYTES: Final = 4


class Ticket(msgspec.Struct, frozen=True):
    """A ticket that this gateway has made. `issuer`: the number of the issuer that knows the caller."""

    issuer: int
    salt: bytes
    tag: bytes


class Tickets:
    """Makes and reads tickets.

    Args:
        key: a secret of this gateway, the same in all its replicas.
    """

    def __init__(self, key: bytes) -> None:
        self._key = hmac.digest(key, b"isthmus connect", "sha256")

    def make(self, server: str, principal: str, issuer: int, now: float, scope: str = "") -> str:
        """Returns a ticket. Within a minute, the same arguments give the same one.

        Args:
            scope: the scopes to ask for, which stand beside the ticket in the link.
        """
        end = int(now) // 60 * 60 + TICKET_TTL_S
        salt = self._tag(b"salt", server, principal, str(end))[:_SALT_BYTES]
        body = _HEAD.pack(end, issuer) + salt + self._tag(b"caller", server, principal, salt.hex())
        return base64.urlsafe_b64encode(body + self._tag(b"ticket", server, scope, body.hex())).decode()

    def read(self, text: str, server: str, now: float, scope: str = "") -> Ticket | None:
        """Returns a ticket for a server; None if it is none of this gateway, or too old."""
        try:
            data = base64.b64decode(text, b"-_", validate=True) if len(text) == TICKET_CHARS else b""
        except (binascii.Error, ValueError):
            return None
        body, seal = data[:-_TAG_BYTES], data[-_TAG_BYTES:]
        if len(data) != _SIZE or not hmac.compare_digest(seal, self._tag(b"ticket", server, scope, body.hex())):
            return None
        end, issuer = _HEAD.unpack_from(body)
        salt, tag = body[_HEAD.size : _HEAD.size + _SALT_BYTES], body[_HEAD.size + _SALT_BYTES :]
        return Ticket(issuer, salt, tag) if now < end else None

    def is_for(self, ticket: Ticket, server: str, principal: str) -> bool:
        """True if the ticket was made for this caller."""
        return hmac.compare_digest(ticket.tag, self._tag(b"caller", server, principal, ticket.salt.hex()))

    def id_of(self, server: str, principal: str) -> str:
        """Returns the `elicitationId` of a login: the same whenever it is asked for."""
        return self._tag(b"id", server, principal).hex()

    def _tag(self, use: bytes, *parts: str) -> bytes:
        text = use + b"".join(b"\0%d\0" % len(each) + each for each in (part.encode() for part in parts))
        return hashlib.blake2b(text, key=self._key, digest_size=_TAG_BYTES).digest()
