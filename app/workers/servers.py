"""The servers of all workers as one list, and what an order has led to at each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ...core.wire.http.admin_routes import Page

Json = dict[str, Any]

STOPPED: Final = "stopped"
STATES: Final = ("running", "starting", "failed", "idle", STOPPED, "transparent")
"""The states of a server. It is shown with the first of them that it has at a worker: so it is stopped if it is stopped
at all of them."""
SUMS: Final = (
    "sessions",
    "in_flight",
    "processes",
    "spares",
    "starts",
    "failures",
    "noise",
    "cache_hits",
    "cache_misses",
)
"""Members of a server that are added up."""
UNKNOWN: Final = "unknown"
"""The state of a server at a worker that does not answer."""
NOT_HERE: Final = 404
"""The status of a worker that has no such server, as its configuration is another one, or that starts none any more."""
_NOTHING_TO_DO: Final = {
    Page.START: frozenset({NOT_HERE, 409}),
    Page.STOP: frozenset({NOT_HERE, 409, 503}),
    Page.RESTART: frozenset({NOT_HERE, 409}),
}
"""The statuses of a worker at which an order changes nothing: the server is in that state already, or is not there."""


def merged_servers(parts: Mapping[str, Sequence[Json] | None]) -> list[Json]:
    """Returns each server once, with what it is at each worker in `workers`.

    Args:
        parts: the servers of each worker, by its tag; None: it does not answer.
    """
    names = dict.fromkeys(server["name"] for servers in parts.values() for server in servers or ())
    return [_merged(name, parts) for name in names]


def _merged(name: str, parts: Mapping[str, Sequence[Json] | None]) -> Json:
    workers: list[Json] = []
    for tag, servers in parts.items():
        if servers is None:
            workers.append({"worker": tag, "state": UNKNOWN})
        else:
            workers += [{"worker": tag, **server} for server in servers if server["name"] == name]
    known = [server for server in workers if server["state"] != UNKNOWN]
    shown = dict(min(known, key=lambda server: STATES.index(server["state"])))
    del shown["worker"]
    for member in SUMS:
        if member in shown:
            shown[member] = sum(server[member] for server in known)
    if "pids" in shown:
        shown["pids"] = [pid for server in known for pid in server["pids"]]
    if "last_error" in shown:
        shown["last_error"] = next((server["last_error"] for server in known if server["last_error"]), "")
    return {**shown, "workers": workers}


def combined_act(page: Page, id: str, parts: Mapping[str, tuple[int, Json] | None]) -> tuple[int, Json]:
    """Returns the status and the body for an order to all workers.

    It has succeeded if it has at some, and the server was in that state already, or is not there, at all others.

    Args:
        parts: the status and the body of each worker, by its tag; None: it does not answer.
    """
    done = {tag: part[1] for tag, part in parts.items() if part is not None and part[0] == 200}
    failed = {tag: part for tag, part in parts.items() if part is not None and _is_failure(page, part[0])}
    silent = [tag for tag, part in parts.items() if part is None]
    if failed or silent:
        status = max([part[0] for part in failed.values()], default=503)
        problems = [f"worker {tag}: {part[1].get('error')}" for tag, part in failed.items()]
        problems += [f"worker {tag} does not answer: it starts, ends or is paused, so repeat this" for tag in silent]
        if done:
            problems.append(f"done at {', '.join(done)}")
        return status, {"error": "; ".join(problems), "code": status}
    answered = {tag: part for tag, part in parts.items() if part is not None}
    found = {tag: part for tag, part in answered.items() if part[0] != NOT_HERE}
    if not done:  # the newest worker knows best what there is
        return list((found or answered).values())[-1]
    workers = [{"worker": tag, "is_changed": tag in done} for tag in found]
    server = merged_servers({tag: [body["server"]] for tag, body in done.items()})[0]
    return 200, {"name": id, "action": page.value, "status": "success", "server": server, "workers": workers}


def _is_failure(page: Page, status: int) -> bool:
    return status != 200 and status not in _NOTHING_TO_DO[page]
