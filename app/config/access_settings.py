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
            description="Addresses or networks of the proxy, or unix: all clients of core.unix_socket. The header "
            "is refused from everybody else.",
        ),
    ]
    user: Annotated[str, about("The header with the user's name.")] = "X-Forwarded-User"
    groups: Annotated[str | None, about("The header with the user's groups, separated by commas.")] = None


class ClientCertificates(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Certificates that clients show with TLS. The caller is the first URI among the subject alternative names, else
    the first DNS name, else the first e-mail address."""

    ca_file: Annotated[
        str, Meta(min_length=1, description="File with the authorities whose certificates are accepted, as PEM.")
    ]
    required: Annotated[
        bool, about("End the handshake with a client that shows none. false: it may show a token instead.")
    ] = False
    groups: Annotated[
        dict[str, Texts], about("The callers in each group, by the names in their certificates, whole.")
    ] = {}


class Rule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The scopes and groups that a caller needs."""

    scope: Annotated[
        Texts, about("Scopes that its token must have, all of them. Others are told to ask for them.")
    ] = ()
    groups: Annotated[Texts, about("Groups, of which it must be in one. For others it does not exist.")] = ()


class Access(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The scopes and groups that callers of a server need, and those for some of what it has: by names, or patterns
    with *, ? and [...]. The first that matches holds."""

    scope: Annotated[Texts, about("Scopes that every request for the server needs.")] = ()
    groups: Annotated[Texts, about("Groups, of which callers must be in one. For others there is no such server.")] = ()
    tools: Annotated[dict[str, Rule], about("For tools.")] = {}
    prompts: Annotated[dict[str, Rule], about("For prompts.")] = {}
    resources: Annotated[dict[str, Rule], about("For resources, by URI, and templates, by their text.")] = {}

    @property
    def has_names(self) -> bool:
        """True if there are rules for what the server has."""
        return bool(self.tools or self.prompts or self.resources)


class Introspection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Asking the issuer about each token (RFC 7662), for tokens that are no JWTs."""

    client_id: Annotated[str, about("The name of this gateway at the issuer.")]
    client_secret: Annotated[str, about("Its secret there, better as ${NAME}.")]
    url: Annotated[str | None, about("Where to ask; null: where the issuer's metadata say.")] = None

    def __repr__(self) -> str:
        return f"Introspection(client_id={self.client_id!r}, client_secret='…', url={self.url!r})"


class IssuerClient(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The client that this gateway is at the issuer, to learn who sits at a browser (OpenID Connect). Its redirect URI
    is core.public_base_url and /connect."""

    client_id: Annotated[str, Meta(min_length=1, description="The name of this gateway at the issuer.")]
    client_secret: Annotated[str | None, about("Its secret there, better as ${NAME}.")] = None

    def __repr__(self) -> str:
        return f"IssuerClient(client_id={self.client_id!r}, …)"


class Issuer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An authorization server whose tokens are accepted. Needs the extra isthmus[auth]."""

    url: Annotated[str, about("Its identifier, character by character as in the iss of its tokens.")]
    audience: Annotated[Texts, about("Values of aud that are accepted besides the URLs of the endpoints here.")] = ()
    principal: Annotated[str, Meta(min_length=1, description="The claim that names the caller.")] = "sub"
    groups: Annotated[str | None, about("The claim with the caller's groups.")] = None
    implies: Annotated[dict[str, Texts], about("Scopes that a scope contains.")] = {}
    algorithms: Annotated[
        Texts | None, about("Algorithms of signatures; null: RS, PS and ES 256 to 512, and EdDSA.")
    ] = None
    jwks_url: Annotated[str | None, about("Where its keys are; null: where its metadata say.")] = None
    introspect: Annotated[Introspection | None, about("Ask it about tokens that are no JWTs.")] = None
    client: Annotated[
        IssuerClient | None,
        about("Log browsers in, at the page where callers log in at servers with auth.login_for: caller."),
    ] = None
    ca_file: Annotated[str | None, about("Certificates to trust in place of the system's, as PEM.")] = None


class Auth(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The ways in which callers are recognised. With any of these, all others get a 401."""

    anonymous: Annotated[
        Literal["allow", "deny"] | None,
        about(
            "Whether callers without credentials are let in. null: deny if anything else here is set, else allow; but "
            "then only this machine may be served."
        ),
    ] = None
    tokens: Annotated[tuple[Token, ...], about("Static tokens.")] = ()
    issuers: Annotated[tuple[Issuer, ...], about("Authorization servers whose tokens are accepted.")] = ()
    unix_peers: Annotated[
        bool, about("A client of a Unix socket is recognised as the user of its process: uid:NUMBER.")
    ] = False
    client_certificates: Annotated[
        ClientCertificates | None, about("Certificates of clients, where core.tls is set.")
    ] = None
    proxy: Annotated[TrustedProxy | None, about("A proxy in front that identifies callers.")] = None
    links: Annotated[
        Literal["enough", "authenticated"],
        about(
            "Whether a signed link of an upload or download is credential enough, as for curl in an agent's shell; "
            "authenticated: its caller must be recognised too, and be the one that got the link."
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
