"""Any text is given as a trace: it is replayed to its end, or refused.

The input is the lines of a trace. Accepted outcomes: `ValueError`, which names the line at fault; or differences, each
of a line of the trace.
"""

from __future__ import annotations

import random

from isthmus.core.base.plan import Kind, Plan, ServerPlan
from isthmus.core.trace import Recorder, replay

BEGIN: list[bytes] = []
Recorder(
    Plan(servers=(ServerPlan(id="a", kind=Kind.PIPE), ServerPlan(id="b", kind=Kind.HTTP))),
    entropy=random.Random(1).randbytes,
    unix_at_zero=0.0,
    write=BEGIN.append,
)


def test_one_input(data: bytes) -> None:
    lines = data.splitlines(keepends=True)
    for trace in (lines, [*BEGIN, *lines]):
        try:
            differences = list(replay(trace))
        except ValueError as error:
            assert str(error).startswith("line ")
            continue
        assert all(1 <= difference.line <= len(trace) for difference in differences)
