"""The part of a configuration about the live page."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Struct

from .value_types import Texts, about

DEFAULT_UI_LISTEN: Final = "127.0.0.1:8933"
"""The address of `--ui` without one."""


class Ui(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The live page, which shows what crosses Isthmus in a browser."""

    listen: Annotated[
        str | None,
        about(
            "HOST:PORT to listen on for the live page, such as 127.0.0.1:8933. It is never a port that clients use. "
            "null: no live page."
        ),
    ] = None
    bodies: Annotated[
        bool,
        about("Show messages and headers, without the values that redact names. false: only who sent which method."),
    ] = True
    redact: Annotated[
        Texts,
        about(
            "Further names of members whose values are not shown, or parts of names. password, secret, token and "
            "others always count."
        ),
    ] = ()
    actions: Annotated[
        bool, about("Let the live page start and stop servers, cancel tasks, delete files and repeat calls.")
    ] = False
    keep: Annotated[
        bool, about("Log from the start. false: only while the page is open, and for a minute afterwards.")
    ] = False
