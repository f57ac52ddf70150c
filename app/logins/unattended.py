"""The login of the proxy itself at a server: as the client that it is, or with a token that the platform gives it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Final

import anyio.to_thread

from ...core.logins import grants
from ...core.logins.challenges import BearerChallenge
from ...core.logins.login import LoginSettings
from ...core.logins.registration import ClientSettings
from ...core.logins.requests import LoginFailed
from ...core.logins.token_requests import Sign
from ..config.login_settings import ClientCredentials, Enterprise, Exchange, Unattended

SUBJECT_MAX_BYTES: Final = 64 * 1024
"""The largest file with a token to exchange: a response with one is no larger. At it: there is no login."""
_KINDS: Final = {"access_token": grants.ACCESS_TOKEN, "id_token": grants.ID_TOKEN, "jwt": grants.JWT}
_TOKEN: Final = re.compile(r"[!-~]+")


async def flow_of(
    auth: Unattended,
    settings: LoginSettings,
    challenge: BearerChallenge,
    *,
    now: float,
    earlier: Iterable[str],
    shown: str | None = None,
) -> grants.Unattended:
    """Returns the flow of a login. What it needs of files is read now.

    Args:
        now: Unix seconds.
        earlier: the scopes that were requested before.
        shown: the token that the caller has shown, to be exchanged; None: that of the settings is.

    Raises:
        LoginFailed: a file cannot be used.
    """
    if isinstance(auth, ClientCredentials):
        sign = await signer_of(auth)
        return grants.log_in_client(settings, challenge, entropy=os.urandom, now=now, sign=sign, earlier=earlier)
    subject = await subject_of(auth, shown)
    if isinstance(auth, Exchange):
        return grants.exchange(settings, challenge, subject, earlier=earlier)
    client = ClientSettings(auth.provider.client_id, auth.provider.client_secret or "", auth.provider.issuer)
    provider = grants.EnterpriseProvider(auth.provider.issuer, client)
    return grants.log_in_enterprise(settings, challenge, subject, provider, earlier=earlier)


async def subject_of(auth: Exchange | Enterprise, shown: str | None = None) -> grants.Subject:
    """Returns the token to exchange.

    Raises:
        LoginFailed: there is none. Another one may be there later.
    """
    kind = _KINDS[auth.subject_token_type] if isinstance(auth, Exchange) else grants.ID_TOKEN
    if shown is not None:
        kind = kind if isinstance(auth, Exchange) else grants.ACCESS_TOKEN
        return grants.Subject(shown, kind, "the token of the caller")
    path = auth.subject_token_file
    name = "subject_token" if path is None else f"the token in {path}"
    text = auth.subject_token or "" if path is None else await anyio.to_thread.run_sync(_read, path)
    if not _TOKEN.fullmatch(text):
        seen = "is empty" if not text else "is several words"
        raise LoginFailed(f"{name} {seen}, expected one token: have the platform write it", is_unanswered=True)
    return grants.Subject(text, kind, name)


def _read(path: str) -> str:
    try:
        # O_NONBLOCK: a named pipe without a writer would be waited for.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
            found = file.read(SUBJECT_MAX_BYTES + 1)
    except OSError as error:
        seen = f"cannot read subject_token_file {path}: {error.strerror or error}"
        raise LoginFailed(f"{seen}; have the platform write it", is_unanswered=True) from None
    if len(found) > SUBJECT_MAX_BYTES:
        raise LoginFailed(f"subject_token_file {path} is larger than a token, expected one token", is_unanswered=True)
    return found.decode("latin-1").strip()


async def signer_of(auth: ClientCredentials) -> Sign | None:
    """Returns a function that signs with the private key of a client; None if it has none.

    Raises:
        LoginFailed: the key cannot be used, or the package that signs with it is not installed.
    """
    path = auth.private_key
    if path is None:
        return None
    try:
        import jwt  # late: only these logins need it
    except ModuleNotFoundError:
        raise LoginFailed("private_key wants a package that is not installed: pip install 'isthmus[auth]'") from None
    try:
        pem = await anyio.Path(path).read_bytes()
        algorithm = jwt.get_algorithm_by_name(auth.algorithm)
        key = algorithm.prepare_key(pem)
    except OSError as error:
        raise LoginFailed(f"cannot read private_key {path}: {error.strerror or error}") from None
    except (ValueError, TypeError, NotImplementedError, jwt.PyJWTError):
        raise LoginFailed(f"private_key {path} is no PEM of a private key for {auth.algorithm}") from None
    return lambda claims: jwt.encode(dict(claims), key, algorithm=auth.algorithm)
