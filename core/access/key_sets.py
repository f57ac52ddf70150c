"""The keys of an issuer."""

from __future__ import annotations

import msgspec


class Key(msgspec.Struct, frozen=True):
    """A public key (RFC 7517). The members that its type does not have are "".

    Attributes:
        kid: its name.
        kty: its type: `RSA`, `EC` or `OKP`.
        alg: the only algorithm that it is for; "": all that fit it.
    """

    kid: str
    kty: str
    alg: str = ""
    crv: str = ""
    n: str = ""
    e: str = ""
    x: str = ""
    y: str = ""
