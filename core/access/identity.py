"""The identity of a caller."""

from __future__ import annotations

from typing import Final

import msgspec

from ..base.grants import NO_GRANTS, Grants

NOTHING: Final[frozenset[str]] = frozenset()


INTROSPECTION: Final = "introspection"
"""Says of an identity that the issuer was asked about the token."""


class Identity(msgspec.Struct, frozen=True):
    """The caller of a request, and what it may ask for.

    Attributes:
        principal: the source and the name of the caller, such as `token:ci`, `cert:ci.example.com`, `uid:1000` or
            `jwt:<issuer>|<subject>`; "" is anonymous. It owns sessions, files and tasks, so nothing that changes with a
            new token is part of it.
        scopes: what the caller's token allows.
        groups: the groups that the caller is in.
        expires_at: Unix seconds until which the identity holds; None: it does not end by itself.
        via: how it was established: `token`, `jwt`, `introspection`, `certificate`, `unix` or `proxy`; "" for
            anonymous.
        client_id: the OAuth client that the token was issued to, for the audit log.
        token_id: a hash of the token's id, or the SHA-256 of a static token, by which it is revoked; never the token.
        issued_at: Unix seconds at which the issuer gave the token; None: not known.
    """

    principal: str
    scopes: frozenset[str] = NOTHING
    groups: frozenset[str] = NOTHING
    expires_at: float | None = None
    via: str = ""
    client_id: str = ""
    token_id: str = ""
    issued_at: float | None = None

    @property
    def grants(self) -> Grants:
        if not self.scopes and not self.groups and self.issued_at is None:
            return NO_GRANTS
        return Grants(self.scopes, self.groups, self.issued_at)


ANONYMOUS: Final = Identity("")


class ClientCertificate(msgspec.Struct, frozen=True):
    """The certificate of a client, which the driver has verified: the client has its key, and an authority that is
    trusted has issued it. Its subject alternative names (RFC 5280, 4.2.1.6) are listed by kind.

    Attributes:
        expires_at: Unix seconds, its `notAfter`.
    """

    expires_at: float
    uris: tuple[str, ...] = ()
    dns_names: tuple[str, ...] = ()
    emails: tuple[str, ...] = ()


class Peer(msgspec.Struct, frozen=True):
    """The program at the other end of a connection.

    Attributes:
        host: its IP address; "" if it has none, as on a Unix socket, or is gone.
        uid: its user id, as the operating system tells it of a Unix socket; None: not known.
        is_unix: it has connected to a Unix socket.
        is_secure: it has connected with TLS, which the driver ends.
        certificate: what it has shown to identify itself with TLS; None: nothing.
    """

    host: str = ""
    uid: int | None = None
    is_unix: bool = False
    is_secure: bool = False
    certificate: ClientCertificate | None = None


NOBODY: Final = Peer()
