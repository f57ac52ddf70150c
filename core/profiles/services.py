"""The parts of the engine that profiles ask for what is not their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..downstream.downstream import Downstream
from ..state.advertised import Advertised
from ..state.ports import FileDirectory, SessionRouter, TaskDirectory
from ..state.storage_orders import StorageOrders
from ..subscriptions.client_listens import ClientListens

if TYPE_CHECKING:
    from ..input_required.url_elicitation import UrlElicitation


class Services(NamedTuple):
    """Parts of the engine. One is None if this copy was made without it.

    Attributes:
        router: routes the requests of sessions with one server.
        storage_orders: for the lists that are stored.
        advertised: the arguments that clients are told to repeat in headers.
        tasks: the tasks of all servers.
        files: the files of all servers.
        visits: the calls that wait for a visit to a page.
    """

    router: SessionRouter
    downstream: Downstream
    storage_orders: StorageOrders
    client_listens: ClientListens
    advertised: Advertised
    tasks: TaskDirectory | None
    files: FileDirectory | None
    visits: UrlElicitation | None
