"""Kinds of clients: the lists that a profile keeps are those of one kind."""

from __future__ import annotations

from typing import NamedTuple

from ..base.events import Headers
from ..base.grants import Grants


class ClientKind(NamedTuple):
    """The properties of a client that a server's answers may depend on. Lists are kept for all clients of a kind."""

    principal: str
    headers: Headers
    is_stateless: bool
    revision: str
    capabilities: str
    grants: Grants
