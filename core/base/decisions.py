"""The order to decide about a request of a client, and the answers that a driver returns for it.

The order comes for servers whose plan `decides`. It is answered by `receive_answer(ticket, answer)`.
"""

from __future__ import annotations

from .effects import Effect
from .errors import DENIED
from .ids import ChannelId, Ticket
from .storage import Answer
from .telemetry import RequestKey


class Decide(Effect, frozen=True):
    """Decides whether a request of a client may go on. Answer: `Allowed` or `Denied`.

    Until then nothing is done for the request, by its server or by the proxy. After `Limits.decision_timeout_s` it is
    denied, and after a `StorageFailed` at once. The order for a request that has ended meanwhile needs no answer.
    """

    ticket: Ticket
    channel: ChannelId
    """The channel that the request came on; of HTTP+SSE, that of the event stream."""
    server: str
    principal: str
    """The principal in the opening of the client's channel."""
    method: str
    name: str | None
    """The name that the server will read: that of the tool or prompt, the URI of the resource, the id of the task, or
    the prompt or URI that a completion is for. None for all other methods."""
    params: bytes | None
    """The JSON of the params, as the client sent them; None if there are none."""
    request: RequestKey
    """The identity of the request, as its telemetry events have it."""
    address: str = ""
    """The address that the client's channel came from, as its opening has it."""


class Allowed(Answer, frozen=True):
    """The answer to `Decide` for a request that goes on."""


class Denied(Answer, frozen=True):
    """The answer to `Decide` for a request that does not. The client gets an error with `message` and `code`."""

    message: str
    code: int = DENIED


Decision = Allowed | Denied
