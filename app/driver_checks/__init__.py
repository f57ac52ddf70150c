"""Checks of a driver: conversations with a running gateway, each with a server and a client of this folder.

A program that has taken a copy of the engine runs them on its own driver, by `isthmus check-driver` or by pytest. They
need no package but those of the engine, and know nothing of the copy.
"""

from .checks import CHECKS, Check
from .clients import CheckFailed
from .run import Outcome, Verdict, run
from .scene import CheckSkipped
from .target import Start, Target

__all__ = ["CHECKS", "Check", "CheckFailed", "CheckSkipped", "Outcome", "Start", "Target", "Verdict", "run"]
