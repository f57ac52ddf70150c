"""The rules for requests of sessions that share one server process."""

from __future__ import annotations

from ..base.errors import RemoteProtocolError
from ..base.methods import MAY_ASK
from ..base.plan import ServerPlan, Sharing
from ..jsonrpc import envelope
from ..state.exchange import Exchange
from ..state.interceptor import Interceptor
from ..state.link import Link


class SharedSettings(Interceptor):
    """Merges the log level and the subscriptions of the sessions."""

    name = "shared settings"

    def is_for(self, plan: ServerPlan) -> bool:
        return plan.sharing is not Sharing.NONE

    def receive_request(self, link: Link, exchange: Exchange) -> bool:
        if link.shared_process is None or link.is_stateless:
            return False  # a stateless server has no settings
        try:
            if not link.shared_process.receive_setting(exchange):
                return False
        except RemoteProtocolError as error:
            message = envelope.encode_error(exchange.id_raw, error.rpc_code, error.message)
        else:
            message = envelope.encode_result(exchange.id_raw, b"{}")
        link.router.finish(link, exchange, message)
        return True


class SerialTurn(Interceptor):
    """Sends one request at a time (`sharing: serial`): the next one goes up when the one before is answered."""

    name = "serial turn"

    def is_for(self, plan: ServerPlan) -> bool:
        return plan.sharing is Sharing.SERIAL

    def prepare(self, link: Link, exchange: Exchange) -> bool:
        if link.shared_process is None or exchange.method not in MAY_ASK:
            return False
        return not link.shared_process.take_turn(exchange)
