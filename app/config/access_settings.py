"""The part of a configuration that says who may call."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from .value_types import Texts, about


class Token(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A static token, which a caller sends as Authorization: Bearer. `isthmus token new NAME` makes one."""

    name: Annotated[str, Meta(min_length=1, max_length=128, description="The caller's name.")]
    sha256: Annotated[str, about("The SHA-256 of the token, in hexadecimal. The token itself is written nowhere.")]
    groups: Annotated[Texts, about("The caller's groups; admin may manage servers, tasks and files.")] = ()
    scopes: Annotated[Texts, about("What the token allows.")] = ()
    expires: Annotated[str | None, about("The day on which it ends (UTC), such as 2027-01-31; null: never.")] = None


class TrustedProxy(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A proxy in front that identifies callers, and names them in a header."""

    peers: Annotated[
        Texts,
        Meta(
            min_length=1,
            description="Addresses or networks of the proxy, or unix: whoever connects to core.unix_socket. The header "
            "is refused from everybody else.",
        ),
    ]
    user: Annotated[str, about("The header with the user's name.")] = "X-Forwarded-User"
    groups: Annotated[str | None, about("The header with the user's groups, separated by commas.")] = None


class Auth(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who may call. With any of these, whoever is not recognised gets a 401."""

    anonymous: Annotated[
        Literal["allow", "deny"] | None,
        about(
            "Whether callers without credentials are let in. null: deny if anything else here is set, else allow; but "
            "then only this machine may be served."
        ),
    ] = None
    tokens: Annotated[tuple[Token, ...], about("Static tokens.")] = ()
    unix_peers: Annotated[
        bool, about("Whoever connects to a Unix socket is recognised as the user of its process: uid:NUMBER.")
    ] = False
    proxy: Annotated[TrustedProxy | None, about("A proxy in front that identifies callers.")] = None
    links: Annotated[
        Literal["enough", "authenticated"],
        about(
            "Whether a signed link of an upload or download is credential enough, as for curl in an agent's shell; "
            "authenticated: its caller must be recognised too, and be the one that got the link."
        ),
    ] = "enough"

    @property
    def recognises(self) -> bool:
        """True if there is a way for callers to be recognised."""
        return bool(self.tokens or self.unix_peers or self.proxy is not None)
