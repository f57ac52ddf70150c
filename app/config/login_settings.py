"""The shape of `upstream.auth`: how the proxy logs in at a server."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Struct

from .value_types import Texts, about

_SCOPE = (
    "Scopes to request, in addition to those that the server requires. If both are empty, the scopes that the server "
    "lists."
)
_RESOURCE = (
    "The resource parameter (RFC 8707). auto: the server's identifier. none: no parameter, as Entra ID requires. "
    "Otherwise a URI."
)
_LOGIN_FOR = (
    "Token to exchange. everyone: subject_token_file or subject_token. caller: the access token of each caller."
)
_SUBJECT_FILE = "Path of the token to exchange. The file is read for each exchange, because platforms renew it."
_ISSUER = "The authorization server. null: from the server's metadata."


class OAuth(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="oauth"):
    """A login of a user: one for all callers, or one for each caller."""

    login_for: Annotated[
        Literal["everyone", "caller"],
        about(
            "everyone: one login for all callers, with `isthmus login ID`. caller: each caller logs in on a page of "
            "Isthmus, or with `isthmus login --as CALLER ID`."
        ),
    ] = "everyone"
    client_id: Annotated[
        str | None,
        about(
            "Id of a client that was registered by hand, or the URL of a client id metadata document. null: Isthmus "
            "registers itself."
        ),
    ] = None
    client_secret: Annotated[str | None, about("Client secret. Write it as ${NAME}.")] = None
    scope: Annotated[Texts, about(_SCOPE)] = ()
    resource: Annotated[str, about(_RESOURCE)] = "auto"
    issuer: Annotated[str | None, about(_ISSUER)] = None
    redirect_host: Annotated[
        Literal["127.0.0.1", "localhost"] | None,
        about(
            "The host of the redirect URI, http://HOST:PORT/callback. null: localhost for a client with client_id, "
            "else 127.0.0.1."
        ),
    ] = None

    def __repr__(self) -> str:
        return f"OAuth(client_id={self.client_id!r}, scope={self.scope!r}, …)"


class ClientCredentials(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="client_credentials"):
    """A login of Isthmus itself, without a user."""

    client_id: Annotated[str, about("Id of the client at the authorization server.")]
    client_secret: Annotated[
        str | None, about("Client secret. Write it as ${NAME}. Set either this or private_key.")
    ] = None
    private_key: Annotated[
        str | None, about("PEM file of the client's private key. Set either this or client_secret.")
    ] = None
    algorithm: Annotated[str, about("Signature algorithm of the key: RS, PS or ES with 256, 384 or 512, or EdDSA.")] = (
        "ES256"
    )
    scope: Annotated[Texts, about(_SCOPE)] = ()
    resource: Annotated[str, about(_RESOURCE)] = "auto"
    issuer: Annotated[str | None, about(_ISSUER)] = None

    def __repr__(self) -> str:
        return f"ClientCredentials(client_id={self.client_id!r}, scope={self.scope!r}, …)"


class Exchange(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="exchange"):
    """A login with a token of the platform or the caller, which the authorization server exchanges (RFC 8693)."""

    login_for: Annotated[Literal["everyone", "caller"], about(_LOGIN_FOR)] = "everyone"
    client_id: Annotated[str, about("Id of the client at the authorization server.")]
    client_secret: Annotated[str, about("Client secret. Write it as ${NAME}.")]
    subject_token_file: Annotated[str | None, about(_SUBJECT_FILE)] = None
    subject_token: Annotated[
        str | None, about("The token to exchange. Write it as ${NAME}. Set either this or subject_token_file.")
    ] = None
    subject_token_type: Annotated[
        Literal["access_token", "id_token", "jwt"], about("Type of the token to exchange (RFC 8693, section 3).")
    ] = "access_token"
    scope: Annotated[Texts, about(_SCOPE)] = ()
    resource: Annotated[str, about(_RESOURCE)] = "auto"
    issuer: Annotated[str | None, about(_ISSUER)] = None

    def __repr__(self) -> str:
        return f"Exchange(client_id={self.client_id!r}, scope={self.scope!r}, …)"


class IdentityProvider(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The identity provider of an enterprise."""

    issuer: Annotated[str, about("Issuer of the identity provider.")]
    client_id: Annotated[str, about("Id of the client at the provider.")]
    client_secret: Annotated[str | None, about("Client secret. Write it as ${NAME}. null: no secret.")] = None

    def __repr__(self) -> str:
        return f"IdentityProvider(issuer={self.issuer!r}, client_id={self.client_id!r}, …)"


class Enterprise(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="enterprise"):
    """A login through the identity provider of a company (enterprise-managed authorization).

    The provider exchanges an ID token for a grant (ID-JAG). The server's authorization server
    exchanges the grant for a token.
    """

    login_for: Annotated[Literal["everyone", "caller"], about(_LOGIN_FOR)] = "everyone"
    client_id: Annotated[str, about("Id of the client at the authorization server of the MCP server.")]
    client_secret: Annotated[str, about("Client secret. Write it as ${NAME}.")]
    provider: IdentityProvider
    subject_token_file: Annotated[str | None, about(_SUBJECT_FILE)] = None
    subject_token: Annotated[
        str | None, about("The ID token to exchange. Write it as ${NAME}. Set either this or subject_token_file.")
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
