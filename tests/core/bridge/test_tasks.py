"""Tasks as each era writes them, and the task that a message belongs to."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from isthmus.core.base.errors import INTERNAL_ERROR, INVALID_PARAMS, RemoteProtocolError
from isthmus.core.bridge import tasks
from isthmus.core.bridge.input_requests import Question, embed
from isthmus.core.bridge.tasks import RELATED, TASKS, Detailed, TaskFields

STATUSES = ["working", "input_required", "completed", "failed", "cancelled"]
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
IDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20) | st.just("x" * 1024)
TIMES = st.integers(0, 2**53 - 1)
TASK = st.builds(
    TaskFields,
    id=IDS,
    status=st.sampled_from(STATUSES),
    created_at=TEXTS,
    updated_at=TEXTS,
    ttl_ms=st.none() | TIMES,
    poll_ms=st.none() | TIMES,
    message=st.none() | TEXTS,
)
QUESTIONS = {
    "elicitation/create": b'{"message":"","requestedSchema":{"x":1.0}}',
    "sampling/createMessage": b'{"messages":[ ],"maxTokens":1e1}',
    "roots/list": None,
}
SERVER_REQUESTS = st.dictionaries(TEXTS, st.sampled_from(sorted(QUESTIONS)), max_size=4)
# Values that no reader and writer in a row would leave as they are.
ODD = st.sampled_from([b"1e400", b"-0", b"1.0", b'{"a":1,"a":2}', b'"\\ud800"', b"[ 1 ,2 ]", b"null", b'{"b" : {}}'])
KEYS = st.sampled_from(["content", "isError", "structuredContent", "x/y", "é", 'a"b'])


def spelled(parts: dict[str, bytes], space: str) -> bytes:
    pieces = [(space + json.dumps(key) + space + ":" + space).encode() + value for key, value in parts.items()]
    return b"{" + b",".join(pieces) + space.encode() + b"}"


@st.composite
def objects(draw: st.DrawFn) -> bytes:
    """Draws objects as peers write them; a `_meta` has some member, and none of ours."""
    space = draw(st.sampled_from(["", " ", "\n"]))
    parts = draw(st.dictionaries(KEYS, ODD, max_size=3))
    if meta := draw(st.dictionaries(KEYS, ODD, max_size=2)):
        parts["_meta"] = spelled(meta, space)
    return spelled({key: parts[key] for key in draw(st.permutations(list(parts)))}, space)


@st.composite
def detailed(draw: st.DrawFn) -> Detailed:
    """Draws a task with all members that its status brings."""
    task = draw(TASK)
    requests = draw(SERVER_REQUESTS) if task.status == "input_required" else {}
    questions = tuple(Question(key, method, QUESTIONS[method]) for key, method in requests.items())
    result = draw(objects()) if task.status == "completed" else None
    return Detailed(task, questions, result, b'{"code":-1, "message":""}' if task.status == "failed" else None)


def written(one: Detailed, *, is_result: bool) -> bytes:
    questions = {question.key: embed(question.method, question.params) for question in one.questions}
    return tasks.modern_detailed(one.task, questions=questions, result=one.result, error=one.error, is_result=is_result)


def seed(**parts: Any) -> bytes:
    """A task as a server might write it, with None for a member it leaves out."""
    made = {"taskId": "t", "status": "working", **parts}
    return json.dumps({key: value for key, value in made.items() if value is not None}).encode()


# --- The forms of the eras ------------------------------------------------------------------------------------------


@given(task=TASK)
def test_a_written_task_is_read_again(task: TaskFields) -> None:
    """Each era's form of a task keeps all its fields, and none is taken for another."""
    assert tasks.read_task(tasks.legacy_task(task)) == task
    assert tasks.read_created(tasks.legacy_created(task), is_stateless=False) == task
    assert tasks.read_created(tasks.modern_created(task), is_stateless=True) == task


@given(one=detailed(), is_result=st.booleans())
def test_detailed_task_is_read_again(one: Detailed, is_result: bool) -> None:
    """Server requests keep their order, and result and error their bytes."""
    assert tasks.read_detailed(written(one, is_result=is_result)) == one


