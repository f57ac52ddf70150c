"""The rules: what each one says, which revisions have it, and where.

A rule holds in exactly the revisions that it has a clause for. The watches find what breaks one, and need not know when
it holds: what they find is compared with this table, and dropped where the revision has no such rule.
"""

from __future__ import annotations

from typing import Final

from .rule import Rule
from .rules_http import HTTP_RULES
from .rules_messages import MESSAGE_RULES
from .rules_stateless import STATELESS_RULES

_EACH: Final = (*MESSAGE_RULES, *HTTP_RULES, *STATELESS_RULES)

RULES: Final[dict[str, Rule]] = {rule.id: rule for rule in _EACH}
"""Every rule by its id."""
assert len(RULES) == len(_EACH)
