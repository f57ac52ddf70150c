"""The conformance checker: watches any MCP wire and reports which clauses of the specification are broken. See
`oracle`."""

from .methods import METHODS, Use
from .observations import (
    PIPE_CHANNEL,
    AnyObservation,
    Ended,
    Head,
    Observation,
    Opened,
    Role,
    Said,
    Severity,
    Transport,
    Verb,
    Violation,
    decode_observation,
)
from .oracle import REMEMBERED_MAX, Oracle
from .rule import Rule
from .rules import RULES
from .watch import SchemaCheck

__all__ = [
    "METHODS",
    "PIPE_CHANNEL",
    "REMEMBERED_MAX",
    "RULES",
    "AnyObservation",
    "Ended",
    "Head",
    "Observation",
    "Opened",
    "Oracle",
    "Role",
    "Rule",
    "Said",
    "SchemaCheck",
    "Severity",
    "Transport",
    "Use",
    "Verb",
    "Violation",
    "decode_observation",
]
