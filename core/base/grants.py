"""The grants of a caller: what it may ask for, beside who it is."""

from __future__ import annotations

from typing import Final

import msgspec


class Grants(msgspec.Struct, frozen=True):
    """The scopes of a caller's token, and the groups that the caller is in. A new token may bring others, so they are
    no part of who the caller is.

    Attributes:
        issued_at_unix: when the token was issued; None: not known.
    """

    scopes: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    issued_at_unix: float | None = None


NO_GRANTS: Final = Grants()