@given(task=TASK)
def test_there_and_back(task: TaskFields) -> None:
    """A legacy task is itself again, byte for byte, after it was translated for the stateless era and back."""
    legacy = tasks.legacy_task(task)
    modern = tasks.modern_created(tasks.read_task(legacy))
    back = tasks.read_created(modern, is_stateless=True)
    assert back is not None
    assert tasks.legacy_task(back) == legacy


@given(task=TASK)
def test_members_are_those_of_the_schemas(task: TaskFields) -> None:
    """Every field of a task is written in the members that the schemas name, each of its type."""
    common: dict[str, Any] = {
        "taskId": task.id,
        "status": task.status,
        "createdAt": task.created_at,
        "lastUpdatedAt": task.updated_at,
    }
    if task.message is not None:
        common["statusMessage"] = task.message
    legacy, modern = common | {"ttl": task.ttl_ms}, common | {"ttlMs": task.ttl_ms}
    if task.poll_ms is not None:
        legacy["pollInterval"] = modern["pollIntervalMs"] = task.poll_ms
    assert json.loads(tasks.legacy_task(task)) == legacy
    assert json.loads(tasks.legacy_created(task)) == {"task": legacy}
    assert json.loads(tasks.modern_created(task)) == {"resultType": "task", **modern}


@given(one=detailed())
def test_the_status_decides_the_members(one: Detailed) -> None:
    """A detailed task has the members of its status; as a result it has the type "complete"."""
    base = set(json.loads(tasks.modern_created(one.task))) - {"resultType"}
    brought = {"input_required": {"inputRequests"}, "completed": {"result"}, "failed": {"error"}}
    params, result = (json.loads(written(one, is_result=is_result)) for is_result in (False, True))
    assert set(params) == base | brought.get(one.task.status, set())
    assert result == {"resultType": "complete", **params}


def test_terminal_statuses_end_a_task() -> None:
    """Source: 2025-11-25 basic/utilities/tasks, "Task Status Lifecycle"."""
    assert {"completed", "failed", "cancelled"} == tasks.TERMINAL
    assert sorted(tasks.STATUSES) == sorted(STATUSES)


@given(result=objects(), id=IDS)
def test_inlined_result_is_the_bare_one(result: bytes, id: str) -> None:
    """The members of an answer to `tasks/result`, or of a stateless result, are removed; the rest stays."""
    has_members = bool(json.loads(result))
    rest = result[1:].lstrip() if has_members else result[1:]
    typed = b'{"resultType":"complete"' + (b", " if has_members else b"") + rest
    task = TaskFields(id=id, status="completed", created_at="", updated_at="", ttl_ms=None)
    made = tasks.modern_detailed(task, result=tasks.with_related(typed, id), is_result=True)
    assert tasks.read_detailed(made).result == b"{" + rest


# --- Kinds of results -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("result", "is_stateless"),
    [
        (b'{"content":[]}', False),
        (b'{"content":[],"task":{"taskId":"t","status":"working"}}', False),
        (b'{"structuredContent":{"task":{"taskId":"t","status":"working"}}}', False),
        (b'{"task":"later"}', False),
        (b'{"task":{"taskId":"t"}}', False),
        (b'{"task":{"status":"working"}}', False),
        (b'{"task":{"taskId":7,"status":"working"}}', False),
        (b'{"resultType":"task","taskId":"t","status":"working"}', False),
        (b"[]", False),
        (b'"task"', False),
        (b'{"task":{"taskId":"t","status":"working"}}', True),
        (b'{"resultType":"complete","content":["task"]}', True),
        (b'{"resultType":"input_required","requestState":"task"}', True),
        (b'{"resultType":7,"x":"task"}', True),
        (b"[]", True),
        (b'["task"]', True),
    ],
)
def test_other_answers_are_no_task(result: bytes, is_stateless: bool) -> None:
    """A plain result is left to its own reader, even if it mentions tasks."""
    assert tasks.read_created(result, is_stateless=is_stateless) is None
    assert not tasks.is_task(result) or not is_stateless


