"""The part of a configuration with the profiles: endpoints that show several servers each."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from .value_types import Id, Seconds, about


class ProfileServer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A server of a profile."""

    id: Annotated[str, about("The id of the server.")]
    alias: Annotated[
        str | None,
        about(
            "Prefix of the names of its tools and prompts, before two underscores: a lower-case letter, then up to 15 "
            'of a-z, 0-9 and -. null: made from the id. "": no prefix, for at most one server.'
        ),
    ] = None


class Profile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An endpoint with several servers, at /mcp/ID."""

    id: Annotated[
        Id,
        about("Name of the profile in URLs. It must differ from the ids of servers. The profile all is also at /mcp."),
    ]
    servers: Annotated[
        tuple[str | ProfileServer, ...],
        Meta(min_length=1, description="Servers of the profile, by id, or with an alias: {id: filesystem, alias: fs}."),
    ]
    tools: Annotated[
        Literal["all", "search"],
        about(
            "all: list all tools. search: list only search_tools, call_tool and call_read_only_tool, with which "
            "clients find and call the others."
        ),
    ] = "all"
    list_wait_seconds: Annotated[
        Seconds,
        about(
            "Maximum time that a list request waits for servers without a stored list. Then it returns the other "
            "servers."
        ),
    ] = 3.0
