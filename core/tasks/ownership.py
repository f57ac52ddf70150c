"""Whose tasks are whose.

A principal's tasks are its own, whatever session they were made in. Of clients that nobody knows, those with sessions
are told apart by these, as long as a session lives; afterwards, and among those without, whoever names a task is its
owner: its id cannot be guessed (2025-11-25 basic/utilities/tasks, "Task Isolation and Access Control").
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import msgspec

from ..state.session import Session
from ..state.task import Task


def owner_of(session: Session) -> str:
    """A hash of whom the tasks of a session belong to. Credentials that are passed on are a part of that: by them the
    server may know whose a call is."""
    headers = () if session.affinity is None else session.affinity.audience.headers
    said = (session.is_stateless, session.server, session.principal, headers)
    return hashlib.sha256(msgspec.json.encode(said)).hexdigest()[:32]


def payer_of(principal: str) -> str:
    """A hash of a principal, for counting what is theirs."""
    return hashlib.sha256(principal.encode()).hexdigest()[:32]


def may_see(session: Session, task: Task, *, is_live: Callable[[str], bool]) -> bool:
    """Whether a session's client may know of a task.

    Args:
        is_live: whether there still is a session of that public name.
    """
    if task.server != session.server or task.owner != owner_of(session):
        return False
    return not task.sid or task.sid == session.sid or not is_live(task.sid)


def is_shown(session: Session, task: Task) -> bool:
    """Whether a task is in a session's list: what may be known, and of unknown clients only what is theirs already."""
    if task.server != session.server or task.owner != owner_of(session):
        return False
    return task.sid == session.sid if task.sid else bool(session.principal)
