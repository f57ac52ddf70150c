"""Reading the envelope of a stateless request: its keys, the words of refusals, and the bounds."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from isthmus.core.base.errors import INVALID_PARAMS, RemoteProtocolError
from isthmus.core.base.log_levels import LEVELS
from isthmus.core.bridge import request_meta
from isthmus.core.bridge.capabilities import CAPABILITIES_DEPTH_MAX, CAPABILITIES_SIZE_MAX_BYTES
from isthmus.core.bridge.request_meta import CLIENT_INFO_SIZE_MAX_BYTES, RequestMeta
from isthmus.core.jsonrpc.splice import LOOK_MAX_BYTES

REVISION = "io.modelcontextprotocol/protocolVersion"
INFO = "io.modelcontextprotocol/clientInfo"
ABLE = "io.modelcontextprotocol/clientCapabilities"
LEVEL = "io.modelcontextprotocol/logLevel"
GOOD: dict[str, Any] = {REVISION: "2026-07-28", INFO: {"name": "c", "version": "1"}, ABLE: {"roots": {}}, LEVEL: "info"}
BAD: dict[str, list[Any]] = {
    REVISION: [5, {}, [], True],
    INFO: [5, "c", [], {}, {"name": "c"}, {"version": "1"}, {"name": 5, "version": "1"}, {"name": "c", "version": 1}],
    ABLE: [5, "c", [], True],
    LEVEL: [5, "loud", "", {}, "INFO"],
}
WANTED = {
    REVISION: "a string",
    INFO: "an object with a name and a version, of at most 131072 bytes",
    ABLE: "an object of at most 65536 bytes and 32 levels",
    LEVEL: "one of debug, info, notice, warning, error, critical, alert, emergency",
}
CLAUSE = '2026-07-28 basic, "_meta"'


def params_of(meta: Any, **rest: Any) -> bytes:
    return json.dumps({"_meta": meta, **rest}).encode()


def fault(meta: Any) -> str:
    with pytest.raises(RemoteProtocolError) as caught:
        request_meta.read(params_of(meta))
    assert (caught.value.rpc_code, caught.value.clause) == (INVALID_PARAMS, CLAUSE)
    return caught.value.message


def test_the_keys_are_those_of_the_specification() -> None:
    """Source: 2026-07-28 basic, "`_meta`"."""
    assert {REVISION, INFO, ABLE, LEVEL} == request_meta.KEYS
    assert request_meta.EXPECTED == WANTED
    assert {"inputResponses", "requestState", "task"} == request_meta.RETRY_KEYS


@pytest.mark.parametrize("padding", [0, LOOK_MAX_BYTES])
@pytest.mark.parametrize("token", [{}, {"progressToken": 1}])
def test_each_key_is_read(padding: int, token: dict[str, Any]) -> None:
    """The keys are read from small envelopes and large ones, with a progress token or without."""
    meta = GOOD | token | {"x": "y" * padding}
    found = request_meta.read(params_of(meta))
    assert (found.revision, found.log_level) == ("2026-07-28", "info")
    assert json.loads(found.capabilities) == GOOD[ABLE]
    assert found.client_info is not None and json.loads(found.client_info) == GOOD[INFO]
    assert request_meta.revision_of(params_of(meta)) == "2026-07-28"
    least = request_meta.read(params_of({REVISION: "r", ABLE: {}, **token, INFO: None, LEVEL: None}))
    assert least == RequestMeta("r", b"{}", None, None)


@pytest.mark.parametrize("level", LEVELS)
def test_every_log_level_is_accepted(level: str) -> None:
    assert request_meta.read(params_of(GOOD | {LEVEL: level})).log_level == level


@pytest.mark.parametrize(
    "faulty", [f for n in range(1, 5) for f in itertools.combinations((REVISION, ABLE, INFO, LEVEL), n)]
)
def test_each_key_that_is_malformed_is_named(faulty: tuple[str, ...]) -> None:
    """The refusal names the keys in a fixed order, with the expected types."""
    for number in range(max(len(BAD[key]) for key in faulty)):
        changed = {key: BAD[key][number % len(BAD[key])] for key in faulty}
        seen = " and ".join(f"a malformed {key}" for key in faulty)
        wanted = " and ".join(WANTED[key] for key in faulty)
        assert fault(GOOD | changed) == f"got {seen} in _meta, expected {wanted}"


@pytest.mark.parametrize("value", ["absent", None])
def test_a_missing_key_is_named(value: Any) -> None:
    """The revision and the capabilities are required; `null` counts as missing."""
    for key, other in ((REVISION, ABLE), (ABLE, REVISION)):
        meta = {k: v for k, v in GOOD.items() if k != key} | ({} if value == "absent" else {key: value})
        assert fault(meta) == f"got no {key} in _meta, expected {WANTED[key]}"
        text = f"got no {REVISION} and no {ABLE} in _meta, expected {WANTED[REVISION]} and {WANTED[ABLE]}"
        assert fault({k: v for k, v in meta.items() if k != other}) == text


def nested(levels: int) -> Any:
    return {} if levels == 1 else {"x": nested(levels - 1)}


@pytest.mark.parametrize("off", [0, 1])
def test_capabilities_have_bounds(off: int) -> None:
    """The bounds themselves are accepted."""
    assert (CAPABILITIES_SIZE_MAX_BYTES, CAPABILITIES_DEPTH_MAX) == (64 * 1024, 32)
    large = b'{"x":"%b"}' % (b"y" * (CAPABILITIES_SIZE_MAX_BYTES - 8 + off))
    deep = json.dumps(nested(CAPABILITIES_DEPTH_MAX + off)).encode()
    for raw in (large, deep):
        params = b'{"_meta":{"%b":"r","%b":%b}}' % (REVISION.encode(), ABLE.encode(), raw)
        if off:
            with pytest.raises(RemoteProtocolError, match=f"malformed {ABLE}"):
                request_meta.read(params)
        else:
            assert request_meta.read(params).capabilities == raw


@pytest.mark.parametrize("off", [0, 1])
def test_the_description_of_a_client_has_a_bound(off: int) -> None:
    """The bound itself is accepted."""
    info = b'{"name":"n","version":"%b"}' % (b"y" * (CLIENT_INFO_SIZE_MAX_BYTES - 25 + off))
    params = b'{"_meta":{"%b":"r","%b":{},"%b":%b}}' % (REVISION.encode(), ABLE.encode(), INFO.encode(), info)
    assert len(info) == CLIENT_INFO_SIZE_MAX_BYTES + off
    if off:
        with pytest.raises(RemoteProtocolError, match=f"malformed {INFO}"):
            request_meta.read(params)
    else:
        assert request_meta.read(params).client_info == info


# --- Revisions and names ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "revision"),
    [
        (None, None),
        (b"{}", None),
        (b"[]", None),
        (b'{"_meta":5}', None),
        (b'{"_meta":{"%b":"r"}}' % REVISION.encode(), "r"),
        (b'{"_meta":{"%b":5}}' % REVISION.encode(), ""),
        (b'{"_meta":{"%b":null}}' % REVISION.encode(), ""),
        (b'{"_meta":{"%b":{}}}' % ABLE.encode(), None),
        (b'{"_meta":{"io.modelcontextprotocol\\/protocolVersion":"r"}}', "r"),
        (b'{"_meta":{"io.m\\u006fdelcontextprotocol/protocolVersion":"r"}}', "r"),
        (b'{"x":{"%b":"r"}}' % REVISION.encode(), None),
        (b'["%b"]' % REVISION.encode(), None),
    ],
)
def test_the_revision_that_a_request_names(params: bytes | None, revision: str | None) -> None:
    assert request_meta.revision_of(params) == revision
    if revision is not None:
        assert request_meta.may_name_sender(params)
        assert params is not None
        padded = params[:-1] + b',"z":"%b"}' % (b"y" * LOOK_MAX_BYTES)
        assert request_meta.revision_of(padded) == revision


@pytest.mark.parametrize(
    ("raw", "is_named"),
    [
        (b'{"name":"a","version":"1"}', True),
        (b'{"version":"","name":"","x":1}', True),
        (b'{"name":"a"}', False),
        (b'{"version":"1"}', False),
        (b'{"name":"a","version":1}', False),
        (b"[]", False),
        (b"null", False),
        (b"{}", False),
    ],
)
def test_an_implementation_has_a_name_and_a_version(raw: bytes, is_named: bool) -> None:
    assert request_meta.is_implementation(raw) is is_named


def test_the_envelope_of_the_proxys_own_requests() -> None:
    own = request_meta.own_envelope("2026-07-28", "isthmus", "1.2")
    assert own == RequestMeta("2026-07-28", b"{}", b'{"name":"isthmus","version":"1.2"}', None)


# --- Adding and removing ----------------------------------------------------------------------------------------------

FULL = RequestMeta("r", b'{"roots":{}}', b'{"name":"c","version":"1"}', "info")
WRITTEN = f'"{REVISION}":"r","{INFO}":{{"name":"c","version":"1"}},"{ABLE}":{{"roots":{{}}}},"{LEVEL}":"info"'


@pytest.mark.parametrize(
    ("params", "with_envelope"),
    [
        (None, '{"_meta":{%s}}'),
        (b"{}", '{"_meta":{%s}}'),
        (b'{"a":1}', '{"a":1,"_meta":{%s}}'),
        (b'{"_meta":{},"a":1}', '{"_meta":{%s},"a":1}'),
        (b'{"_meta":5}', '{"_meta":{%s}}'),
        (b'{"_meta":{"x":1}}', '{"_meta":{"x":1,%s}}'),
        (b'{"_meta":{"%b":"old","x":1}}' % REVISION.encode(), '{"_meta":{"x":1,%s}}'),
    ],
)
def test_an_envelope_is_added(params: bytes | None, with_envelope: str) -> None:
    """The envelope stands behind the other members, in a fixed order, and replaces an earlier one."""
    assert json.loads(request_meta.add(params, FULL)) == json.loads(with_envelope % WRITTEN)
    assert list(json.loads(request_meta.add(None, FULL))["_meta"]) == [REVISION, INFO, ABLE, LEVEL]
    bare = json.loads(request_meta.add(params, RequestMeta("r", b"{}")))["_meta"]
    assert {key: bare.get(key) for key in GOOD} == {REVISION: "r", ABLE: {}, INFO: None, LEVEL: None}


def test_an_array_has_no_place_for_an_envelope() -> None:
    with pytest.raises(RemoteProtocolError, match="got params in an array, expected an object") as caught:
        request_meta.add(b"[]", FULL)
    assert caught.value.rpc_code == INVALID_PARAMS


@pytest.mark.parametrize(
    ("params", "stripped"),
    [
        (None, None),
        (b"[1]", b"[1]"),
        (b'[{"requestState":1}]', b'[{"requestState":1}]'),
        (b"5", b"5"),
        (b'{ "a":1 }', b'{ "a":1 }'),
        (b'{"a":1,"requestState":"s"}', b'{"a":1}'),
        (b'{"inputResponses":{},"a":1,"task":{}}', b'{"a":1}'),
        (b'{"requestState":"s"}', b"{}"),
        (b'{"a":{"requestState":"s"}}', b'{"a":{"requestState":"s"}}'),
        (b'{"_meta":{"%b":"r"},"a":1,"requestState":"s"}' % REVISION.encode(), b'{"a":1}'),
        (b'{"_meta":{"%b":"r","x":1},"a":1}' % LEVEL.encode(), b'{"_meta":{"x":1},"a":1}'),
    ],
)
def test_the_continuation_of_a_request_is_removed(params: bytes | None, stripped: bytes | None) -> None:
    """The envelope is removed, too; params that are no object stay as they are."""
    assert request_meta.strip_retry(params) == stripped


@pytest.mark.parametrize("key", sorted(GOOD))
def test_each_key_is_removed(key: str) -> None:
    params = params_of({key: GOOD[key]}, a=1)
    assert request_meta.strip(params) == b'{"a": 1}'
    assert json.loads(request_meta.strip(params_of({key: GOOD[key], "x": 1})) or b"") == {"_meta": {"x": 1}}
    for near in (key.upper(), key + " ", key + "Q", key.replace("io.", "")):
        raw = params_of({near: 1})
        assert request_meta.strip(raw) == raw
