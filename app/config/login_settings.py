"""The shape of `upstream.auth`: how the proxy logs in at a server."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Struct

from .value_types import Texts, about

_SCOPE = "Scopes to request in any case. Those that the server asks for come on top; without any, those that it lists."
_RESOURCE = (
    "The resource parameter (RFC 8707): auto is the server's identifier, none sends none, as Entra ID wants it; "
    "or a URI."
)
_LOGIN_FOR = (
    "caller: what is exchanged is the token that each caller has shown here. everyone: the token below, for all."
)
_SUBJECT_FILE = "Path of the token to exchange. The file is read anew for each exchange, as platforms renew it."
_ISSUER = "The authorization server. Null: the one that the server's metadata names."


class OAuth(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="oauth"):
    """A login of a person: of one for all callers, made with `isthmus login ID`, or of each caller."""

    login_for: Annotated[
        Literal["everyone", "caller"],
        about(
            "everyone: one login serves all callers. caller: each has its own, made at the page to which its client is "
            "sent, or with `isthmus login --as CALLER ID`."
        ),
    ] = "everyone"
    client_id: Annotated[
        str | None,
        about(
            "The client that is registered at the authorization server by hand, or the URL of a client id metadata "
            "document. null: isthmus registers itself."
        ),
    ] = None
    client_secret: Annotated[str | None, about("Its secret, better as ${NAME}.")] = None
    scope: Annotated[Texts, about(_SCOPE)] = ()
    resource: Annotated[str, about(_RESOURCE)] = "auto"
    issuer: Annotated[str | None, about(_ISSUER)] = None
    redirect_host: Annotated[
        Literal["127.0.0.1", "localhost"] | None,
        about(
            "The host of the redirect URI, http://HOST:PORT/callback. null: localhost for a client that is registered "
            "by hand, else 127.0.0.1."
        ),
    ] = None

    def __repr__(self) -> str:
        return f"OAuth(client_id={self.client_id!r}, scope={self.scope!r}, …)"


class ClientCredentials(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="client_credentials"):
    """A login of the proxy itself, without a person."""

    client_id: Annotated[str, about("The client that is registered at the authorization server.")]
    client_secret: Annotated[str | None, about("Its secret, better as ${NAME}. Either this or private_key.")] = None
    private_key: Annotated[str | None, about("Path of its private key, as PEM. Either this or client_secret.")] = None
    algorithm: Annotated[str, about("What the key signs with: RS, PS or ES with 256, 384 or 512, or EdDSA.")] = "ES256"
    scope: Annotated[Texts, about(_SCOPE)] = ()
    resource: Annotated[str, about(_RESOURCE)] = "auto"
    issuer: Annotated[str | None, about(_ISSUER)] = None

    def __repr__(self) -> str:
        return f"ClientCredentials(client_id={self.client_id!r}, scope={self.scope!r}, …)"


class Exchange(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="exchange"):
    """A login with a token that the platform gives the proxy: the authorization server exchanges it (RFC 8693)."""

    login_for: Annotated[Literal["everyone", "caller"], about(_LOGIN_FOR)] = "everyone"
    client_id: Annotated[str, about("The client that is registered at the authorization server.")]
    client_secret: Annotated[str, about("Its secret, better as ${NAME}.")]
    subject_token_file: Annotated[str | None, about(_SUBJECT_FILE)] = None
    subject_token: Annotated[
        str | None, about("The token to exchange, better as ${NAME}. Either this or the file.")
    ] = None
    subject_token_type: Annotated[
        Literal["access_token", "id_token", "jwt"], about("What the token to exchange is, as in RFC 8693, 3.")
    ] = "access_token"
    scope: Annotated[Texts, about(_SCOPE)] = ()
    resource: Annotated[str, about(_RESOURCE)] = "auto"
    issuer: Annotated[str | None, about(_ISSUER)] = None

    def __repr__(self) -> str:
        return f"Exchange(client_id={self.client_id!r}, scope={self.scope!r}, …)"


class IdentityProvider(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The identity provider of an enterprise."""

    issuer: Annotated[str, about("Its issuer.")]
    client_id: Annotated[str, about("The client that is registered there.")]
    client_secret: Annotated[str | None, about("Its secret, better as ${NAME}. null: it has none.")] = None

    def __repr__(self) -> str:
        return f"IdentityProvider(issuer={self.issuer!r}, client_id={self.client_id!r}, …)"


class Enterprise(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="enterprise"):
    """A login that the identity provider of an enterprise allows (enterprise-managed authorization).

    The provider exchanges an ID token for a grant (ID-JAG), and the server's authorization server gives a token for it.
    """

    login_for: Annotated[Literal["everyone", "caller"], about(_LOGIN_FOR)] = "everyone"
    client_id: Annotated[str, about("The client that is registered at the server's authorization server.")]
    client_secret: Annotated[str, about("Its secret, better as ${NAME}.")]
    provider: IdentityProvider
    subject_token_file: Annotated[str | None, about(_SUBJECT_FILE)] = None
    subject_token: Annotated[
        str | None, about("The ID token to exchange, better as ${NAME}. Either this or the file.")
    ] = None
    scope: Annotated[Texts, about(_SCOPE)] = ()
    resource: Annotated[str, about(_RESOURCE)] = "auto"
    issuer: Annotated[str | None, about(_ISSUER)] = None

    def __repr__(self) -> str:
        return f"Enterprise(client_id={self.client_id!r}, scope={self.scope!r}, …)"


Unattended = ClientCredentials | Exchange | Enterprise
"""The logins without a person."""

# In an annotation of its own, so that a union with None keeps it in one piece.
Login = Annotated[OAuth | ClientCredentials | Exchange | Enterprise, about("A login at a server.")]