@pytest.mark.parametrize(
    ("result", "is_stateless"),
    [
        (b'{ "task" : {"taskId":"t","status":"working"} , "content":null, "_meta":{}}', False),
        (b'{"\\u0074ask":{"taskId":"\\u0074","status":"wor\\u006bing"}}', False),
        (b'{"resultType":"task","taskId":"t","status":"working","ttlMs":null,"content":[]}', True),
        (b'{"resultType":"\\u0074ask","taskId":"t","status":"working"}', True),
    ],
)
def test_tasks_are_recognized_in_any_spelling(result: bytes, is_stateless: bool) -> None:
    """Members that are absent or null are tolerated, and so are escapes."""
    expected = TaskFields(id="t", status="working", created_at="", updated_at="", ttl_ms=None)
    assert tasks.read_created(result, is_stateless=is_stateless) == expected
    assert tasks.is_task(result) == is_stateless


@pytest.mark.parametrize(("written", "read"), [("1000.0", 1000), ("1e3", 1000), ("2.9", 2), ("-0", 0), ("0.5", 0)])
def test_times_are_floored(written: str, read: int) -> None:
    """Some servers count in fractions."""
    task = tasks.read_task(b'{"taskId":"t","status":"working","ttl":%b,"pollInterval":%b}' % ((written.encode(),) * 2))
    assert (task.ttl_ms, task.poll_ms) == (read, read)


@pytest.mark.parametrize(
    "written", ["9007199254740991", "9007199254740992", "9223372036854775807", "1e400", "9" * 5000]
)
def test_longest_times_are_cut(written: str) -> None:
    """Some servers write the largest integer of their language for "for ever", which not every reader can hold."""
    assert tasks.read_task(b'{"taskId":"t","status":"working","ttl":%b}' % written.encode()).ttl_ms == 2**53 - 1


def test_half_surrogate_pairs_in_messages_are_replaced() -> None:
    """A cut text is no reason to lose a task."""
    task = tasks.read_task(b'{"taskId":"t","status":"working","statusMessage":"half \\ud83d"}')
    assert task.message == "half \ufffd"


@pytest.mark.parametrize("kind", ["complete", "task", None])
def test_a_detailed_task_may_have_either_type(kind: str | None) -> None:
    """The text of the extension gives one type, its examples the other, and params have none."""
    assert tasks.read_detailed(seed(resultType=kind)).task.status == "working"


def test_members_of_another_status_are_not_read() -> None:
    """A task that works again may still be sent with requests that were answered."""
    one = tasks.read_detailed(seed(inputRequests=5, result=5, error=5))
    assert one[1:] == ((), None, None)


def test_an_input_required_task_may_have_no_requests() -> None:
    """The last request may be answered before the next status."""
    assert tasks.read_detailed(seed(status="input_required", inputRequests={})).questions == ()


# --- Refusals -------------------------------------------------------------------------------------------------------

