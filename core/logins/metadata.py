"""Reads metadata of protected resources and of authorization servers, and says where they are found.

A document of another party names URLs that are requested next. Each must be https, or http on loopback.
Its address is judged by the driver, when it connects.

Source: RFC 9728, 2 and 3; RFC 8414, 2 and 3; OpenID Connect Discovery 1.0, 3 and 4.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from ..wire.http.public_addresses import is_loopback_name
from ..wire.http.url import Address, parse_url

ISSUERS_MAX: Final = 32
"""The most authorization servers of a resource that are read. At it: the others are left out."""
SCOPES_MAX: Final = 256
"""The most scopes of a list that are read; large providers list some hundred. At it: the others are left out."""

_PROTECTED_RESOURCE: Final = "oauth-protected-resource"
_AUTHORIZATION_SERVER: Final = "oauth-authorization-server"
_OPENID: Final = "openid-configuration"


class ProtectedResource(msgspec.Struct, frozen=True):
    """The metadata of a protected resource. `scopes`: None if they are not listed."""

    resource: str
    issuers: tuple[str, ...]
    scopes: tuple[str, ...] | None = None


class AuthorizationServer(msgspec.Struct, frozen=True):
    """The metadata of an authorization server. An endpoint that it does not have is "", a list None.

    Attributes:
        takes_documents: it takes the URLs of client id metadata documents as client ids.
        says_issuer: it puts `iss` into authorization responses (RFC 9207).
    """

    issuer: str
    token_endpoint: str
    authorization_endpoint: str = ""
    registration_endpoint: str = ""
    device_endpoint: str = ""
    challenge_methods: tuple[str, ...] | None = None
    client_methods: tuple[str, ...] | None = None
    scopes: tuple[str, ...] | None = None
    takes_documents: bool = False
    says_issuer: bool = False


def read_protected_resource(body: bytes) -> ProtectedResource | None:
    """Returns the metadata; None if it cannot be read."""
    found = read_object(body)
    if found is None or not isinstance(found.get("resource"), str):
        return None
    issuers = _texts(found.get("authorization_servers")) or ()
    return ProtectedResource(found["resource"], issuers[:ISSUERS_MAX], _texts(found.get("scopes_supported")))


def read_authorization_server(body: bytes) -> AuthorizationServer | None:
    """Returns the metadata; None if it cannot be read, or names an endpoint that must not be requested."""
    found = read_object(body)
    if found is None or not isinstance(found.get("issuer"), str):
        return None
    endpoints = {
        name: found.get(name, "")
        for name in (
            "token_endpoint",
            "authorization_endpoint",
            "registration_endpoint",
            "device_authorization_endpoint",
        )
    }
    if not endpoints["token_endpoint"] or not all(each == "" or is_requestable(each) for each in endpoints.values()):
        return None
    return AuthorizationServer(
        found["issuer"],
        endpoints["token_endpoint"],
        endpoints["authorization_endpoint"],
        endpoints["registration_endpoint"],
        endpoints["device_authorization_endpoint"],
        _texts(found.get("code_challenge_methods_supported")),
        _texts(found.get("token_endpoint_auth_methods_supported")),
        _texts(found.get("scopes_supported")),
        found.get("client_id_metadata_document_supported") is True,
        found.get("authorization_response_iss_parameter_supported") is True,
    )


def default_authorization_server(origin: str) -> AuthorizationServer:
    """Returns the endpoints of a server without any metadata. Source: 2025-03-26 basic/authorization, "Fallbacks for
    Servers without Metadata Discovery"."""
    return AuthorizationServer(origin, origin + "/token", origin + "/authorize", origin + "/register")


def read_object(body: bytes) -> dict[str, Any] | None:
    """Returns a JSON object; None if the body is something else."""
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def resource_of(url: str) -> str:
    """Returns the resource identifier of a server's URL: without query and fragment, and without a lone slash.

    Source: 2026-07-28 basic/authorization, "Canonical Server URI".

    Raises:
        ValueError: as `parse_url`.
    """
    address = parse_url(url)
    path = _path(address)
    return _origin(address) + ("" if path == "/" else path)


def origin_of(url: str) -> str:
    """Returns scheme, host and port of a URL.

    Raises:
        ValueError: as `parse_url`.
    """
    return _origin(parse_url(url))


def covers(resource: str, url: str) -> bool:
    """True if a server at `url` is the resource, or a part of it.

    A final slash makes no difference: servers write it and leave it out (RFC 9728, 3.3 wants the same URL, and the
    official SDKs take a resource that is above the server's URL).
    """
    try:
        wide, narrow = parse_url(resource), parse_url(url)
    except ValueError:
        return False
    if wide.origin != narrow.origin or "#" in resource or "?" in resource:
        return False
    above = _path(wide).rstrip("/") + "/"
    return (_path(narrow).rstrip("/") + "/").startswith(above)


def resource_metadata_urls(url: str) -> list[str]:
    """Returns where a server has the metadata of the resource that it is, in the order in which they are asked.

    Source: 2026-07-28 …/authorization-server-discovery, "Protected Resource Metadata Discovery Requirements".
    """
    root = f"{origin_of(url)}/.well-known/{_PROTECTED_RESOURCE}"
    path = _path(parse_url(url))
    return [root] if path == "/" else [root + path, root]


def issuer_metadata_urls(issuer: str) -> list[str]:
    """Returns where an authorization server has its metadata, in the order in which they are asked.

    Source: 2026-07-28 …/authorization-server-discovery, "Authorization Server Metadata Discovery"; RFC 8414, 3.1: "Any
    terminating "/" MUST be removed".
    """
    address = parse_url(issuer)
    origin, path = _origin(address), _path(address).rstrip("/")
    known = f"{origin}/.well-known"
    if not path:
        return [f"{known}/{_AUTHORIZATION_SERVER}", f"{known}/{_OPENID}"]
    return [
        f"{known}/{_AUTHORIZATION_SERVER}{path}",
        f"{known}/{_OPENID}{path}",
        f"{origin}{path}/.well-known/{_OPENID}",
    ]


def is_requestable(url: object) -> bool:
    """True if a document may name this URL as an endpoint: https, or http on loopback, and no fragment."""
    if not isinstance(url, str) or "#" in url:
        return False
    try:
        address = parse_url(url)
    except ValueError:
        return False
    return address.scheme == "https" or (address.scheme == "http" and is_loopback_name(address.host))


def is_issuer(url: str) -> bool:
    """True if this is an issuer identifier. Source: RFC 8414, 2: https, "no query or fragment components"."""
    return is_requestable(url) and "?" not in url


def show_url(url: str) -> str:
    """Returns a URL of another party for people."""
    return "".join(char if "!" <= char <= "~" else "?" for char in url[:200])


def _origin(address: Address) -> str:
    return f"{address.scheme}://{address.authority.decode().lower()}"


def _path(address: Address) -> str:
    return address.target.partition(b"?")[0].decode()


def _texts(value: object) -> tuple[str, ...] | None:
    """Returns a list of texts; None if the value is no such list."""
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        return None
    return tuple(value[:SCOPES_MAX])
