"""The part of a configuration about what servers list and how often it is used: what was approved, how clients are
shown it, and how many calls callers may make."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from .value_types import Count, Seconds, Texts, about


class Pins(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Handling of definitions that differ from the lock file, which `isthmus pin` writes."""

    mode: Annotated[
        Literal["off", "warn", "block"] | None,
        about(
            "block: a changed definition is removed from lists, and its use is rejected. warn: it is logged. null: "
            "warn if there is a lock file, else off."
        ),
    ] = None
    file: Annotated[
        str,
        Meta(
            min_length=1,
            description="Path of the lock file, relative to the configuration file. With storage.records and without "
            "this file, the lock is a record.",
        ),
    ] = "isthmus.lock"
    new: Annotated[
        Literal["allow", "hide"],
        about("With warn and block: whether definitions that are not in the lock file are allowed or hidden."),
    ] = "allow"
    ignore: Annotated[
        Texts,
        about("Members whose changes are ignored, such as annotations, or ID/description for one server."),
    ] = ()


class Clean(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Handling of invisible characters in definitions of servers."""

    mode: Annotated[
        Literal["off", "clean", "block"],
        about(
            "clean: invisible characters are removed from titles and descriptions, and long texts are cut. block: a "
            "definition with invisible characters is removed from lists, and its use is rejected."
        ),
    ] = "off"


class ToolOverride(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Another name or other texts for a tool."""

    rename: Annotated[str | None, about("Name that clients see. All other settings use the name at the server.")] = None
    title: Annotated[str | None, about("The title that clients see.")] = None
    description: Annotated[str | None, about("The description that clients see.")] = None


Descriptions = Literal["keep", "first-sentence"] | Annotated[int, Meta(gt=0, le=1_000_000)]
"""The part of a description that is shown: all of it, its first sentence, or a number of characters."""


class RateLimit(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A limit to the rate of calls."""

    calls: Annotated[Count, about("Number of calls in per_seconds. All may be made at once. The limit refills evenly.")]
    per_seconds: Annotated[Seconds, about("Time in which the limit refills.")]
    tools: Annotated[
        Texts,
        Meta(
            min_length=1,
            description="Names of tools at the server, or patterns with *, ? and [...]. Calls of all these "
            "tools count together.",
        ),
    ] = ("*",)
    by: Annotated[
        Literal["caller", "server"],
        about("caller: a limit for each caller. server: one limit for all callers together."),
    ] = "caller"
