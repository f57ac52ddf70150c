"""The logins of a running gateway: the tokens of each server that wants them, and the pages where callers log in."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ...core.connect.browser_login import BrowserClient
from ...core.logins.metadata import origin_of
from ...transports.base.tokens import TokensOf
from ...transports.web_fetch import FetchSettings
from ..config.login_checks import exchanges_tokens, logs_in_callers
from ..config.settings import Server, Settings
from .callers import CallerTokens
from .connect_pages import ConnectPages, Issuer
from .store import CredentialStore, default_folder
from .tokens import Ask, ask_for_command, tokens_of


class Logins(msgspec.Struct, frozen=True):
    """The logins.

    Attributes:
        tokens: the tokens of each server that wants them, by id and principal.
        pages: the pages where callers log in; None: there are none.
    """

    tokens: dict[str, TokensOf]
    pages: ConnectPages | None


def set_up(
    settings: Settings,
    login_command: Callable[[str], tuple[str, ...]],
    key: bytes,
    token_of: Callable[[str], str | None],
) -> Logins:
    """Returns the logins for a configuration.

    Args:
        login_command: returns the words of the command that logs in at a server, from its id.
        key: a secret of this gateway.
        token_of: returns the token that a caller has shown, for those that are exchanged.
    """
    servers = [server for server in settings.servers if server.upstream.auth is not None]
    store = CredentialStore(default_folder())
    of_callers = {server.id: server.upstream for server in servers if logs_in_callers(server.upstream)}
    of_persons = {id: upstream for id, upstream in of_callers.items() if not exchanges_tokens(upstream)}
    pages = None
    if of_persons and settings.core.public_base_url is not None:
        pages = ConnectPages(settings.core.public_base_url, key, of_persons, _issuers(settings), store)

    def tokens_for(server: Server) -> TokensOf:
        command = login_command(server.id)
        if server.id not in of_callers:
            tokens = tokens_of(server.id, server.upstream, store, command)
            return lambda _principal: tokens

        def ask_of(principal: str) -> Ask:
            page = None if pages is None else pages.ask_of(server.id, principal)
            return page or ask_for_command(server.id, (*command, "--as", principal))

        return CallerTokens(server.id, server.upstream, store, ask_of, token_of)

    return Logins({server.id: tokens_for(server) for server in servers}, pages)


def _issuers(settings: Settings) -> list[Issuer]:
    found = []
    for issuer in settings.auth.issuers:
        if issuer.client is not None:
            client = BrowserClient(
                issuer.url, issuer.client.client_id, issuer.client.client_secret or "", issuer.principal
            )
            fetching = FetchSettings(origins=frozenset({origin_of(issuer.url)}), ca_file=issuer.ca_file)
            found.append(Issuer(client, fetching))
    return found
