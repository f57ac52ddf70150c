"""The rooms that a copy of `core/` may leave out: `files/`, `tasks/` and `input_required/`.

A room is used if its folder is there. Without `tasks`, no task is offered, and those of servers are hidden. Without
`input_required`, only the handshake era is spoken, on both sides. Without `files`, a plan with files is refused.
`docs/vendoring.md` says what else may go with each.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from .base.errors import LocalProtocolError
from .base.plan import Plan
from .base.revisions import Era
from .downstream.downstream import Downstream
from .state.context import Context
from .state.feature import Feature
from .state.storage_orders import StorageOrders
from .subscriptions.changed_lists import ChangedLists
from .subscriptions.subscriptions import Subscriptions
from .upstream.upstream import Upstream

if TYPE_CHECKING:
    from .files.feature import Files
    from .input_required.questions import Questions
    from .state.records import StoredArtifact, StoredTask, StoredUpload
    from .tasks.feature import Tasks


def has_room(name: str) -> bool:
    """True if the folder is part of this copy."""
    return find_spec(f"{__package__}.{name}") is not None


_HAS_FILES, _HAS_TASKS, _HAS_QUESTIONS = has_room("files"), has_room("tasks"), has_room("input_required")


class Features(NamedTuple):
    """The features of an engine; None for a room that is left out, and for what only several replicas need."""

    questions: Questions | None
    tasks: Tasks | None
    files: Files | None
    changed_lists: ChangedLists | None

    @property
    def present(self) -> list[Feature]:
        """The features that there are."""
        return [feature for feature in self if feature is not None]


def features_of(
    context: Context,
    storage_orders: StorageOrders,
    downstream: Downstream,
    upstream: Upstream,
    subscriptions: Subscriptions,
    *,
    stored: Iterable[StoredArtifact],
    stored_uploads: Iterable[StoredUpload],
    stored_tasks: Iterable[StoredTask],
) -> Features:
    """Constructs the features of an engine. The imports stand here, since the folders may be missing."""
    questions = tasks = files = None
    if _HAS_QUESTIONS:
        from .input_required.questions import Questions

        questions = Questions(context, downstream.sessions, downstream.responder)
    if _HAS_TASKS:
        from .tasks.feature import Tasks

        tasks = Tasks(context, storage_orders, downstream, upstream, subscriptions, stored_tasks)
    if _HAS_FILES:
        from .files.feature import Files

        files = Files(context, storage_orders, downstream, upstream, stored_uploads=stored_uploads, stored=stored)
    changed_lists = None
    if context.plan.replica is not None:
        changed_lists = ChangedLists(context, storage_orders, downstream.responder, downstream.sessions)
    return Features(questions, tasks, files, changed_lists)


def plan_for(plan: Plan) -> Plan:
    """Returns the plan as this copy can carry it out.

    Raises:
        LocalProtocolError: a server asks for something whose room is left out.
    """
    if _HAS_FILES and _HAS_TASKS and _HAS_QUESTIONS:
        return plan
    servers = []
    for server in plan.servers:
        if server.has_files and not _HAS_FILES:
            raise LocalProtocolError(f"server {server.id} has files, and this copy was made without files")
        if server.tasks.are_offered and not _HAS_TASKS:
            raise LocalProtocolError(f"server {server.id} offers tasks, and this copy was made without tasks")
        if not _HAS_QUESTIONS:
            if server.era is Era.STATELESS:
                raise LocalProtocolError(
                    f"server {server.id} has the stateless era, and this copy was made without input_required"
                )
            server = msgspec.structs.replace(server, era=Era.HANDSHAKE)
        servers.append(server)
    return msgspec.structs.replace(plan, servers=tuple(servers))
