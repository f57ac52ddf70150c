"""The version and the description, as in `pyproject.toml`: reading the package metadata would slow every start."""

from __future__ import annotations

from typing import Final

VERSION: Final = "0.1.0"
DESCRIPTION: Final = "A sans-IO proxy engine for the Model Context Protocol, and the proxy built on it."
