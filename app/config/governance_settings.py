"""The part of a configuration about what servers list and how often it is used: what was approved, how clients are
shown it, and how many calls callers may make."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from .value_types import Count, Seconds, Texts, about


class Pins(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Definitions of tools, prompts and resources that differ from those in the lock, which `isthmus pin` writes."""

    mode: Annotated[
        Literal["off", "warn", "block"] | None,
        about(
            "block: a definition that has changed is left out of lists, and refused when it is used. warn: it is "
            "logged. null: warn if there is a lock, else off."
        ),
    ] = None
    file: Annotated[str, Meta(min_length=1, description="The lock. A relative path starts from this file.")] = (
        "isthmus.lock"
    )
    new: Annotated[
        Literal["allow", "hide"], about("What is done about definitions that are not in the lock, with warn and block.")
    ] = "allow"
    ignore: Annotated[
        Texts,
        about(
            "Members that may change, such as annotations or, of one server, ID/description, for a description with "
            "the date in it."
        ),
    ] = ()


class Clean(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Invisible characters in what servers list."""

    mode: Annotated[
        Literal["off", "clean", "block"],
        about(
            "clean: they are dropped from titles and descriptions, and long ones are cut. block: a definition that has "
            "any is left out of lists, and refused when it is used."
        ),
    ] = "off"


class ToolOverride(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Another name or other texts for a tool."""

    rename: Annotated[
        str | None, about("The name that clients see. All other settings go on speaking of the server's name.")
    ] = None
    title: Annotated[str | None, about("The title that clients see.")] = None
    description: Annotated[str | None, about("The description that clients see.")] = None


Descriptions = Literal["keep", "first-sentence"] | Annotated[int, Meta(gt=0, le=1_000_000)]
"""The part of a description that is shown: all of it, its first sentence, or a number of characters."""


class RateLimit(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A limit to the rate of calls."""

    calls: Annotated[
        Count, about("How many calls may be made at once; as many come back, evenly, in each per_seconds.")
    ]
    per_seconds: Annotated[Seconds, about("The time in which they come back.")]
    tools: Annotated[
        Texts,
        Meta(
            min_length=1,
            description="Names of tools, as the server has them, or patterns with *, ? and [...]. Calls of all of them "
            "count together.",
        ),
    ] = ("*",)
    by: Annotated[
        Literal["caller", "server"], about("caller: each caller may make so many. server: all callers together.")
    ] = "caller"
