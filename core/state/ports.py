"""The ports through which a lower room reaches an upper one.

Calls between rooms go down: an upper room imports a lower one and calls it. A session, a link and an exchange carry the
few objects that are called upwards, each given to their constructor by the room that made it. So every part of the
engine is complete once it is constructed, and a room that is left out of a copy is never called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from ..base.events import Headers
from ..jsonrpc.envelope import Frame

if TYPE_CHECKING:
    from .exchange import Exchange, Plain, Reply
    from .link import Link, StatelessParams
    from .listen_filter import ListenFilter
    from .session import PendingQuestion, Session


class PlainWay(Protocol):
    """The way of a plain call to its server, which can take it now."""

    @property
    def plain(self) -> Plain | None:
        """The mark of the client's call; None if another one is sent on for it."""

    def send(self, exchange: Exchange) -> None:
        """Sends the client's call, which its session has."""


class SessionRouter(Protocol):
    """Routes what a session sends to its server (`Session.router`). Implemented by `routing.Router`.

    In all methods, `headers` are those of the client's request that caused the message, or the session's latest.
    """

    def begin(self, session: Session, initialize: bytes) -> None:
        """Opens the link of a new session; `initialize` is the JSON of its params."""

    def begin_stateless(self, session: Session) -> None:
        """Opens the link of a session whose client has none; the server is not dialled before it is needed."""

    def has_room(self, session: Session) -> bool:
        """True if the server can take more from a client that cannot be paused."""

    def request(self, session: Session, exchange: Exchange) -> None:
        """Sends a client's request."""

    def plain_way(
        self, session: Session, method: str, params: bytes | None, stateless_params: StatelessParams | None
    ) -> PlainWay | None:
        """Returns the way of a call that may be plain; None if it is not, and `request` has to send it. Nothing has
        changed.

        Args:
            params, stateless_params: as `PlainTranslation.up` gets them.
        """

    def repeat(self, session: Session, exchange: Exchange) -> None:
        """Sends a request again that the server refused for now."""

    def expect_reply(self, session: Session, exchange: Exchange) -> None:
        """Restarts the server's time to respond, after it waited for the client."""

    def withdraw(self, session: Session, exchange: Exchange, params: bytes | None, headers: Headers) -> None:
        """Drops a request, and tells the server if it works on it.

        Args:
            params: those of the client's `notifications/cancelled`, an object with each member once.
        """

    def notify(self, session: Session, method: str, params: bytes | None, headers: Headers) -> None:
        """Sends a client's notification."""

    def reply(self, session: Session, question: PendingQuestion, answer: Frame, headers: Headers) -> None:
        """Sends the response to a server request."""

    def tick(self, session: Session, question: PendingQuestion, count: int) -> None:
        """Sends progress of a question that the client has not answered yet, as number `count`."""

    def is_used(self, session: Session) -> bool:
        """True if a session must not end for idleness: a file is being uploaded for it."""

    def keeps_state(self, session: Session) -> bool:
        """True if a server has a process, connection or session for this one alone now, and may remember something."""

    def close_session(self, session: Session) -> None:
        """Handles the coming end of a session: tasks and uploads of the session end. Its requests are still open."""

    def end(self, session: Session, questions: list[PendingQuestion]) -> None:
        """Ends the link of a session that is over; `questions` are the server requests that it has not answered."""

    def is_live(self, sid: str) -> bool:
        """True if a session of that public name has a link."""

    def link_of(self, exchange: Exchange) -> Link | None:
        """Returns the link that carries a request; None if it has ended."""

    def earlier_link_of(
        self, session: Session, exchange: Exchange, upstream: str, revision: str, address: str = ""
    ) -> Link:
        """Returns a link to the server of a task that an earlier run began.

        Args:
            upstream: the `Mcp-Session-Id` that the task was begun with; "" if there is none.
            revision: of that session.
        """

    def server_of(self, session: Session, exchange: Exchange) -> tuple[str, bytes | None]:
        """Returns the server of a request that is open, and the params of the request there; "" if it has none."""

    def session_with(self, session: Session) -> tuple[str, str, str]:
        """Returns the `Mcp-Session-Id` of the session with the server, its revision, and the name of its address; ""
        where there is none."""

    def leave(self, session: Session, exchange: Exchange) -> None:
        """Leaves a call to its server, which goes on with it though its session ends."""


RouterOf = Callable[[str], SessionRouter]
"""Returns the router for sessions at an endpoint, by the id of its server or profile."""


class LinkRouter(Protocol):
    """Decides what happens to the requests of a link (`Link.router`). Implemented by `routing.Router`."""

    def forward(self, link: Link, exchange: Exchange, *, after: str) -> None:
        """Sends a request on that the interceptor of the name `after` has held back."""

    def send(self, link: Link, exchange: Exchange) -> None:
        """Sends a queued request to a server that is ready."""

    def open_listen(self, link: Link) -> bool:
        """Subscribes with a server without sessions that can now be reached. True if there is nothing to subscribe
        before requests may pass."""

    def resend(self, link: Link, exchange: Exchange) -> None:
        """Sends a request once more: the server asked for that, or refused its form."""

    def renegotiate(self, link: Link, exchange: Exchange, *, for_tasks: bool = False) -> None:
        """Determines the server's revision anew, then sends the request again."""

    def read_tools(self, link: Link, exchange: Exchange) -> None:
        """Reads the server's list of tools, then sends the request."""

    def receive_response(self, link: Link, exchange: Exchange, frame: Frame) -> None:
        """Handles the server's response to a request, however it was fetched."""

    def receive_kept(self, link: Link, exchange: Exchange, frame: Frame) -> None:
        """Handles a response that the server gave to an equal request earlier."""

    def finish(self, link: Link, exchange: Exchange, message: bytes) -> None:
        """Gives a request its response."""

    def lose(self, link: Link, reason: str, *, error: bytes | None = None) -> None:
        """Ends the upstream session, as its server is lost. `error` is the server's answer to `initialize`, if any."""

    def give_up(self, link: Link, reason: str) -> None:
        """Fails all that waits for a server that cannot be had."""