NO_ID = "expected a string of 1 to 1024 characters"
NO_STATUS = "expected one of working, input_required, cancelled, completed, failed"
NO_TIME = "expected a number of milliseconds, not negative, or null"


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ({"taskId": None}, f"got a task without a taskId, {NO_ID}"),
        ({"taskId": ""}, f"got a task with a taskId that is a string, {NO_ID}"),
        ({"taskId": "x" * 1025}, f"got a task with a taskId that is a string, {NO_ID}"),
        ({"taskId": "\ud800"}, f"got a task with a taskId that is a string, {NO_ID}"),
        ({"taskId": 7}, f"got a task with a taskId that is 7, {NO_ID}"),
        ({"status": None}, f"got a task without a status, {NO_STATUS}"),
        ({"status": "submitted"}, f'got a task with the status "submitted", {NO_STATUS}'),
        ({"status": "x" * 41}, f"got a task with the status a string, {NO_STATUS}"),
        ({"status": True}, "got a task with a status that is true, expected a string"),
        ({"statusMessage": []}, "got a task with a statusMessage that is an array, expected a string"),
        ({"createdAt": 5}, "got a task with a createdAt that is 5, expected a string"),
        ({"lastUpdatedAt": {}}, "got a task with a lastUpdatedAt that is an object, expected a string"),
        ({"ttl": "1000"}, f'got a task with a ttl that is "1000", {NO_TIME}'),
        ({"ttl": -1}, f"got a task with a ttl that is -1, {NO_TIME}"),
        ({"pollInterval": True}, f"got a task with a pollInterval that is true, {NO_TIME}"),
    ],
)
def test_broken_tasks_are_refused(parts: dict[str, Any], text: str) -> None:
    """The message names the value and the expected one, in the words of the server's era."""
    modern = {{"ttl": "ttlMs", "pollInterval": "pollIntervalMs"}.get(key, key): parts[key] for key in parts}
    renamed = text.replace(" ttl ", " ttlMs ").replace(" pollInterval ", " pollIntervalMs ")
    readers: list[tuple[Callable[[], object], str]] = [
        (lambda: tasks.read_task(seed(**parts)), text),
        (lambda: tasks.read_detailed(seed(**modern)), renamed),
        (lambda: tasks.read_created(seed(resultType="task", **modern), is_stateless=True), renamed),
    ]
    if (
        parts.get("taskId", "")
        and isinstance(parts.get("status", ""), str)
        and parts.get("taskId") not in (7, "\ud800")
    ):
        created = b'{"task":%b}' % seed(**parts)
        readers.append((lambda: tasks.read_created(created, is_stateless=False), text))
    for read, expected in readers:
        with pytest.raises(RemoteProtocolError) as caught:
            read()
        assert caught.value.message == expected
        assert caught.value.rpc_code == INTERNAL_ERROR


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (seed(status="completed"), "got a task that is completed without result, expected an object"),
        (seed(status="completed", result=[]), "got a task that is completed with result that is an array"),
        (seed(status="failed", error="no"), "got a task that is failed with error that is a string"),
        (seed(status="failed", result={}), "got a task that is failed without error, expected an object"),
        (seed(status="input_required"), "got a task that is input_required without inputRequests"),
        (seed(status="input_required", inputRequests=[]), "got a task that is input_required with inputRequests that"),
        (seed(status="input_required", inputRequests={"a": 1}), "got a question that is no object in a result"),
        (seed(status="input_required", inputRequests={"a": {"method": "ping"}}), "got a question of another method"),
        (seed(resultType="input_required"), 'got a task with the resultType "input_required", expected "complete"'),
        (b"[1]", "got an array, expected an object"),
        (b'{"taskId":"t","taskId":"t"}', "got the member 'taskId' twice"),
    ],
)
def test_broken_details_are_refused(data: bytes, text: str) -> None:
    """A task without the members of its status cannot be followed."""
    with pytest.raises(RemoteProtocolError) as caught:
        tasks.read_detailed(data)
    assert caught.value.message.startswith(text)


JSONS = st.recursive(
    st.none()
    | st.booleans()
    | st.sampled_from([-1, 0, 1.5, 10**400, "", "t", "task", "complete", "\ud800", *STATUSES]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["task", "taskId", "status", "ttl", "ttlMs", "method", "_meta", RELATED]), inner, max_size=4
        )
    ),
    max_leaves=8,
)
MEMBERS = ["taskId", "status", "statusMessage", "createdAt", "lastUpdatedAt", "ttl", "ttlMs", "pollInterval", "task"]
MEMBERS += ["pollIntervalMs", "_meta", "resultType", "result", "error", "inputRequests", "content"]
ANYTHING = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(MEMBERS, JSONS) | {"status": st.sampled_from(STATUSES), "taskId": st.just("t")}
).map(lambda value: json.dumps(value).encode())


@given(data=ANYTHING | JSONS.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=40))
@example(data=b'{"task":{"taskId":"t","status":"working","ttl":-}}')
@example(data=b'{"taskId":"t","status":"\xff"}')
@example(data=b'{"resultType":"task","\xff":1}')
@example(data=b"{" * 3000)
def test_any_input_is_read_or_refused(data: bytes) -> None:
    """Readers raise one error only, and the readers of ids never raise."""
    readers: list[Callable[[bytes], object]] = [
        tasks.is_task,
        lambda one: tasks.read_created(one, is_stateless=False),
        lambda one: tasks.read_created(one, is_stateless=True),
        lambda one: tasks.read_created(b'{"task":%b}' % one, is_stateless=False),
        tasks.read_task,
        tasks.read_detailed,
        tasks.wanted,
        tasks.without_task,
        lambda one: tasks.augmented(one, 5),
        lambda one: tasks.with_related(one, "t"),
        tasks.without_related,
    ]
    for read in readers:
        with suppress(RemoteProtocolError):
            read(data)
    for find in (tasks.task_id, tasks.related_id):
        found = find(data)
        assert found is None or 1 <= len(found) <= 1024


