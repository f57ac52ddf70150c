"""The methods of the five revisions, as their schemas have them, and the tables and clauses of the oracle's rules."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import pytest
from each_row import each_row
from isthmus.core.oracle import METHODS, RULES, Oracle, Role, Severity, Transport, Verb
from isthmus.core.oracle.methods import (
    ALL,
    AUGMENTED,
    CACHEABLE,
    HANDSHAKE,
    INTERACTIVE,
    NAMED,
    ONE_WAY,
    QUESTIONS,
    TASKS_EXTENSION,
    declares,
    senders,
    takes_mode,
)
from isthmus.core.oracle.seen import MessageKind, RequestState
from wire_scenes import CLIENT, SERVER, Wire

REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
V4, V5 = REVISIONS[3:]


class Row(NamedTuple):
    """A method of the schemas. `by` names the sides that send it, by the number of the revision, 1 to 5."""

    method: str
    kind: str
    by: dict[int, str]
    needs: str
    since: int
    of: str


# Method, kind, senders ("1234c,5s": clients in the first four revisions, servers in the fifth), the capability that it
# needs and the first revision with that; for a notification also the side that declares it.
TABLE = """
initialize                              request 1234c
ping                                    request 1234cs
tools/list                              request 12345c        tools 1
tools/call                              request 12345c        tools 1
prompts/list                            request 12345c        prompts 1
prompts/get                             request 12345c        prompts 1
resources/list                          request 12345c        resources 1
resources/templates/list                request 12345c        resources 1
resources/read                          request 12345c        resources 1
resources/subscribe                     request 1234c         resources.subscribe 1
resources/unsubscribe                   request 1234c         resources.subscribe 1
logging/setLevel                        request 1234c         logging 1
completion/complete                     request 12345c        completions 2
sampling/createMessage                  request 1234s         sampling 1
roots/list                              request 1234s         roots 1
elicitation/create                      request 34s           elicitation 1
tasks/get                               request 4cs,5c        tasks 4
tasks/result                            request 4cs           tasks 4
tasks/list                              request 4cs           tasks.list 4
tasks/cancel                            request 4cs,5c        tasks.cancel 4
tasks/update                            request 5c
server/discover                         request 5c
subscriptions/listen                    request 5c
notifications/initialized               notice  1234c
notifications/cancelled                 notice  12345cs
notifications/progress                  notice  1234cs,5s
notifications/message                   notice  12345s        logging 1 server
notifications/tools/list_changed        notice  12345s        tools.listChanged 1 server
notifications/prompts/list_changed      notice  12345s        prompts.listChanged 1 server
notifications/resources/list_changed    notice  12345s        resources.listChanged 1 server
notifications/resources/updated         notice  12345s        resources.subscribe 1 server
notifications/roots/list_changed        notice  1234c         roots.listChanged 1 client
notifications/elicitation/complete      notice  4s            elicitation.url 1 client
notifications/tasks/status              notice  4cs
notifications/tasks                     notice  5s
notifications/subscriptions/acknowledged notice 5s
"""


def rows() -> list[Row]:
    found = []
    for line in TABLE.strip().splitlines():
        method, kind, places, *needs = line.split()
        by = {}
        for part in places.split(","):
            numbers = part.rstrip("cs")
            by |= {int(number): part.removeprefix(numbers) for number in numbers}
        capability, since, of = (*needs, "", "", "")[:3]
        found.append(Row(method, kind, by, capability, int(since or 1), of))
    return found


ROWS = rows()


def test_the_methods_are_those_of_the_schemas() -> None:
    assert list(METHODS) == [row.method for row in ROWS]


@each_row("row", ROWS)
def test_a_method_has_its_revisions_and_senders(row: Row) -> None:
    """Each side may send its own methods only, in each revision."""
    use = METHODS[row.method]
    assert use.is_request == (row.kind == "request")
    assert use.revisions == tuple(REVISIONS[number - 1] for number in sorted(row.by))
    for number, revision in enumerate(REVISIONS, 1):
        expected = row.by.get(number, "")
        assert {role.value[0] for role in senders(row.method, revision)} == set(expected), revision
    assert use.needs == row.needs
    assert (use.of.value if use.of is not None else "") == row.of
    if row.needs:
        until = 4 if row.needs.startswith("tasks") else 5
        assert use.needs_in == REVISIONS[row.since - 1 : until]


def place(row: Row, number: int, sender: Role, kind: str) -> list[str]:
    """The rules that a method breaks in a revision, sent by a side, as a request or a notification."""
    if number == 5 and sender is SERVER and kind == "request":
        found = ["request-by-server"]
    elif number not in row.by:
        found = ["method-foreign"]
    elif sender.value[0] not in row.by[number]:
        found = ["method-direction"]
    else:
        found = []
    return found + ([] if kind == row.kind else ["method-kind"])


PLACES = {"request-by-server", "method-foreign", "method-direction", "method-kind"}


def misplaced(wire: Wire, since: int) -> list[str]:
    """The rules about places that are broken from there on, if only the wire's revision is in use."""
    oracle = Oracle(wire.revision, wire.transport)
    found = [(number, violation) for number, each in enumerate(wire.seen) for violation in oracle.receive(each)]
    return [violation.rule for number, violation in found if number >= since and violation.rule in PLACES]


