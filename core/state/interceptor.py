"""Interceptors: what may decide about a request on its way up, and about an answer on its way down.

An interceptor is one ability of the proxy: it answers or holds back a request, changes a result, or repeats a call. The
interceptors of a link are an ordered list (`Interceptors`), made once for each server from the table in
`routing/interceptors.py`. A request meets them in that order on its way up, and its response in the reverse order.

A link on which no interceptor has a say in plain calls takes the fast path (`routing/fast_path_rules`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from ..base.events import Cause, Headers
from ..base.plan import ServerPlan
from ..jsonrpc.envelope import Frame

if TYPE_CHECKING:
    from .exchange import Exchange
    from .link import Link, OwnRequest
    from .listen_filter import ListenFilter
    from .session import PendingQuestion, Session


class Interceptor:
    """One ability of the proxy. A subclass defines the hooks that it needs; the others are never called.

    All hooks may raise RemoteProtocolError for a message of a server that cannot be read, where the hook says so.
    """

    name: str
    """The name in the table of the order."""
    purposes: frozenset[str] = frozenset()
    """The purposes of the requests that it sends to servers itself (`OwnRequest.purpose`)."""

    def is_for(self, plan: ServerPlan) -> bool:
        """True if it can have a say in requests of a server with this plan."""
        return True

    def has_say(self, link: Link) -> bool:
        """True if it can have a say in plain calls of a link that is ready: requests without progress, tasks or state
        of an earlier round, and their results."""
        return True

    # --- Up -----------------------------------------------------------------------------------------------------

    def receive_request(self, link: Link, exchange: Exchange) -> bool:
        """Handles a request that its client has sent. True if it is answered here, or sent on later
        (`LinkRouter.forward`)."""
        raise NotImplementedError

    def receive_waiting(self, link: Link, exchange: Exchange) -> None:
        """Handles a request that was queued since its server is not ready. It may be over by now."""
        raise NotImplementedError

    def prepare(self, link: Link, exchange: Exchange) -> bool:
        """Handles a request that is about to be written to a server that is ready. True if it is answered here, or sent
        on later (`LinkRouter.send`)."""
        raise NotImplementedError

    def adapt_request(
        self, link: Link, exchange: Exchange, params: bytes | None, headers: Headers
    ) -> tuple[bytes | None, Headers]:
        """Returns the params of a request, in the words of its server, and the HTTP headers beside them, as they are
        written now. The params of the exchange stay as they are: they are compared with those of other requests, and
        may be sent again.

        Raises:
            RemoteProtocolError: the params cannot be changed; the client gets an error that says so.
        """
        raise NotImplementedError

    def receive_sent(self, link: Link, exchange: Exchange) -> None:
        """Handles a request that was written to its server."""
        raise NotImplementedError

    def receive_client_answer(self, link: Link, session: Session, question: PendingQuestion, answer: Frame) -> bool:
        """Handles a client's response to a question. True if the question was asked here, and not by the server as a
        request."""
        raise NotImplementedError

    def receive_login(self, link: Link, exchange: Exchange, page: bytes) -> bool:
        """Handles a request that was not sent because its caller has to log in at the server first. True if the client
        is asked to here.

        Args:
            page: the params of an `elicitation/create` in URL mode.
        """
        raise NotImplementedError

    # --- Down ---------------------------------------------------------------------------------------------------

    def receive_response(self, link: Link, exchange: Exchange, frame: Frame) -> bool:
        """Handles a response as the server sent it. True if the request goes on, or was finished here.

        Raises:
            RemoteProtocolError: the response is broken; the client gets an error that says so.
        """
        raise NotImplementedError

    def receive_result(self, link: Link, exchange: Exchange, result: bytes) -> bytes | None:
        """Returns the result of a request for its client; None if it is given to the client here, now or later.

        Raises:
            RemoteProtocolError: the result cannot be read; the client gets an error that says so.
        """
        raise NotImplementedError

    def receive_error(self, link: Link, exchange: Exchange, error: bytes) -> bytes:
        """Returns the error of a request for its client."""
        raise NotImplementedError

    def adapt_notification(self, link: Link, frame: Frame) -> Frame:
        """Returns a notification of the server as all that handle it are to see it."""
        raise NotImplementedError

    def receive_notification(self, link: Link, frame: Frame, related: Exchange | None) -> bool:
        """Handles a notification of the server. True if no other reader gets it. `related` is the request on whose
        stream it came.

        Raises:
            RemoteProtocolError: it cannot be read. Nothing has changed.
        """
        raise NotImplementedError

    def receive_own_response(self, link: Link, own_request: OwnRequest, frame: Frame) -> None:
        """Handles the response to a request of this interceptor's own, or an error in its place."""
        raise NotImplementedError

    def receive_own_failure(self, link: Link, own_request: OwnRequest, cause: Cause) -> bool:
        """Handles the loss of such a request. False if it is to be handled as an error response."""
        return False

    def receive_unexpected(self, link: Link, number: int, frame: Frame) -> None:
        """Handles a response that no request waits for any more."""
        raise NotImplementedError

    # --- Ends ---------------------------------------------------------------------------------------------------

    def cancel(self, link: Link, exchange: Exchange) -> None:
        """Handles the cancellation of a request, before `forget`."""
        raise NotImplementedError

    def receive_withdrawn(self, link: Link, exchange: Exchange) -> None:
        """Handles a request whose response is not awaited any more though the server works on it."""
        raise NotImplementedError

    def forget(self, link: Link | None, session: Session, exchange: Exchange) -> None:
        """Drops what is kept for a request that is over, however it ended. `link` is None if it ended before."""
        raise NotImplementedError

    # --- The server ---------------------------------------------------------------------------------------------

    def introduce(self, link: Link) -> bool:
        """Handles the beginning of a handshake. True if clients are given its result before it is over."""
        raise NotImplementedError

    def adapt_handshake(self, link: Link, result: bytes) -> bytes:
        """Returns the handshake result of the server that clients are shown."""
        raise NotImplementedError

    def read_tools(self, link: Link, result: bytes, *, is_first: bool) -> None:
        """Reads a page of the server's list of tools, which the proxy has requested itself."""
        raise NotImplementedError

    def grant(self, link: Link, session: Session, wanted: ListenFilter) -> ListenFilter:
        """Returns the part of a subscription whose notifications come from the proxy, whatever the server offers."""
        raise NotImplementedError

    def grant_tasks(self, link: Link, exchange: Exchange, wanted: ListenFilter) -> ListenFilter:
        """Returns the part of a subscription that names tasks which its client may know of."""
        raise NotImplementedError

    def receive_watched(self, task: str) -> None:
        """Handles a new subscription to a task."""
        raise NotImplementedError

    def receive_ready(self, link: Link) -> None:
        """Handles a server that is ready for requests, for the first time or again."""
        raise NotImplementedError

    def receive_lost(self, link: Link, reason: str) -> None:
        """Handles the loss of a server."""
        raise NotImplementedError


