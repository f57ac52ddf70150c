"""The part of a configuration that says who may call."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from .value_types import Texts, about


class Token(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A static token, which a caller sends as Authorization: Bearer. `isthmus token new NAME` creates one."""

    name: Annotated[str, Meta(min_length=1, max_length=128, description="The caller's name.")]
    sha256: Annotated[str, about("The SHA-256 of the token, in hexadecimal. The token itself is not stored.")]
    groups: Annotated[Texts, about("The caller's groups; admin may manage servers, tasks and files.")] = ()
    scopes: Annotated[Texts, about("Scopes of the token.")] = ()
    expires: Annotated[str | None, about("Expiry date (UTC), such as 2027-01-31. null: never.")] = None


class TrustedProxy(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A proxy in front that authenticates callers and sends their names in a header."""

    peers: Annotated[
        Texts,
        Meta(
            min_length=1,
            description="Addresses or networks of the proxy. unix: all clients of core.unix_socket. Requests with the "
            "header from other addresses are rejected.",
        ),
    ]
    user: Annotated[str, about("Header with the user's name.")] = "X-Forwarded-User"
    groups: Annotated[str | None, about("Header with the user's groups, separated by commas.")] = None


class ClientCertificates(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Client certificates in the TLS handshake. The caller is the first URI among the subject alternative names, else
    the first DNS name, else the first e-mail address."""

    ca_file: Annotated[str, Meta(min_length=1, description="PEM file with the accepted certificate authorities.")]
    required: Annotated[
        bool,
        about("Fail the TLS handshake without a client certificate. false: a client without one can send a token."),
    ] = False
    groups: Annotated[dict[str, Texts], about("Callers in each group, by the full names in their certificates.")] = {}


class Rule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The scopes and groups that a caller needs."""

    scope: Annotated[
        Texts, about("Scopes that the token must have. Callers without them get 403 with the required scopes.")
    ] = ()
    groups: Annotated[
        Texts, about("The caller must be in one of these groups. For other callers the entry does not exist.")
    ] = ()


class Access(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Scopes and groups that callers need for a server, and for single tools, prompts and resources: by names, or
    patterns with *, ? and [...]. The first match applies."""

    scope: Annotated[Texts, about("Scopes that every request for the server needs.")] = ()
    groups: Annotated[
        Texts, about("Callers must be in one of these groups. For other callers the server does not exist.")
    ] = ()
    tools: Annotated[dict[str, Rule], about("Requirements of tools.")] = {}
    prompts: Annotated[dict[str, Rule], about("Requirements of prompts.")] = {}
    resources: Annotated[
        dict[str, Rule], about("Requirements of resources by URI, and of templates by their text.")
    ] = {}

    @property
    def has_names(self) -> bool:
        """True if there are rules for what the server has."""
        return bool(self.tools or self.prompts or self.resources)


class Introspection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Introspection of tokens at the issuer (RFC 7662), for tokens that are not JWTs."""

    client_id: Annotated[str, about("Client id of this gateway at the issuer.")]
    client_secret: Annotated[str, about("Client secret. Write it as ${NAME}.")]
    url: Annotated[str | None, about("URL of the introspection endpoint. null: from the issuer's metadata.")] = None

    def __repr__(self) -> str:
        return f"Introspection(client_id={self.client_id!r}, client_secret='…', url={self.url!r})"


class IssuerClient(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The client of this gateway at the issuer, to authenticate the user of a browser (OpenID Connect). Its
    redirect URI is core.public_base_url followed by /connect."""

    client_id: Annotated[str, Meta(min_length=1, description="Client id of this gateway at the issuer.")]
    client_secret: Annotated[str | None, about("Client secret. Write it as ${NAME}.")] = None

    def __repr__(self) -> str:
        return f"IssuerClient(client_id={self.client_id!r}, …)"


class Issuer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An authorization server whose tokens are accepted. Needs the extra isthmus[auth]."""

    url: Annotated[str, about("Identifier of the issuer, exactly as in the iss claim of its tokens.")]
    audience: Annotated[Texts, about("Accepted values of the aud claim, in addition to the URLs of Isthmus.")] = ()
    principal: Annotated[str, Meta(min_length=1, description="The claim that names the caller.")] = "sub"
    groups: Annotated[str | None, about("The claim with the caller's groups.")] = None
    implies: Annotated[dict[str, Texts], about("Scopes that a scope includes.")] = {}
    algorithms: Annotated[
        Texts | None, about("Accepted signature algorithms. null: RS, PS and ES 256 to 512, and EdDSA.")
    ] = None
    jwks_url: Annotated[str | None, about("URL of the issuer's keys. null: from its metadata.")] = None
    introspect: Annotated[Introspection | None, about("Introspection of tokens that are not JWTs.")] = None
    client: Annotated[
        IssuerClient | None,
        about("OpenID Connect client for the login page of servers with auth.login_for: caller."),
    ] = None
    ca_file: Annotated[str | None, about("PEM file of certificates to trust instead of the system's.")] = None


class Auth(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Authentication of callers. If any method is set, other callers get 401."""

    anonymous: Annotated[
        Literal["allow", "deny"] | None,
        about(
            "Whether callers without credentials are accepted. null: deny if another key of auth is set, else allow, "
            "but then only for this machine."
        ),
    ] = None
    tokens: Annotated[tuple[Token, ...], about("Static tokens.")] = ()
    issuers: Annotated[tuple[Issuer, ...], about("Authorization servers whose tokens are accepted.")] = ()
    unix_peers: Annotated[
        bool, about("Identify a client of a Unix socket by the user of its process, as uid:NUMBER.")
    ] = False
    client_certificates: Annotated[ClientCertificates | None, about("Client certificates. Requires core.tls.")] = None
    proxy: Annotated[TrustedProxy | None, about("A proxy in front that authenticates callers.")] = None
    links: Annotated[
        Literal["enough", "authenticated"],
        about(
            "Credentials for upload and download links. enough: the signed link, as for curl in an agent's shell. "
            "authenticated: also a credential of the caller that got the link."
        ),
    ] = "enough"

    @property
    def reads_tokens(self) -> bool:
        """True if callers show tokens for this gateway in the header Authorization."""
        return bool(self.tokens or self.issuers)

    @property
    def recognises(self) -> bool:
        """True if there is a way for callers to be recognised."""
        others = (self.client_certificates, self.proxy)
        return bool(self.reads_tokens or self.unix_peers or any(each is not None for each in others))
