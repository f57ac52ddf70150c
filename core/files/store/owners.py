"""Owners of files, and who may use a file."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ...state.context import Context
from ...state.session import Session


class Owner(NamedTuple):
    """The owner of a file.

    Attributes:
        is_bearer: stored for a client without sessions.
        is_restored: stored by an earlier run.
    """

    server: str
    principal: str
    sid: str
    is_bearer: bool
    is_restored: bool


class FileUser(NamedTuple):
    """The client of a session, as a user of files.

    Attributes:
        servers: those behind the endpoint of the session: one, or all of a profile.
        sid: the public name of the session that its files are of.
    """

    servers: frozenset[str]
    sid: str
    principal: str

    def may_use(self, owner: Owner, is_live: Callable[[str], bool]) -> bool:
        """True if it may use a file of that owner.

        It may if the file is of one of its servers and of its principal, and is of the same session or of none that
        could still tell its clients apart: of a client without sessions, or of an earlier run.

        Args:
            is_live: returns True if a session of that public name is open.
        """
        if owner.server not in self.servers or owner.principal != self.principal:
            return False
        return owner.sid == self.sid or owner.is_bearer or (owner.is_restored and not is_live(owner.sid))


def user_of(context: Context, session: Session) -> FileUser:
    """Returns the client of a session, as a user of files. A session with one server of a profile may use the files of
    all of them."""
    endpoint = session.server if session.leg is None else session.leg.profile
    return FileUser(context.endpoints[endpoint], session.files_sid, session.principal)
