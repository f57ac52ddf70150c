"""The challenge of a refusal: the `WWW-Authenticate` header of a 401 or 403 (RFC 6750, 3; RFC 9728, 5.1)."""

from __future__ import annotations

from collections.abc import Collection

from .identity import NOTHING

Headers = tuple[tuple[bytes, bytes], ...]


def bearer_challenge(
    *, error: str = "", description: str = "", scopes: Collection[str] = NOTHING, metadata_url: str = ""
) -> bytes:
    """Returns the value of a `WWW-Authenticate` header.

    Args:
        error: `invalid_token` or `insufficient_scope`; "" if the request had no credentials: RFC 6750, 3.1: the server
            "SHOULD NOT include an error code or other error information" then.
        description: why, for people.
        scopes: all scopes that the operation needs.
        metadata_url: the address of the protected-resource metadata.
    """
    parameters = [("realm", "isthmus")]
    if metadata_url:
        parameters.append(("resource_metadata", metadata_url))
    if error:
        parameters.append(("error", error))
    if description:
        parameters.append(("error_description", description))
    if scopes:
        parameters.append(("scope", " ".join(sorted(scopes))))
    return b"Bearer " + b", ".join(f'{name}="{_quoted(value)}"'.encode() for name, value in parameters)


def _quoted(value: str) -> str:
    """Returns the text with nothing in it that a quoted string of RFC 6750 may not hold: visible ASCII and spaces,
    without quotation marks and backslashes."""
    return "".join(char if " " <= char <= "~" and char not in '"\\' else "'" if char == '"' else "?" for char in value)
