"""Any text stands in a header `Isthmus-Hop`: it is refused, unless it is what was signed for this request.

The first byte says which of these the rest is: a header; bytes that change one that was signed; the request line of one
that was signed; claims in JSON, which are signed. Accepted outcomes: a `Reason`, and a `HopCaller` for what was signed.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Final

from isthmus.core.base.grants import Grants
from isthmus.core.wire.http.hop import HopCaller, HopSigner, Reason

SECRET: Final = b"0123456789abcdef"
RUN: Final = "5a" * 16
NOW: Final = 1_800_000_000.0
SIGNER: Final = HopSigner(SECRET, "a")
CALLER: Final = HopCaller(
    "token:ci", Grants(frozenset({"read"}), frozenset({"team"})), "192.0.2.1", "https://x.example"
)
SIGNED: Final = SIGNER.sign(RUN, "POST", "/mcp", CALLER, NOW)


def signed(claims: bytes) -> bytes:
    """Returns a header with these claims, whatever they are, as a replica of another release might send it."""
    key = hmac.digest(SECRET, b"isthmus hop 1", "sha256")
    text = base64.urlsafe_b64encode(claims).rstrip(b"=")
    return b"1.%b.%b" % (text, hmac.new(key, text + b"\n4\nPOST/mcp", hashlib.sha256).hexdigest().encode())


def test_one_input(data: bytes) -> None:
    kind, rest = (data or b"\0")[0] % 4, data[1:]
    header, method, target = rest, "POST", "/mcp"
    if kind == 1:
        header = bytes(byte ^ change for byte, change in zip(SIGNED, rest.ljust(len(SIGNED), b"\0"), strict=False))
    elif kind == 2:
        header = SIGNED
        method, _, target = rest.decode("latin-1").partition(" ")
    elif kind == 3:
        header = signed(rest)
    found = SIGNER.check(header, RUN, method, target, NOW)
    assert isinstance(found, HopCaller | Reason)
    if isinstance(found, HopCaller) and kind != 3:
        assert (header, method, target) == (SIGNED, "POST", "/mcp")
        assert found.principal == "token:ci"
