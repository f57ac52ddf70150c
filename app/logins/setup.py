"""The logins of a running gateway: the tokens of each server that wants them, and the pages where callers log in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from ...core.connect.browser_login import BrowserClient
from ...core.logins.metadata import origin_of
from ...storage.interface import Records
from ...transports.base.tokens import TokensOf, UpstreamTokens
from ...transports.web_fetch import FetchSettings
from ..config.login_checks import exchanges_tokens, logs_in_callers
from ..config.login_settings import OAuth
from ..config.settings import Server, Settings
from .callers import CallerTokens
from .connect_pages import ConnectPages, Issuer
from .interface import LoginStore
from .shared_store import KIND, SharedStore, group_in
from .store import CredentialStore, default_folder
from .tokens import Ask, PersonTokens, ask_for_command, tokens_of
from .visits import Visits


class Logins:
    """The logins.

    Args:
        settings: those of the gateway.
        login_command: returns the words of the command that logs in at a server, from its id.
        key: a secret of this gateway, the same in all its replicas.
        token_of: returns the token that a caller has shown, for those that are exchanged.
        shared: the store of all replicas; None: the logins are files of this user.
        records: those that have the visits of browsers.

    Attributes:
        tokens: the tokens of each server that wants them, by id and principal.
        pages: the pages where callers log in; None: there are none.
        kind: the first segment of the keys of records that `receive_records` takes; "": there are none.
    """

    def __init__(
        self,
        settings: Settings,
        login_command: Callable[[str], tuple[str, ...]],
        key: bytes,
        token_of: Callable[[str], str | None],
        *,
        shared: SharedStore | None,
        records: Records,
    ) -> None:
        self._login_command = login_command
        self._token_of = token_of
        self._shared = shared
        self._store: LoginStore = CredentialStore(default_folder()) if shared is None else shared
        self.kind = "" if shared is None else KIND
        self._own: list[UpstreamTokens] = []
        self._callers: list[CallerTokens] = []
        servers = [server for server in settings.servers if server.upstream.auth is not None]
        of_callers = {server.id: server.upstream for server in servers if logs_in_callers(server.upstream)}
        of_persons = {id: upstream for id, upstream in of_callers.items() if not exchanges_tokens(upstream)}
        self.pages: ConnectPages | None = None
        if of_persons and settings.core.public_base_url is not None:
            self.pages = ConnectPages(
                settings.core.public_base_url, key, of_persons, _issuers(settings), self._store, Visits(records, key)
            )
        self.tokens = {server.id: self._tokens_for(server) for server in servers}

    def receive_records(self, changes: Iterable[tuple[str, bytes | None]]) -> None:
        """Takes in that other processes have written or removed logins in shared records."""
        groups = {group_in(key) for key, _ in changes}
        if groups and self._shared is not None:
            self._shared.note_change()
        for each in self._persons():
            if each.group in groups:
                each.note_change()

    def known_keys(self) -> set[str]:
        """Returns keys that `receive_records` takes, for all logins in memory."""
        return {f"{KIND}/{each.group}" for each in self._persons()}

    def _persons(self) -> Iterator[PersonTokens]:
        yield from (each for each in self._own if isinstance(each, PersonTokens))
        for callers in self._callers:
            yield from callers.persons()

    def _tokens_for(self, server: Server) -> TokensOf:
        id, upstream = server.id, server.upstream
        command = self._login_command(id)
        if not logs_in_callers(upstream):
            tokens = tokens_of(id, upstream, self._store, command)
            self._own.append(tokens)
            return lambda _principal: tokens

        def ask_of(principal: str) -> Ask:
            page = None if self.pages is None else self.pages.ask_of(id, principal)
            return page or ask_for_command(id, (*command, "--as", principal))

        self._callers.append(CallerTokens(id, upstream, self._store, ask_of, self._token_of))
        return self._callers[-1]


def keeps_logins(settings: Settings) -> bool:
    """True if logins of persons are kept for some server."""
    return any(isinstance(server.upstream.auth, OAuth) for server in settings.servers)


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
