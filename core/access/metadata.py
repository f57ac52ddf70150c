"""Protected-resource metadata: where clients learn which issuers give tokens for an endpoint (RFC 9728).

The endpoints of a server or a profile are the resources: `/mcp/ID`, `/sse/ID` and `/ws/ID` below the base URL, for one
of them the same without the id, and the base URL itself, for a token that is good for everything here.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import msgspec

WELL_KNOWN: Final = "/.well-known/oauth-protected-resource"
AREAS: Final = ("mcp", "sse", "ws")
"""The first parts of the paths of endpoints."""


def resource_paths(server: str, unnamed: str) -> list[str]:
    """Returns the paths of the endpoints of a server or profile. `unnamed`: the id of the one without an id in them."""
    paths = [f"/{area}/{server}" for area in AREAS]
    return [*paths, *(f"/{area}" for area in AREAS)] if server == unnamed else paths


def resource_path(path: str, servers: Collection[str], unnamed: str) -> str | None:
    """Returns the path of the resource at a path, "" for the base; None if there is none. A slash at the end does not
    count.

    Args:
        servers: the ids of all servers and profiles.
        unnamed: the id of the one whose endpoints are without an id, too; "" if there is none.
    """
    if "//" in path or (path and path[0] != "/"):
        return None
    area, _, server = path.strip("/").partition("/")
    if not area:
        return ""
    if area not in AREAS or (server not in servers if server else not unnamed):
        return None
    return f"/{area}/{server}" if server else f"/{area}"


def metadata_url(base_url: str, path: str) -> str:
    """Returns the address of the metadata of the resource at a path below a base URL (RFC 9728, 3.1)."""
    scheme, _, rest = base_url.partition("://")
    authority, slash, prefix = rest.partition("/")
    return f"{scheme}://{authority}{WELL_KNOWN}{slash}{prefix}{path}"


def resource_metadata(resource: str, issuers: Sequence[str], scopes: Collection[str]) -> bytes:
    """Returns the metadata of a resource, as JSON.

    Args:
        resource: its URL. RFC 9728, 3.3: it "MUST be identical" to the one that the client asked about.
        scopes: those that its operations may need. 2026-07-28 basic/authorization: without `offline_access`.
    """
    found: dict[str, object] = {"resource": resource, "authorization_servers": list(issuers)}
    if scopes:
        found["scopes_supported"] = sorted(scopes)
    return msgspec.json.encode(found | {"bearer_methods_supported": ["header"]})
