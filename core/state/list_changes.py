"""The changes of lists that the proxy tells a client with a session, by what the client knows of each list.

Some clients read a list in the handler of its `list_changed`, while their first request is open, and hang. So a client
is told of no change before it has the list: the list that it gets then has the change in it. A change while its first
request for the list is open is told after the response, which may have been made before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

LISTS_OF: Final[Mapping[str, frozenset[str]]] = {
    "notifications/tools/list_changed": frozenset({"tools/list"}),
    "notifications/prompts/list_changed": frozenset({"prompts/list"}),
    "notifications/resources/list_changed": frozenset({"resources/list", "resources/templates/list"}),
}
"""The requests that read what each notification is about. A client has the list once one of them was answered."""
NOTIFICATION_OF: Final = {listing: method for method, listings in LISTS_OF.items() for listing in listings}


class ListChanges(NamedTuple):
    """The lists of one session.

    Attributes:
        known: the notifications of the lists that the client has.
        waiting: those that are sent when the first request for their list is answered.
    """

    known: frozenset[str] = frozenset()
    waiting: frozenset[str] = frozenset()

    def receive_change(self, method: str, open_methods: Iterable[str]) -> ListChanges:
        """Handles a change of a list that the client does not have.

        Args:
            method: the notification.
            open_methods: the methods of the client's open requests.
        """
        assert method not in self.known
        is_asked_for = not LISTS_OF[method].isdisjoint(open_methods)
        return self._replace(waiting=self.waiting | {method}) if is_asked_for else self

    def receive_response(self, listing: str) -> ListChanges:
        """Handles the response to a request for a list."""
        method = NOTIFICATION_OF[listing]
        return ListChanges(self.known | {method}, self.waiting - {method})


NO_LISTS: Final = ListChanges()
