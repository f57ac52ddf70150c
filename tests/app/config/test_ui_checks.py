"""The checks of `ui`: where the live page listens, and who may see it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from each_row import each_row
from isthmus.app.base.errors import ConfigError
from isthmus.app.config.load import loads
from isthmus.app.config.settings import Settings

TOKEN = {"management": {"token": "t" * 20}}
OPEN = "0.0.0.0:8933"


def load(ui: dict[str, Any], **sections: Any) -> Settings:
    document = {"servers": [{"id": "a", "upstream": {"command": ["x"]}}], "ui": ui, **sections}
    return loads(json.dumps(document), "json", "/", {})


def test_a_page_that_others_reach_has_somebody_who_may_see_it() -> None:
    for ui, sections in (
        ({}, {}),
        ({"listen": "127.0.0.1:8933"}, {}),
        ({"listen": "[::1]:0"}, {}),
        ({"listen": "localhost:8933", "redact": ["iban"], "actions": True, "keep": True, "bodies": False}, {}),
        ({"listen": OPEN}, {"core": TOKEN}),
        ({"listen": OPEN}, {"auth": {"tokens": [{"name": "x", "sha256": "a" * 64}]}}),
    ):
        assert load(ui, **sections).ui.listen == ui.get("listen")


FAULTS = [
    ({"listen": "8933"}, {}, "ui.listen", "HOST:PORT, such as 127.0.0.1:8933"),
    ({"listen": "127.0.0.1:65536"}, {}, "ui.listen", "HOST:PORT"),
    ({"listen": ""}, {}, "ui.listen", "HOST:PORT"),
    ({"listen": "127.0.0.1:8932"}, {}, "ui.listen", "another port than core.port"),
    ({"listen": OPEN}, {}, "ui.listen", "auth or core.management.token beside it"),
    ({"listen": "127.0.0.1:1", "redact": [" "]}, {}, "ui.redact", "names, such as iban"),
    ({"port": 1}, {}, "ui.port", ""),
]


@each_row(("ui", "sections", "key", "right"), FAULTS)
def test_a_fault_names_its_key(ui: dict[str, Any], sections: dict[str, Any], key: str, right: str) -> None:
    with pytest.raises(ConfigError) as error:
        load(ui, **sections)
    assert key in str(error.value) and right in str(error.value)
