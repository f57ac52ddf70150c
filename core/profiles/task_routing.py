"""Requests about tasks at a profile: each goes to the server of the task that it names.

Source: 2025-11-25 basic/utilities/tasks; the tasks extension.
"""

from __future__ import annotations

from collections.abc import Callable

from ..base.errors import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, MISSING_CAPABILITY
from ..base.grants import Grants
from ..bridge.task_support import NEEDED, UNDECLARED, declares
from ..bridge.tasks import UNKNOWN, task_id
from ..downstream.responder import Responder
from ..state.exchange import Exchange, ExchangeInput
from ..state.ports import TaskDirectory
from ..state.session import Session
from .legs import Front
from .profile import ProfileView


class TaskRouting:
    """Routes the requests about tasks of one profile.

    Args:
        tasks: the tasks of all servers; None if this copy has none.
        shows: returns whether a server exists for a caller with these grants.
        send_to: sends a request to a server.
    """

    def __init__(
        self,
        responder: Responder,
        view: ProfileView,
        tasks: TaskDirectory | None,
        shows: Callable[[str, Grants], bool],
        send_to: Callable[[Front, Exchange, str, bytes | None], None],
    ) -> None:
        self._responder = responder
        self._view = view
        self._tasks = tasks
        self._shows = shows
        self._send_to = send_to

    def server_of(self, session: Session, id: str, grants: Grants) -> str | None:
        """Returns the server of a task that the client of a session may see; None if there is none."""
        server = None if self._tasks is None else self._tasks.server_of(session, id)
        return server if server in self._view.servers and self._shows(server, grants) else None

    def request(self, front: Front, exchange: Exchange, grants: Grants) -> None:
        """Sends a request to the server of its task. Lists the tasks of all servers, and answers for those of the
        profile itself."""
        session, tasks = front.session, self._tasks
        if tasks is None or not self._view.has_tasks or not (session.is_stateless or session.features.tasks):
            self._responder.fail(session, exchange, METHOD_NOT_FOUND, f"Method not found: {exchange.method}")
            return
        if session.is_stateless and (exchange.request is None or not declares(exchange.request.capabilities)):
            self._responder.fail(session, exchange, MISSING_CAPABILITY, UNDECLARED, NEEDED)
            return
        id = task_id(exchange.params) or ""

        def go_on(problem: str) -> None:
            if exchange.is_over:
                return  # the client has left meanwhile
            if problem:
                text = f"the task could not be looked up: {problem}"
                self._responder.fail(session, exchange, INTERNAL_ERROR, text)
            else:
                self._send_on(front, exchange, tasks, id, grants)

        if exchange.method == "tasks/list" or not tasks.wait_for_task(id, go_on):
            self._send_on(front, exchange, tasks, id, grants)

    def _send_on(self, front: Front, exchange: Exchange, tasks: TaskDirectory, id: str, grants: Grants) -> None:
        session = front.session
        server = self.server_of(session, id, grants)
        if exchange.method == "tasks/list":
            sids = {one: "" for one in self._view.servers if self._shows(one, grants)}
            sids |= {one: leg.session.sid for one, leg in front.legs.items() if one in sids}
            _prepare(exchange)
            tasks.list_of(session, exchange, sids | {self._view.id: session.sid})
        elif tasks.server_of(session, id) == self._view.id:
            _prepare(exchange)
            tasks.receive_request(session, exchange)
        elif server is None:
            self._responder.fail(session, exchange, INVALID_PARAMS, UNKNOWN)
        else:
            self._send_to(front, exchange, server, exchange.params)


def _prepare(exchange: Exchange) -> None:
    exchange.step(ExchangeInput.PREPARED)
    exchange.receive_written(0, None)
