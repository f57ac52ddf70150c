"""Whom a test is of."""

from __future__ import annotations

from typing import Final

import msgspec

from ...transports.stdio import ChildSpec

ANSWER_S: Final = 20.0
"""For an answer of a server, whose tools may take a while."""
CLIENT_ANSWER_S: Final = 10.0
"""For one of a client: who answers in its place is a program, as a rule."""


class ServerTarget(msgspec.Struct, frozen=True):
    """A server, by its URL or, where that is None, by the command that starts it.

    Attributes:
        headers: sent to the URL with every request.
        is_safe: call only tools that say that they only read.
        revision: speak this one only; None: all that the server speaks.
        timeout_s: for each answer.
    """

    url: str | None
    spec: ChildSpec
    headers: dict[str, str] = {}
    is_safe: bool = False
    revision: str | None = None
    timeout_s: float = ANSWER_S


class ClientTarget(msgspec.Struct, frozen=True):
    """A client, by the command that starts it: `{url}` and `{server}` in it say where our end is.

    Attributes:
        revision: speak this one only; None: all that the client speaks.
        timeout_s: for each answer, and for each silence.
    """

    spec: ChildSpec
    revision: str | None = None
    timeout_s: float = CLIENT_ANSWER_S
