"""The start of logins at servers, as a running proxy has them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

from ...storage.interface import Records
from ..base.errors import StartError
from ..config.settings import Settings
from ..stores.stores import Stores

if TYPE_CHECKING:
    from .setup import Logins


def check_login_key(settings: Settings) -> None:
    """Checks that there is a key for logins in shared records.

    Raises:
        StartError: some are to be kept there, and there is none.
    """
    from .sealing import StoreError, cipher_of_all  # late: few servers want a login
    from .setup import keeps_logins

    if keeps_logins(settings):
        try:
            cipher_of_all(os.environ)
        except StoreError as error:
            raise StartError(str(error)) from None


@contextlib.asynccontextmanager
async def opened_logins(
    settings: Settings,
    login_command: Callable[[str], tuple[str, ...]],
    key: bytes,
    token_of: Callable[[str], str | None],
    stores: Stores,
    announce: Callable[[str], None] | None,
) -> AsyncIterator[Logins]:
    """Opens the logins at servers.

    Args:
        announce: tells other replicas of a record; None: this process is no replica.
    """
    from .opening import opened_shared  # late: few servers want a login
    from .setup import Logins, keeps_logins
    from .shared_store import SharedStore

    async with contextlib.AsyncExitStack() as stack:
        shared = None
        if keeps_logins(settings) and settings.storage.is_shared:
            if announce is None:
                shared = await stack.enter_async_context(opened_shared(settings.storage))
            else:

                async def records() -> Records:
                    return stores.records

                async def tell(key: str) -> None:
                    announce(key)

                shared = SharedStore(records, tell)
        yield Logins(settings, login_command, key, token_of, shared=shared, records=stores.records)
