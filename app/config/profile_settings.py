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
            "What stands before the names of its tools and prompts, and two underscores: a lower-case letter, then up "
            'to 15 of a-z, 0-9 and -. null: it is made of the id. "": nothing, for one server at most.'
        ),
    ] = None


class Profile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An endpoint that shows several servers, at /mcp/ and its id."""

    id: Annotated[Id, about("Names the profile in URLs: another name than that of a server. all is at /mcp, too.")]
    servers: Annotated[
        tuple[str | ProfileServer, ...],
        Meta(min_length=1, description="Its servers, by id, or with an alias: {id: filesystem, alias: fs}."),
    ]
    tools: Annotated[
        Literal["all", "search"],
        about(
            "all: list the tools of the servers; search: list search_tools, call_tool and call_read_only_tool instead, "
            "by which clients find and call them."
        ),
    ] = "all"
    list_wait_seconds: Annotated[
        Seconds, about("How long a list waits for servers of which nothing is known yet. The others are listed then.")
    ] = 3.0