@each_row("row", ROWS)
def test_a_misplaced_method_is_reported(row: Row) -> None:
    """Each method is tried in each revision, from either side, with an id and without."""
    for (number, revision), sender, kind in itertools.product(
        enumerate(REVISIONS, 1), (CLIENT, SERVER), ("request", "notice")
    ):
        wire = Wire(revision)
        wire.handshake()
        before = len(wire.seen)
        message = {"jsonrpc": "2.0", "method": row.method, "params": {"protocolVersion": revision}}
        wire.send(sender, message if kind == "notice" else {**message, "id": 77})
        assert misplaced(wire, before) == place(row, number, sender, kind), (revision, sender, kind)


def test_unknown_methods_break_no_rule() -> None:
    for revision in REVISIONS:
        wire = Wire(revision)
        wire.handshake()
        before = len(wire.seen)
        for method in ("own/thing", "tasks/getQ", "notifications/tasks/statusQ", "tools", ""):
            wire.request(method)
            wire.notify(method)
        assert misplaced(wire, before) == []


def test_the_other_tables_are_those_of_the_specification() -> None:
    """Each table is from the page that its docstring names."""
    assert (*HANDSHAKE, V5) == ALL == REVISIONS
    assert TASKS_EXTENSION == "io.modelcontextprotocol/tasks"
    client, server = (CLIENT,), (SERVER,)
    assert {
        ("notifications/progress", V5): server,
        ("tasks/get", V5): client,
        ("tasks/cancel", V5): client,
    } == ONE_WAY
    assert INTERACTIVE == ("tools/call", "prompts/get", "resources/read")
    assert QUESTIONS == ("elicitation/create", "sampling/createMessage", "roots/list")
    lists = ("tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read")
    assert ("server/discover", *lists) == CACHEABLE
    assert NAMED == {
        "tools/call": "name",
        "prompts/get": "name",
        "resources/read": "uri",
        "tasks/get": "taskId",
        "tasks/update": "taskId",
        "tasks/cancel": "taskId",
    }
    of = {"tools/call": "tools.call", "sampling/createMessage": "sampling.createMessage"}
    of["elicitation/create"] = "elicitation.create"
    assert {method: f"tasks.requests.{path}" for method, path in of.items()} == AUGMENTED


@pytest.mark.parametrize(
    ("capabilities", "path", "is_declared"),
    [
        ({}, "a", False),
        ({"a": {}}, "a", True),
        ({"a": True}, "a", True),
        ({"a": 0}, "a", True),
        ({"a": ""}, "a", True),
        ({"a": False}, "a", False),
        ({"a": None}, "a", False),
        ({"b": {}}, "a", False),
        ({"a": {"b": {}}}, "a.b", True),
        ({"a": {"b": False}}, "a.b", False),
        ({"a": {"c": {}}}, "a.b", False),
        ({"a": True}, "a.b", False),
        ({"a": {"b": {"c": {}}}}, "a.b.c", True),
        ({"a": None}, "a.b", False),
    ],
)
def test_a_capability_is_declared_step_by_step(capabilities: dict[str, object], path: str, is_declared: bool) -> None:
    assert declares(capabilities, path) is is_declared


@pytest.mark.parametrize(
    ("declared", "mode", "is_taken"),
    [
        ({}, "form", True),
        ({}, "url", False),
        ({"form": {}}, "form", True),
        ({"form": {}}, "url", False),
        ({"url": {}}, "form", False),
        ({"url": {}}, "url", True),
        ({"form": {}, "url": {}}, "url", True),
        (True, "form", True),
        (True, "url", False),
        ({"form": {}}, None, False),
        ({}, None, False),
        ({}, 7, False),
    ],
)
def test_a_capability_without_modes_means_forms(declared: object, mode: object, is_taken: bool) -> None:
    assert takes_mode(declared, mode) is is_taken


# --- Rules ------------------------------------------------------------------------------------------------------------

# The rules with the severity SHOULD, and the numbers of those revisions.
SHOULD = {
    "session-stateless": "5",
    "version-header": "34",
    "response-stream": "234",
    "unrelated-on-stream": "234",
    "stream-goes-on": "2345",
    "stream-ended-early": "234",
}


