"""Owners of files, who may use a file, and the account that it counts in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from ...base.plan import FileScope
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

    def may_use(self, owner: Owner, scope: FileScope, is_live: Callable[[str], bool]) -> bool:
        """True if it may use a file of that owner.

        It may if the file is of one of its servers and of its principal. In scope SESSION the file has to be of the
        same session as well, or of none that could still tell its clients apart: of a client without sessions, or of an
        earlier run.

        Args:
            is_live: returns True if a session of that public name is open.
        """
        if owner.server not in self.servers or owner.principal != self.principal:
            return False
        if scope is FileScope.PRINCIPAL:
            return True
        return owner.sid == self.sid or owner.is_bearer or (owner.is_restored and not is_live(owner.sid))


class Account(NamedTuple):
    """Files that are bounded together: those of one session, or of all sessions of a principal.

    Attributes:
        sid: the public name of the session; "" for all of the principal.
    """

    principal: str
    sid: str


ALL: Final = Account("", "")
"""Stands for all accounts together: every account has a principal or a session."""


def account_of(scope: FileScope, principal: str, sid: str) -> Account:
    """Returns the account of a file that a session of the principal stores.

    Files that outlive their session count for their principal, so that no client has more of them with more sessions.
    Anonymous clients have no principal of their own, and none of them is to use up the room of all.
    """
    return Account(principal, "" if principal and scope is FileScope.PRINCIPAL else sid)


def user_of(context: Context, session: Session) -> FileUser:
    """Returns the client of a session, as a user of files. A session with one server of a profile may use the files of
    all of them."""
    endpoint = session.server if session.leg is None else session.leg.profile
    return FileUser(context.endpoints[endpoint], session.files_sid, session.principal)
