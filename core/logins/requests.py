"""The requests that a flow yields, their replies, and its ends.

Nothing here shows a token, a code, a verifier or a client secret in its `repr`.
"""

from __future__ import annotations

import msgspec

Headers = tuple[tuple[bytes, bytes], ...]
"""Names in lower case."""


class Fetch(msgspec.Struct, frozen=True):
    """A request to send. Its reply is a `Fetched` or a `FetchFailed`. A redirect is not followed."""

    method: str
    url: str
    headers: Headers = ()
    body: bytes = b""

    def __repr__(self) -> str:
        return f"Fetch({self.method!r}, {self.url!r}, …)"


class Fetched(msgspec.Struct, frozen=True):
    """A response."""

    status: int
    body: bytes

    def __repr__(self) -> str:
        return f"Fetched({self.status}, …)"


class FetchFailed(msgspec.Struct, frozen=True):
    """No response. `text` names the host and the reason. `is_unsent`: no byte of the request was sent."""

    text: str
    is_unsent: bool = False


class Browse(msgspec.Struct, frozen=True):
    """A page for the browser of a person: `url` is http or https. The reply is the `Returned` that comes to
    `redirect`. `is_open`: the page was opened before, and only a further `Returned` is awaited."""

    url: str
    redirect: str
    is_open: bool = False

    def __repr__(self) -> str:
        return f"Browse({self.url.partition('?')[0]!r}, {self.redirect!r})"


class Returned(msgspec.Struct, frozen=True):
    """The query, without "?", with which a browser came to the redirect URI."""

    query: str

    def __repr__(self) -> str:
        return "Returned(…)"


class ShowCode(msgspec.Struct, frozen=True):
    """A code that a person types at `url`; `complete_url`, if any, has it in it already. The reply is None."""

    url: str
    code: str
    complete_url: str
    expires_in_s: float


class Pause(msgspec.Struct, frozen=True):
    """A time to wait. The reply is None."""

    seconds: float


class LoginFailed(Exception):
    """Raised by a flow that gives no tokens. The text says what was seen, what is right and what to do.

    Args:
        is_refused: the authorization server does not take the grant (`invalid_grant`), now or later.
        is_unanswered: there was no answer, and the same may succeed later.
    """

    def __init__(self, text: str, *, is_refused: bool = False, is_unanswered: bool = False) -> None:
        super().__init__(text)
        self.is_refused = is_refused
        self.is_unanswered = is_unanswered


class Tokens(msgspec.Struct, frozen=True):
    """The tokens of one response.

    Attributes:
        refresh_token: "" if there is none.
        expires_in_s: the lifetime of the access token, counted from the request; None if it is not told.
        scope: the granted scopes; None: those that were requested (RFC 6749, 5.1).
    """

    access_token: str
    refresh_token: str = ""
    expires_in_s: float | None = None
    scope: tuple[str, ...] | None = None

    def __repr__(self) -> str:
        return f"Tokens(…, expires_in_s={self.expires_in_s!r}, scope={self.scope!r})"


class Registration(msgspec.Struct, frozen=True):
    """A client at one authorization server, and never used at another.

    Attributes:
        issuer: the authorization server that knows the client.
        method: how the client authenticates at the token endpoint, a name of RFC 7591, 2.
        redirect: the registered redirect URI; "" if it was registered by hand.
        secret_expires_at: Unix seconds; 0: never.
        scope: the scopes that it was registered for, if it was not by hand: providers refuse it any other.
    """

    issuer: str
    client_id: str
    client_secret: str = ""
    method: str = "none"
    redirect: str = ""
    secret_expires_at: float = 0
    scope: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Registration({self.issuer!r}, {self.client_id!r}, method={self.method!r}, …)"


class Login(msgspec.Struct, frozen=True):
    """A login: the tokens, and what is needed to renew them.

    Attributes:
        resource: the `resource` parameter that was sent; "" if none was.
        scope: the scopes that were requested, and with a later login are requested again.
    """

    registration: Registration
    token_endpoint: str
    resource: str
    scope: tuple[str, ...]
    tokens: Tokens