class StatelessReplies(Protocol):
    """Replies to a client without sessions (`Session.replies`). Implemented by `endpoints.StatelessResponder`."""

    def holds(self, session: Session) -> bool:
        """True if anything is kept that the client may come back for."""

    def keeps(self, session: Session, exchange: Exchange, message: bytes) -> bool:
        """Handles the response to a call. True if the client is away, and gets it when it comes back."""

    def shown(self, session: Session, exchange: Exchange, message: bytes) -> bytes:
        """Returns a response in the client's era, under the id of the request that waits for it."""

    def server_info(self, session: Session) -> bytes | None:
        """Returns the server's name in the results that the client is shown, as JSON; None if they have none."""

    def deliver(self, session: Session, method: str, message: bytes, related: Exchange | None) -> None:
        """Delivers a notification of the server."""

    def tell_progress(self, session: Session, exchange: Exchange, message: bytes) -> None:
        """Sends progress of a call, or keeps it while the client is away."""

    def ask(self, session: Session, question: PendingQuestion, params: bytes | None, related: Exchange | None) -> None:
        """Asks a question of the server in the response to a call."""

    def cancel_question(self, session: Session, number: int) -> None:
        """Withdraws a question."""

    def cancel(self, session: Session, exchange: Exchange) -> None:
        """Handles a client's cancellation of a call: open questions are answered in the client's place."""

    def release(self, exchange: Exchange) -> None:
        """Handles a call that becomes a task: from now on its questions are those of the task."""

    def receive_settled(self, session: Session) -> None:
        """Handles the end of a request."""

    def close_session(self, session: Session) -> None:
        """Handles the coming end of the session."""


class TaskDirectory(Protocol):
    """The tasks of all servers, as a profile asks for them. Implemented by `tasks.Tasks`."""

    def wait_for_task(self, id: str, then: Callable[[str], None]) -> bool:
        """True if a task of another replica is looked for now. Calls `then` at the end, with the text of the error if
        the storage had a problem; else with ""."""

    def server_of(self, session: Session, id: str) -> str | None:
        """Returns the server of a task of the client of a session with a profile; None if there is no such task."""

    def list_of(self, session: Session, exchange: Exchange, legs: Mapping[str, str]) -> None:
        """Answers a `tasks/list` of a session with a profile.

        Args:
            legs: the servers that its client may see, each with the public name of the session's leg, or ""; and the
                profile itself, with that of the session.
        """

    def receive_call(self, session: Session, exchange: Exchange) -> None:
        """Handles a call of a tool of the profile itself, whose client has a session and may ask for a task.

        Raises:
            RemoteProtocolError: it asks for one, and there is no place for it.
        """

    def receive_request(self, session: Session, exchange: Exchange) -> None:
        """Handles a request about one task of such a call."""


class FileDirectory(Protocol):
    """The files of all servers, as a profile asks for them. Implemented by `files.Files`."""

    def wait_for_files(self, params: bytes | None, then: Callable[[str], None]) -> bool:
        """True if params name files of other processes that are looked for now. Calls `then` at the end, with the text
        of the error if the storage had a problem; else with ""."""

    def server_of(self, session: Session, uri: str) -> str:
        """Returns the server of an artifact of the client of a session with a profile.

        Raises:
            RemoteProtocolError: there is none that the client may read. It says what became of it.
        """

    def entries_of(self, session: Session) -> Mapping[str, bytes] | None:
        """Returns the entries of the artifacts of such a session in `resources/list`, by URI; None if its servers never
        have any."""

    def granted(self, session: Session, wanted: ListenFilter) -> ListenFilter:
        """Returns the part of a subscription of such a session that is about artifacts."""


class TaskKeeper(Protocol):
    """Keeps a call that may become a task, or waits for one (`Exchange.keeper`). Implemented by `tasks.LocalTasks`."""

    def receive_answer(self, session: Session, exchange: Exchange, message: bytes) -> None:
        """Handles the response to a call: one that was to become a task, and did not, may become one now."""

    def receive_settled(self, session: Session, exchange: Exchange, message: bytes | None) -> None:
        """Handles the end of a call that is a task. `message` is its response; None: it was cancelled."""

    def release(self, session: Session, exchange: Exchange) -> None:
        """Drops what is kept for a request that is over."""

    def receive_progress(self, session: Session, exchange: Exchange, message: bytes) -> None:
        """Sends progress of a task."""

    def ask(self, session: Session, question: PendingQuestion, params: bytes | None, exchange: Exchange) -> None:
        """Handles a question of the server in the course of a task."""

    def receive_settled_question(self, exchange: Exchange, number: int) -> None:
        """Handles the end of such a question: it was answered or withdrawn."""

    def hang_up(self, session: Session, exchange: Exchange, reply: Reply) -> None:
        """Handles the loss of the connection on which the client waits for the task's handle."""
