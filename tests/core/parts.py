"""Sessions and links on their own, for tests of a single part: no router and no interceptor stands behind them."""

from __future__ import annotations

from typing import Any

from isthmus.core.base.budget import Budget, OwnerUse, Share
from isthmus.core.base.limits import Limits
from isthmus.core.base.plan import Kind, ServerPlan
from isthmus.core.state.interceptor import Interceptors
from isthmus.core.state.link import Link
from isthmus.core.state.session import Session


class NoRouter:
    """A port that no message may reach."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} is called, expected nothing to be routed")


def lone_session(sid: str = "s", **given: Any) -> Session:
    """Returns a session of an HTTP client."""
    usual: dict[str, Any] = {
        "id": f"id of {sid}",
        "sid": sid,
        "workspace": "w",
        "server": "s",
        "principal": "p",
        "owner": "",
        "use": OwnerUse(""),
        "room": Share(Budget(Limits().memory_max_bytes, Limits().owner_memory_max_bytes), ""),
        "pipe": None,
        "base_url": "",
        "router": NoRouter(),
    }
    return Session(**{**usual, **given})


def lone_link(
    id: str = "l",
    plan: ServerPlan | None = None,
    *,
    initialize: bytes = b"{}",
    limits: Limits | None = None,
    **given: Any,
) -> Link:
    """Returns a link to a server that is a process of ours."""
    plan = plan or ServerPlan(id="s", kind=Kind.PIPE)
    router: Any = NoRouter()
    return Link(id, plan, "w", initialize, limits or Limits(), router=router, interceptors=Interceptors([]), **given)
