"""The owners of tasks: which client may see which task.

A principal owns its tasks, whatever session they were made in. Anonymous clients with sessions own the tasks of their
session, as long as that lasts. Afterwards, and for anonymous stateless clients, anyone who names a task owns it, since
its id cannot be guessed (2025-11-25 basic/utilities/tasks, "Task Isolation and Access Control").
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping

import msgspec

from ..state.session import Session
from ..state.task import Task


def owner_of(session: Session, server: str = "") -> str:
    """Returns a hash of the owner of a session's tasks: 32 hex digits. It covers the credentials that are passed on to
    the server, which may tell users apart by them.

    Args:
        server: of the tasks, if the session is one with a profile.
    """
    headers = () if session.affinity is None else session.affinity.audience.headers
    identity = (session.is_stateless, server or session.server, session.principal, headers)
    return hashlib.sha256(msgspec.json.encode(identity)).hexdigest()[:32]


def payer_of(principal: str) -> str:
    """Returns a hash of a principal, under which its tasks are counted: 32 hex digits."""
    return hashlib.sha256(principal.encode()).hexdigest()[:32]


def may_see(session: Session, task: Task, *, is_live: Callable[[str], bool]) -> bool:
    """True if a session's client may see a task that it names.

    Args:
        is_live: returns True if a session of that public name still lasts.
    """
    if task.server != session.server or task.owner != owner_of(session):
        return False
    return not task.sid or task.sid == session.sid or not is_live(task.sid)


def is_shown(session: Session, task: Task, legs: Mapping[str, str] | None = None) -> bool:
    """True if a task is in a session's `tasks/list`. Stricter than `may_see`: an anonymous client is shown only the
    tasks of its own session.

    Args:
        legs: for a session with a profile: its servers, each with the public name of the session's leg, or "".
    """
    sids = {session.server: session.sid} if legs is None else legs
    if task.server not in sids or task.owner != owner_of(session, task.server):
        return False
    return task.sid == sids[task.server] if task.sid else bool(session.principal)
