"""Tests of the object editor: only objects have members that can be set."""

from __future__ import annotations

import pytest
from isthmus.core.base.errors import INVALID_REQUEST, RemoteProtocolError
from isthmus.core.jsonrpc.object_editor import ObjectEditor


@pytest.mark.parametrize("given", [b"", b"[]", b"1", b'"a"', b"null", b' {"a":1}'])
def test_a_value_that_is_no_object_is_refused(given: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="got a value that is no object, expected an object") as caught:
        ObjectEditor(given)
    assert caught.value.rpc_code == INVALID_REQUEST