# --- Options of clients ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        (None, (False, None)),
        (b"[1]", (False, None)),
        (b'{"name":"a"}', (False, None)),
        (b'{"task":null}', (False, None)),
        (b'{"task":{}}', (True, None)),
        (b'{"task":{"ttl":null}}', (True, None)),
        (b'{"task":{"ttl":0}}', (True, 0)),
        (b'{"task":{"ttl":60000.9,"x":1}}', (True, 60000)),
        (b'{"task":{"ttl":1e300}}', (True, 2**53 - 1)),
    ],
)
def test_task_options_of_a_client(params: bytes | None, expected: tuple[bool, int | None]) -> None:
    """Source: 2025-11-25 basic/utilities/tasks, "Task Parameters"."""
    assert tasks.wanted(params) == expected


@pytest.mark.parametrize(
    ("params", "text"),
    [
        (b'{"task":true}', "got a task in params that is true, expected an object"),
        (b'{"task":[]}', "got a task in params that is an array, expected an object"),
        (b'{"task":{"ttl":"60"}}', 'got a ttl of a task that is "60", expected a number of milliseconds, not negative'),
        (b'{"task":{"ttl":-1}}', "got a ttl of a task that is -1, expected a number of milliseconds, not negative"),
    ],
)
def test_broken_task_options_are_refused(params: bytes, text: str) -> None:
    """The request is refused before any tool is called."""
    with pytest.raises(RemoteProtocolError) as caught:
        tasks.wanted(params)
    assert caught.value.message == text
    assert caught.value.rpc_code == INVALID_PARAMS


@given(params=st.none() | objects(), ttl_ms=st.none() | TIMES)
def test_task_options_are_added_and_removed(params: bytes | None, ttl_ms: int | None) -> None:
    """The params are themselves again, byte for byte, and in between they hold the options."""
    made = tasks.augmented(params, ttl_ms)
    assert tasks.wanted(made) == (True, ttl_ms)
    assert tasks.without_task(made) == (params or b"{}")
    assert tasks.without_task(params) == params
    assert tasks.wanted(tasks.augmented(made, 7)) == (True, 7)


@pytest.mark.parametrize(
    ("params", "found"),
    [
        (None, None),
        (b"[]", None),
        (b"{}", None),
        (b'{"taskId":""}', None),
        (b'{"taskId":5}', None),
        (b'{"taskId":"\\ud800"}', None),
        (b'{"taskId":"a","taskId":"a"}', None),
        (b'{"taskId":"%b"}' % (b"x" * 1025), None),
        (b'{"taskId":"%b"}' % (b"x" * 1024), "x" * 1024),
        (b'{ "taskId" : "\\u0061/b" }', "a/b"),
    ],
)
def test_task_that_a_request_names(params: bytes | None, found: str | None) -> None:
    """An id that no task can have counts as none."""
    assert tasks.task_id(params) == found


@pytest.mark.parametrize(
    ("wanted_ms", "kept_ms"), [(None, 50), (0, 0), (1, 1), (99, 99), (100, 100), (101, 100), (10**12, 100)]
)
def test_ttl_is_clamped(wanted_ms: int | None, kept_ms: int) -> None:
    """A client may ask for less than the default, and for more up to a bound."""
    assert tasks.clamp_ttl(wanted_ms, 50, 100) == kept_ms
    assert tasks.clamp_ttl(None, 200, 100) == 100


# --- Related tasks --------------------------------------------------------------------------------------------------


