"""The header `Isthmus-Hop`: what a replica has verified of a request, signed for the replica that answers it.

    isthmus-hop: 1.<claims>.<signature>

The claims are JSON in base64url. They name the receiver's run, the caller and the time. The signature is HMAC-SHA256,
in hexadecimal, over the claims, the method and the target. Its key is derived from a secret that all replicas have. A
header therefore counts for one request line, at one process, for `TIME_MAX_S`. Within that time it may be used again,
also by whoever has read it between the replicas, who has read the caller's own credentials there, too.
"""

from __future__ import annotations

import base64
import enum
import hashlib
import hmac
import re
from typing import Final

import msgspec

from ...access.identity import Identity
from ...base.errors import LocalProtocolError
from ...base.events import DraftOpening, EventPipeOpening
from ...base.grants import NO_GRANTS, Grants
from .error_responses import refusal
from .routes import Head, McpRoute, Refused, Route, UploadRoute

HOP: Final = b"isthmus-hop"
REFUSED: Final = b"refused"
"""The value of the same header in the response to a request that was refused for it."""
TIME_MAX_S: Final = 90
"""Seconds between the clocks of sender and receiver, and the age of a header, together. Clocks may differ by a minute,
and half a minute is left for the age. At it: the header is refused."""
SIGN_EVERY_S: Final = 15
"""Seconds for which a sender uses a header again. Half of the age that is left."""
HOP_MAX_BYTES: Final = 16 * 1024
"""The longest header. Names take some hundred bytes, and a caller may be in hundreds of groups. At it: the sender does
not pass the request on, and the receiver refuses the header."""
SECRET_MIN_BYTES: Final = 16
"""The shortest secret: one of 128 bits cannot be guessed."""

_PURPOSE: Final = b"isthmus hop 1"
_FORM: Final = re.compile(rb"1\.([A-Za-z0-9_-]+)\.([0-9a-f]{64})")


class Reason(enum.Enum):
    """The reason why a header is refused. `TEXTS` has the words for the log."""

    MISSING = "missing"
    MALFORMED = "malformed"
    FORGED = "forged"
    OTHER_RUN = "other_run"
    EXPIRED = "expired"


TEXTS: Final = {
    Reason.MISSING: "there is none",
    Reason.MALFORMED: "it is malformed",
    Reason.FORGED: "its signature is of another secret, or of another request",
    Reason.OTHER_RUN: "it was signed for another process",
    Reason.EXPIRED: "it is too old, or the clocks differ by more than a minute",
}


class HopCaller(msgspec.Struct, frozen=True, array_like=True):
    """The caller of a request that was passed on.

    Attributes:
        principal: as in the openings; None: the link of the request is its only credential.
        address: where the request came from, as `budget.address_owner` gives it.
        base_url: the URL under which the client has reached the replica that passes the request on.
        is_secure: the client has used TLS.
        sender: the tag of that replica. `HopSigner.sign` sets it, as the next one.
        signed_at_unix: seconds on that replica's clock.
    """

    principal: str | None
    grants: Grants = NO_GRANTS
    address: str = ""
    base_url: str = ""
    is_secure: bool = False
    sender: str = ""
    signed_at_unix: int = 0

    @property
    def expires_at_unix(self) -> float:
        """The time from which a header with this caller is refused."""
        return self.signed_at_unix + TIME_MAX_S


class HopReceiver:
    """Checks the header of each request to the internal listener of a replica.

    Args:
        run: of this replica.
    """

    def __init__(self, signer: HopSigner, run: str) -> None:
        self._signer = signer
        self._run = run

    def check(self, head: Head, now_unix: float) -> HopCaller | Reason:
        """Returns the caller of a request, or the reason why it is refused."""
        found = [value for name, value in head.headers if name == HOP]
        if len(found) != 1:
            return Reason.MALFORMED if found else Reason.MISSING
        return self._signer.check(found[0], self._run, head.method, head.target, now_unix)


