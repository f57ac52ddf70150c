"""The ledger of calls: requests, answers and executions, and the check that the three agree."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from principals import ALLOWED, HIDDEN, NEEDS_SCOPES, OPEN, Rule, Shown

Json = dict[str, Any]

OUTCOME_UNKNOWN: Final = -31001
UPSTREAM_UNAVAILABLE: Final = -31004
OVERLOADED: Final = -31007
TIMED_OUT: Final = -31008
CANCELLED: Final = -32800
INVALID_REQUEST: Final = -32600
DENIED: Final = -31009


class Outcome(enum.Enum):
    SUCCESS = "success"  # the result came
    FAILURE = "failure"  # the tool ran, and reported that it failed
    NOT_EXECUTED = "not executed"  # the error says that the tool did not run
    REFUSED = "refused"  # the caller may not call that tool
    UNKNOWN = "unknown"  # the error says that the outcome is unknown
    CUT = "cut"  # the connection ended, and nothing tells how to resume
    CANCELLED = "cancelled"  # cancelled by the caller itself
    SESSION_OVER = "session over"  # the caller ended its session while it waited


MAY_RUN: Final = {
    Outcome.SUCCESS: (1, 1),
    Outcome.FAILURE: (1, 1),
    Outcome.NOT_EXECUTED: (0, 0),
    Outcome.REFUSED: (0, 0),
    Outcome.UNKNOWN: (0, 1),
    Outcome.CUT: (0, 1),
    Outcome.CANCELLED: (0, 1),
    Outcome.SESSION_OVER: (0, 1),
}
"""The least and the most executions that go with each outcome."""


@dataclass
class Call:
    """One request, identified by its key.

    Attributes:
        rule: what a caller needs for it.
        verdict: the judgement over it by what its caller showed.
        steps: the number of progress notifications that the tool sends.
        progress: the progress that came, in order.
        is_cancelled: True once the caller has sent the cancellation.
        asked: the number of times that the server's question reached the caller.
    """

    key: str
    tool: str
    arguments: Json
    route: str
    steps: int = 0
    rule: Rule = OPEN
    verdict: str = ALLOWED
    progress: list[int] = field(default_factory=list)
    outcome: Outcome | None = None
    is_sent: bool = False
    is_cancelled: bool = False
    asked: int = 0
    story: list[str] = field(default_factory=list)

    def show(self, shown: Shown) -> dict[str, str]:
        """Notes what its caller shows with it. Returns the header fields."""
        self.verdict = self.rule.verdict(shown)
        return shown.fields

    def message(self, id: object) -> Json:
        params = {"name": self.tool, "arguments": self.arguments, "_meta": {"progressToken": self.key}}
        return {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}


class Ledger:
    """All calls of one world.

    Attributes:
        wrongs: descriptions of the violations.
    """

    def __init__(self, seed: str) -> None:
        self.calls: dict[str, Call] = {}
        self.wrongs: list[str] = []
        self._seed = seed
        self._last = 0

    def new_call(self, tool: str, route: str, **arguments: Any) -> Call:
        self._last += 1
        key = f"{self._seed}-{self._last}"
        call = Call(key, tool, {"key": key, **arguments}, route, steps=arguments.get("steps", 0))
        self.calls[key] = call
        return call

    def wrong(self, text: str, call: Call | None = None) -> None:
        where = "" if call is None else f" [{call.key} {call.tool} {call.route}; {'; '.join(call.story)}]"
        self.wrongs.append(text + where)

    # --- Messages to callers ----------------------------------------------------------------------------------------

    def progress(self, params: Json, mine: Iterable[Call]) -> None:
        """Enters progress that reached a caller with the open calls `mine`."""
        call = self.calls.get(str(params.get("progressToken")))
        if call is None or call not in list(mine):
            self.wrong(f"progress of another's call: {params}", call)
            return
        if params.get("message") != call.key:
            self.wrong(f"progress under another's token: {params}", call)
        if call.outcome is not None:
            self.wrong(f"progress {params['progress']} after the end", call)
        call.progress.append(params["progress"])

    def late_progress(self, params: Json) -> None:
        """Enters progress that came on a stream of no call: that call has ended, or its caller has given it up."""
        call = self.calls.get(str(params.get("progressToken")))
        if call is None or (call.outcome is None and not call.is_cancelled):
            self.wrong(f"progress on the GET stream: {params}", call)

    def question(self, params: Json, mine: Iterable[Call]) -> Json:
        """Enters a server's question to a caller with the calls `mine`. Returns the answer."""
        call = self.calls.get(str(params.get("message")))
        if call is None or call not in list(mine):
            self.wrong(f"a question for another: {params}", call)
        else:
            call.asked += 1
        return {"action": "accept", "content": {"key": params["message"]}}

    def end(self, call: Call, outcome: Outcome) -> None:
        if call.outcome is not None:
            self.wrong(f"ended again: {outcome.value} after {call.outcome.value}", call)
        call.outcome = outcome

    def refuse(self, call: Call, verdict: str) -> None:
        """Enters that a caller was told that it may not do that."""
        if call.verdict != verdict:
            self.wrong(f"refused as what {verdict}, and was {call.verdict}", call)
        self.end(call, Outcome.REFUSED)

    def answer(self, call: Call, message: Json) -> None:
        """Enters the answer to a call."""
        call.story.append(str(message)[:300])
        refusal = _refusal_in(message, call)
        if refusal is not None:
            self.refuse(call, refusal)
            return
        if "error" in message:
            self.end(call, self._outcome_of(call, message["error"]))
            return
        result = message["result"]
        text = result["content"][0]["text"]
        if text != self._expected(call) and not (result.get("isError") and text.split(" ")[0] == call.key):
            self.wrong("another's answer, or none", call)
        self.end(call, Outcome.FAILURE if result.get("isError") else Outcome.SUCCESS)

    def _expected(self, call: Call) -> str:
        return f"{call.key} {'x' * call.arguments['size']}" if call.tool == "big" else call.key

    def _outcome_of(self, call: Call, error: Json) -> Outcome:
        outcome = (error.get("data") or {}).get("outcome")
        code = error.get("code")
        if code == CANCELLED and call.is_cancelled:
            return Outcome.CANCELLED
        if code == TIMED_OUT:
            self.wrong("timed out, and nothing is ever silent for so long", call)
        if code in (OUTCOME_UNKNOWN, TIMED_OUT) and outcome == "unknown":
            return Outcome.UNKNOWN
        if code in (UPSTREAM_UNAVAILABLE, OVERLOADED) and outcome in ("not_executed", None):
            return Outcome.NOT_EXECUTED
        if code == INVALID_REQUEST and error.get("message") in ("session terminated", "client hung up"):
            return Outcome.SESSION_OVER
        self.wrong(f"an error that says nothing of the outcome: {error}", call)
        return Outcome.UNKNOWN

    # --- Judgement --------------------------------------------------------------------------------------------------

    def judge(self, journal: Iterable[str]) -> None:
        """Compares answers with executions. Valid only once nothing runs any more."""
        counts = Counter(journal)
        for key in counts.keys() - self.calls.keys():
            self.wrong(f"done, but never asked: {key}")
        for call in self.calls.values():
            count = counts[call.key]
            if call.outcome is None:
                self.wrong(f"never ended (ran {count} times)", call)
                continue
            least, most = MAY_RUN[call.outcome]
            if call.verdict != ALLOWED:
                least = most = 0
            if not least <= count <= most:
                self.wrong(f"{call.outcome.value}, but ran {count} times, and was {call.verdict}", call)
            if call.progress != sorted(set(call.progress)):
                self.wrong(f"progress out of order or twice: {call.progress}", call)
            if call.outcome is Outcome.SUCCESS and call.progress != list(range(1, call.steps + 1)):
                self.wrong(f"progress lost: {call.progress} of {call.steps}", call)
            if call.asked > 1:
                self.wrong(f"asked {call.asked} times", call)

    @property
    def figures(self) -> dict[str, int]:
        return dict(Counter("open" if call.outcome is None else call.outcome.value for call in self.calls.values()))


def _refusal_in(message: Json, call: Call) -> str | None:
    """Returns the verdict that an answer states, or None if it is no refusal."""
    error = message.get("error", {})
    if error.get("code") == DENIED:
        return NEEDS_SCOPES
    return HIDDEN if error.get("message") == f"Unknown tool: {call.tool}" else None
