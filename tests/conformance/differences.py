"""The allowed differences between a cell and its direct run, with reasons. The runner does not count them as failures.

A key is a suite's name, its mode, a scenario and the beginning of a column's name. `ANY` is any scenario.
"""

from __future__ import annotations

from typing import Final

from arrangements import ACROSS, PROFILED

ANY: Final = "*"
BRIDGED: Final = (ACROSS, f"{PROFILED}other era")
"""The columns with a peer of the other era."""
Key = tuple[str, str, str, str]

V4: Final = "2025-11-25"
V5: Final = "2026-07-28"
V5_TASKS: Final = "2026-07-28 tasks"

NOT_YET: Final[dict[Key, str]] = {}
"""Features that Isthmus lacks. A line is deleted when Isthmus has the feature."""

UNCHECKED: Final[dict[Key, str]] = {
    (V4, "server", "server-sse-polling", "stdio upstream"): "over stdio a server cuts nobody off, so a call is answered"
    " at once, as JSON, where the suite looks for nothing",
    (V4, "server", "server-sse-polling", ACROSS): "2026-07-28 has no streams that one comes back to",
    (
        V4,
        "server",
        "server-sse-polling",
        PROFILED,
    ): "a call through a profile is polled by Isthmus, and the stream of its client stays open",
    (V5_TASKS, "server", "tasks-status-notifications", ""): "the suite skips it until it is written anew",
}
"""Cells in which the suite rightly finds nothing to check."""

UNTRANSLATABLE: Final[dict[Key, str]] = {
    **dict.fromkeys(
        [(V5, "server", "input-required-result-basic-elicitation", column) for column in BRIDGED],
        "the suite wants the question under the key `user_name`, and in the handshake revisions questions have no keys",
    ),
    **dict.fromkeys(
        [(V5, "server", "input-required-result-ignore-extra-params", column) for column in BRIDGED],
        "the suite answers a question before it is asked, and a server of the handshake revisions can be answered only"
        " once it has asked",
    ),
}
"""Messages that exist in one era only, so that no bridge makes the scenario pass."""


HURRIED: Final[dict[Key, str]] = {
    (V5, "server", "server-stateless", f"{ACROSS}stdio"): "the suite waits 0.6 s for a question, and a client that"
    " declares other capabilities than those before it has a process of the server started for it first",
}
"""Cells whose result depends on the time that something takes."""


def reason(table: dict[Key, str], suite: str, mode: str, scenario: str, column: str) -> str | None:
    """Returns the reason why this cell differs, if the table has one."""
    for (of_suite, of_mode, of_scenario, of_column), text in table.items():
        is_meant = (of_suite, of_mode) == (suite, mode) and of_scenario in (ANY, scenario)
        if is_meant and column.startswith(of_column):
            return text
    return None
