from __future__ import annotations

from collections.abc import Iterator

import pytest
from token_provider import Provider


@pytest.fixture
def provider() -> Iterator[Provider]:
    found = Provider()
    yield found
    found.close()
