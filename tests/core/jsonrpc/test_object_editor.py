"""Only objects have members that can be set."""

from __future__ import annotations

import pytest
from isthmus.core.base.errors import INVALID_REQUEST, RemoteProtocolError
from isthmus.core.jsonrpc.object_editor import Draft


@pytest.mark.parametrize("given", [b"", b"[]", b"1", b'"a"', b"null", b' {"a":1}'])
def test_what_is_no_object_is_refused_in_these_words(given: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="got a value that is no object, expected an object") as caught:
        Draft(given)
    assert caught.value.rpc_code == INVALID_REQUEST
