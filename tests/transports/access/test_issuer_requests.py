"""Tests of the requests to issuers: who waits for them, and what becomes of them at the end."""

from __future__ import annotations

import anyio
import pytest
from isthmus.core.access.issuer_answers import Unavailable, Waits
from isthmus.core.access.issuer_settings import IntrospectionSettings, IssuerSettings
from isthmus.core.access.issuers import Issuers
from isthmus.transports.access.issuer_requests import IssuerRequests
from isthmus.transports.web_fetch import FetchSettings

pytestmark = pytest.mark.anyio

ISSUER = "http://127.0.0.1:9"
PATIENCE_S = 20.0


async def test_a_request_after_the_end_has_failed() -> None:
    """A connection may ask who its caller is while the proxy stops. Its request is refused, and nothing is sent."""
    asked = IntrospectionSettings("client", "secret", f"{ISSUER}/introspect")
    issuers = Issuers([IssuerSettings(ISSUER, introspection=asked)], verify=lambda *_: False)
    requests = IssuerRequests(issuers, lambda _: FetchSettings())
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            await tasks.start(requests.run)
            tasks.cancel_scope.cancel()
        waits = issuers.check("a token", (), 1.0)
        assert isinstance(waits, Waits)
        await requests.wait(waits.request)
    answer = issuers.check("a token", (), 1.0)
    assert isinstance(answer, Unavailable)
    assert answer.reason.endswith("the proxy is stopping")
