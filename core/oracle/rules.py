"""The table of all rules: what each one requires, in which revisions, and where they say so.

A rule holds in exactly the revisions that it has a clause for. Checkers find what breaks a rule, and need not know in
which revisions it holds: their findings are compared with this table, and dropped where the revision has no such rule.
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