@given(data=st.none() | objects(), id=IDS, other=IDS)
def test_related_task_is_added_and_removed(data: bytes | None, id: str, other: str) -> None:
    """A message is itself again, byte for byte; a second task replaces the first."""
    related = tasks.with_related(data, id)
    assert tasks.related_id(related) == id
    assert tasks.without_related(related) == (data or b"{}")
    assert tasks.with_related(tasks.with_related(data, other), id) == related
    assert json.loads(related)["_meta"][RELATED] == {"taskId": id}
    assert tasks.related_id(data) is None
    assert tasks.without_related(data) is data


@pytest.mark.parametrize("meta", [b"null", b"7", b"[]", b"{}"])
def test_a_meta_that_is_no_object_is_replaced(meta: bytes) -> None:
    """A result whose `_meta` is no object is related to its task nevertheless."""
    assert tasks.related_id(tasks.with_related(b'{"_meta":%b,"a":1}' % meta, "t")) == "t"


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b'{"_meta":{"io.modelcontextprotocol\\/related-task":{"taskId":"t"}}}', "t"),
        (b'{"_meta":{"io.modelcontextprotocol/related\\u002dtask":{"taskId":"t"}}}', "t"),
        (b'{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":5}}}', None),
        (b'{"_meta":{"io.modelcontextprotocol/related-task":"t"}}', None),
        (b'{"io.modelcontextprotocol/related-task":{"taskId":"t"}}', None),
        (b'{"_meta":["related-task"]}', None),
        (b'{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t"}},"_meta":{}}', None),
        (b'["related-task"]', None),
    ],
)
def test_related_task_is_found_where_it_belongs(data: bytes, found: str | None) -> None:
    """The name may be escaped, and the task that is found is the one removed."""
    assert tasks.related_id(data) == found
    if found is not None:
        assert tasks.without_related(data) == b"{}"


def test_only_objects_have_a_related_task() -> None:
    """A result that is no object has no place for it."""
    with pytest.raises(RemoteProtocolError, match="got an array, expected an object"):
        tasks.with_related(b"[]", "t")


# --- Times ----------------------------------------------------------------------------------------------------------


@given(at_ms=st.integers(0, 253402300799000))
@example(at_ms=1001)  # 1.001 * 1000 is less than that
def test_times_are_read_again(at_ms: int) -> None:
    """A moment is written to the millisecond, in UTC."""
    text = tasks.format_time(at_ms / 1000)
    assert text.endswith("Z")
    assert len(text) == len("2025-11-25T10:30:00.000Z")
    assert tasks.parse_time(text) == at_ms / 1000


@pytest.mark.parametrize(
    ("text", "at_unix"),
    [
        ("1970-01-01T00:00:00Z", 0.0),
        ("1970-01-01t00:00:01.5z", 1.5),
        ("1970-01-01T02:00:00+02:00", 0.0),
        ("1970-01-01T00:00:00", 0.0),
        ("2025-11-25T10:30:00Z", 1764066600.0),
        ("1970-01-01T00:00:00.123456789Z", 0.123456),
        ("", None),
        ("yesterday", None),
        ("1970-13-01T00:00:00Z", None),
        ("\ud800", None),
        ("0", None),
    ],
)
def test_times_as_servers_write_them(text: str, at_unix: float | None) -> None:
    """A text that is no time gives None, and nothing is raised."""
    assert tasks.parse_time(text) == at_unix


def test_moments_outside_of_the_calendar_are_written_as_its_ends() -> None:
    """A clock that is set wrong raises no error."""
    assert tasks.format_time(-1.0) == "1970-01-01T00:00:00.000Z"
    assert tasks.format_time(1e300) == "9999-12-31T23:59:59.000Z"


def test_names_are_those_of_the_specification() -> None:
    """The other side compares them exactly."""
    assert (TASKS, RELATED) == ("io.modelcontextprotocol/tasks", "io.modelcontextprotocol/related-task")


@pytest.mark.parametrize(("size", "is_shown"), [(1, True), (40, True), (41, False)])
def test_an_unknown_status_is_shown_if_it_is_short(size: int, is_shown: bool) -> None:
    word = "x" * size
    with pytest.raises(RemoteProtocolError) as caught:
        tasks.read_detailed(json.dumps({"resultType": word}).encode())
    assert (f'"{word}"' in caught.value.message) is is_shown
    assert ("x" * 2 in caught.value.message) is (is_shown and size > 1)
