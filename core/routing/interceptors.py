"""The order of the interceptors: which meets a request first on its way up, and its answer last on the way down.

To add an interceptor, write its class in a file of its own, add a row here that says why it stands where it does, and
construct it in its room's feature or in `Router`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ..base.errors import LocalProtocolError
from ..base.plan import ServerPlan
from ..state.interceptor import Interceptor, Interceptors

ORDER: Final[dict[str, str]] = {
    "presentation": "Every rule speaks of tools by their server's names, so requests have these from here on. It sees "
    "lists last, with all that they keep.",
    "access": "Nothing is done for a request that its caller may not make. It sees lists with all that the proxy "
    "adds to them.",
    "decisions": "Nothing is done for a request before the driver has allowed it.",
    "rate limits": "What is refused above takes nothing of a limit. From here on a call may wait, and is sent again, "
    "which counts nothing.",
    "task requests": "The proxy answers them itself: they are no use of the server, and reach no other interceptor.",
    "idle stop": "From here on a request counts as use of the server.",
    "time limits": "Counts from the arrival of a call, whatever holds it back later.",
    "task room": "The place for a task is there before it is reserved.",
    "task wishes": "Takes the wish out of the params before anything else reads them.",
    "shared settings": "Merges what sessions set in one process, before that is sent.",
    "foreign files": "Loads what is known of the files that a request names, before anything asks for them.",
    "files": "Answers what the proxy adds to the server's lists, which no filter hides, and replaces handles in "
    "arguments.",
    "name filter": "Hides what the server itself has. It sees results after their translation, before the proxy's own "
    "entries are added.",
    "eras": "Translates between revisions. Whatever stands above it sees requests and results in the client's words, "
    "and whatever stands below it in the server's.",
    "definitions": "Judges what the server lists in the server's own words, and refuses uses before they are written.",
    "questions": "Reads the server's questions before a result is translated.",
    "task augmentation": "Decides as late as possible whether the server may make a task of a call: only now is known "
    "what the server's tools support.",
    "server tasks": "A response that is a task is no result yet, so no other interceptor may read it.",
    "session checks": "Asks a session whether its server still knows it. It changes no request and no result.",
    "cache": "Answers what would be written now: every rule has allowed it. It sees a response before anything changes "
    "that, and hands it in again below all rules, so that they hold for each caller.",
    "early answers": "Sees responses as the server sent them, and hands them in again below all rules, so that they "
    "hold for each caller.",
    "changed lists": "Sees the notifications of a process before any other keeps one back.",
    "serial turn": "The last before the server: whatever is decided later would hold up the other sessions.",
    "tracing": "Decides nothing. It sees a request as it is written, once for each attempt.",
}
"""Each interceptor, with the reason for its place."""

_PLACES: Final = {name: place for place, name in enumerate(ORDER)}


def in_order(interceptors: Iterable[Interceptor]) -> list[Interceptor]:
    """Returns the interceptors in the order of the table.

    Raises:
        LocalProtocolError: the table lacks one of them, or has it once and it is given twice.
    """
    ordered = sorted(interceptors, key=lambda each: _PLACES.get(each.name, -1))
    names = [each.name for each in ordered]
    if not set(names) <= set(ORDER) or len(set(names)) != len(names):
        raise LocalProtocolError(f"got the interceptors {names}, expected each of {list(ORDER)} at most once")
    return ordered


def interceptors_of(plan: ServerPlan, ordered: Iterable[Interceptor]) -> Interceptors:
    """Returns those interceptors that can have a say in requests of a server."""
    return Interceptors([each for each in ordered if each.is_for(plan)])