H = TypeVar("H")


class Interceptors:
    """The interceptors of one link: for each hook, those that have it. Hooks of the way up stand in the order of the
    table, those of the way down in the reverse order.

    Attributes:
        ordered: all of them, in the order of the table.
    """

    def __init__(self, ordered: Sequence[Interceptor]) -> None:
        self.ordered = tuple(ordered)
        self.receive_request = self._up(Interceptor.receive_request)
        self.receive_waiting = self._up(Interceptor.receive_waiting)
        self.prepare = self._up(Interceptor.prepare)
        self.adapt_request = self._up(Interceptor.adapt_request)
        self.receive_sent = self._up(Interceptor.receive_sent)
        self.receive_client_answer = self._down(Interceptor.receive_client_answer)
        self.receive_login = self._up(Interceptor.receive_login)
        self.receive_response = self._down(Interceptor.receive_response)
        self.receive_result = self._down(Interceptor.receive_result)
        self.receive_error = self._down(Interceptor.receive_error)
        self.adapt_notification = self._down(Interceptor.adapt_notification)
        self.receive_notification = self._down(Interceptor.receive_notification)
        self.receive_unexpected = self._down(Interceptor.receive_unexpected)
        self.cancel = self._up(Interceptor.cancel)
        self.receive_withdrawn = self._down(Interceptor.receive_withdrawn)
        self.forget = self._down(Interceptor.forget)
        self.introduce = self._up(Interceptor.introduce)
        self.adapt_handshake = self._up(Interceptor.adapt_handshake)
        self.read_tools = self._up(Interceptor.read_tools)
        self.grant = self._up(Interceptor.grant)
        self.grant_tasks = self._up(Interceptor.grant_tasks)
        self.receive_watched = self._up(Interceptor.receive_watched)
        self.receive_ready = self._up(Interceptor.receive_ready)
        self.receive_lost = self._up(Interceptor.receive_lost)
        self._after = {
            each.name: tuple(hook for other, hook in self._places(Interceptor.receive_request) if other > place)
            for place, each in enumerate(self.ordered)
        }
        self.by_purpose = {purpose: each for each in ordered for purpose in each.purposes}

    def after(self, name: str) -> tuple[Callable[[Link, Exchange], bool], ...]:
        """Returns `receive_request` of the interceptors after the one of that name."""
        return self._after[name]

    def _places(self, hook: Callable[..., H]) -> list[tuple[int, Callable[..., H]]]:
        """Returns the interceptors that have a hook, each as its place and its own version of the hook."""
        name, places = hook.__name__, enumerate(self.ordered)
        return [(place, getattr(each, name)) for place, each in places if getattr(type(each), name) is not hook]

    def _up(self, hook: Callable[..., H]) -> tuple[Callable[..., H], ...]:
        return tuple(own for _, own in self._places(hook))

    def _down(self, hook: Callable[..., H]) -> tuple[Callable[..., H], ...]:
        return self._up(hook)[::-1]