def test_a_clause_names_a_page_of_its_revision() -> None:
    """The names of the pages are exact; a rule of the extension names its draft."""
    pages: dict[str, set[str]] = {revision: set() for revision in REVISIONS}
    for rule in RULES.values():
        assert rule.clauses
        for revision, clause in rule.clauses.items():
            pages[revision].add(clause.partition(",")[0])
    known = {page for found in pages.values() for page in found}
    assert all(page == page.strip() and "Q" not in page for page in known)
    assert {"basic/messages", "basic/lifecycle"} <= pages[REVISIONS[0]]
    assert "basic" not in pages[REVISIONS[0]]
    for revision in REVISIONS[1:]:
        assert "basic" in pages[revision]
        assert "basic/messages" not in pages[revision]
    assert {"basic/transports/streamable-http", "ext-tasks"} <= pages[V5]
    assert "basic/utilities/tasks" in pages[V4]
    for revision in HANDSHAKE:
        assert not {"basic/transports/streamable-http", "ext-tasks"} & pages[revision]


def test_the_severity_of_each_rule() -> None:
    for name, numbers in SHOULD.items():
        rule = RULES[name]
        assert {revision for revision in rule.clauses if rule.severity(revision) is Severity.SHOULD} == {
            REVISIONS[int(number) - 1] for number in numbers
        }, name
    for rule in RULES.values():
        assert rule.only_should <= set(rule.clauses)
        for revision in rule.clauses:
            expected = Severity.SHOULD if revision in rule.only_should else Severity.MUST
            assert rule.severity(revision) is expected


# The rules by revision numbers, and by the sides that can break them.
HOLDS = {
    "1 s": """
        endpoint-first message-on-post
    """,
    "1234 c": """
        cancel-initialize initialize-first client-early initialized-missing initialize-params version-unsupported
    """,
    "1234 s": """
        server-early initialize-result version-answered result-kind-leaked
    """,
    "12345 cs": """
        not-json not-jsonrpc id-type response-shape result-type error-shape schema id-reused response-unknown
        response-twice error-without-id unanswered cancel-unknown method-foreign method-direction method-kind
        capability-undeclared progress-token progress-token-reused progress-unknown progress-late progress-stands
    """,
    "2 c": """
        batch-initialize
    """,
    "234 c": """
        session-id-missing session-id-lost
    """,
    "234 s": """
        session-id-form session-id-given session-revived session-end-status response-on-get event-id-reused
        replay-stream
    """,
    "2345 c": """
        accept
    """,
    "2345 s": """
        accepted-status content-type response-stream unrelated-on-stream stream-goes-on stream-ended-early
    """,
    "345 c": """
        version-header-missing version-header
    """,
    "345 cs": """
        batch-unknown meta-reserved
    """,
    "345 s": """
        version-refused
    """,
    "4 cs": """
        cancel-of-task task-uncreated task-cancelled related-task related-task-needless
    """,
    "4 s": """
        elicitation-mode sampling-tools elicitation-id
    """,
    "45 cs": """
        task-unasked task-shape task-begins task-status task-polled-early
    """,
    "5 c": """
        cancel-over-http mirrored-method mirrored-name mirrored-argument meta-missing client-info state-changed
        state-elsewhere retry-id retry-incomplete
    """,
    "5 cs": """
        error-code-withdrawn error-code-reserved task-detail task-key-reused
    """,
    "5 s": """
        cancel-by-server request-by-server log-unasked log-stream error-status session-stateless mismatch-refused
        server-info result-kind-missing result-kind-unknown input-required-method input-required-empty
        input-request-kind input-request-undeclared cache-hints listen-first listen-acknowledged listen-unrequested
        subscription-id subscription-unknown subscription-stream
    """,
}


def test_the_revisions_and_sides_of_each_rule() -> None:
    """A rule holds in no other revision, and for no other side."""
    expected = {name: scope for scope, names in HOLDS.items() for name in names.split()}
    found = {
        name: "".join(str(number) for number, revision in enumerate(REVISIONS, 1) if revision in rule.clauses)
        + f" {''.join(role.value[0] for role in rule.who)}"
        for name, rule in RULES.items()
    }
    assert found == expected


def test_log_values_are_the_names_of_members() -> None:
    """Logs are written and read by other programs."""
    for kind in (Role, Transport, Severity, RequestState, MessageKind):
        assert {each: each.value for each in kind} == {each: each.name.lower() for each in kind}
    assert {verb: verb.value for verb in Verb} == {verb: verb.name for verb in Verb}
    assert [role.other for role in (CLIENT, SERVER)] == [SERVER, CLIENT]