def with_caller(route: Route, caller: HopCaller) -> Route:
    """Returns the route of a request that was passed on, with its caller; a refusal of one that is never passed on."""
    if isinstance(route, Refused):
        return route
    if isinstance(route, UploadRoute) and isinstance(route.opening, DraftOpening):
        draft = msgspec.structs.replace(route.opening, principal=caller.principal)
        return UploadRoute(draft, route.content_type)
    if caller.principal is None or not isinstance(route, McpRoute) or isinstance(route.opening, EventPipeOpening):
        return refusal(403, "got a request that replicas do not pass on to each other")
    changes = {"principal": caller.principal, "grants": caller.grants, "base_url": caller.base_url}
    opening = msgspec.structs.replace(
        route.opening, **{name: changes[name] for name in changes if name in route.opening.__struct_fields__}
    )
    grants = caller.grants
    identity = Identity(caller.principal, grants.scopes, grants.groups, issued_at=grants.issued_at_unix)
    return McpRoute(opening, identity)


class _Claims(msgspec.Struct, frozen=True, array_like=True):
    run: str
    caller: HopCaller


class HopSigner:
    """Signs and checks headers.

    Args:
        secret: the same for all replicas, at least `SECRET_MIN_BYTES`.
        tag: of this replica.

    Raises:
        LocalProtocolError: the secret is too short.
    """

    def __init__(self, secret: bytes, tag: str) -> None:
        if len(secret) < SECRET_MIN_BYTES:
            raise LocalProtocolError(f"got a secret of {len(secret)} bytes, expected {SECRET_MIN_BYTES} at least")
        self._key = hmac.digest(secret, _PURPOSE, "sha256")
        self._tag = tag

    def sign(self, to_run: str, method: str, target: str, caller: HopCaller, now_unix: float) -> bytes:
        """Returns the header for a request.

        Args:
            to_run: the run of the replica that gets it.
            target: of the request, as it is sent.

        Raises:
            LocalProtocolError: it would be longer than `HOP_MAX_BYTES`, or a name is no Unicode text.
        """
        signed = msgspec.structs.replace(caller, sender=self._tag, signed_at_unix=int(now_unix))
        try:
            claims = base64.urlsafe_b64encode(msgspec.json.encode(_Claims(to_run, signed))).rstrip(b"=")
        except UnicodeEncodeError:
            raise LocalProtocolError("got a caller with half a surrogate pair, expected Unicode text") from None
        header = b"1.%b.%b" % (claims, self._signature(claims, method, target))
        if len(header) > HOP_MAX_BYTES:
            raise LocalProtocolError(f"got a caller of {len(header)} bytes, expected {HOP_MAX_BYTES} at most")
        return header

    def check(self, header: bytes, run: str, method: str, target: str, now_unix: float) -> HopCaller | Reason:
        """Returns the caller, or the reason why the header is refused.

        Args:
            run: of this replica.
            target: of the request, as it was received.
        """
        found = _FORM.fullmatch(header) if len(header) <= HOP_MAX_BYTES else None
        if found is None:
            return Reason.MALFORMED
        if not hmac.compare_digest(found[2], self._signature(found[1], method, target)):
            return Reason.FORGED
        try:
            claims = msgspec.json.decode(base64.urlsafe_b64decode(found[1] + b"=="), type=_Claims)
        except (msgspec.DecodeError, ValueError):  # signed by another release, with the same secret
            return Reason.MALFORMED
        if claims.run != run:
            return Reason.OTHER_RUN
        if abs(now_unix - claims.caller.signed_at_unix) >= TIME_MAX_S:
            return Reason.EXPIRED
        return claims.caller

    def _signature(self, claims: bytes, method: str, target: str) -> bytes:
        name = method.encode(errors="surrogatepass")
        line = name + target.encode(errors="surrogatepass")
        signed = b"%b\n%d\n%b" % (claims, len(name), line)  # the length says where the method ends
        return hmac.new(self._key, signed, hashlib.sha256).hexdigest().encode()
