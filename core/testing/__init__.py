"""Checks for drivers, which a program that has taken a copy of the engine runs on its own driver.

`WatchedEngine` is an `Engine` that reports breaches of the driver's contract. `CHECKS` are conversations with a running
gateway, each with a server and a client of this folder. Nothing else in the copy uses this folder. It needs no package
but those of the engine.
"""

from .checks import CHECKS, Check
from .clients import CheckFailed
from .contract import INPUTS, ORDERS, Kind
from .run import Outcome, Verdict, run
from .scene import CheckSkipped
from .target import Start, Target
from .watched_engine import Contract, WatchedEngine

__all__ = [
    "CHECKS",
    "INPUTS",
    "ORDERS",
    "Check",
    "CheckFailed",
    "CheckSkipped",
    "Contract",
    "Kind",
    "Outcome",
    "Start",
    "Target",
    "Verdict",
    "WatchedEngine",
    "run",
]
