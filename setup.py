"""Lists the packages by rule: every folder below the four that are installed under `isthmus`, those that hold only data
too, and the change notes, which `isthmus vendor` reads."""

from setuptools import find_namespace_packages, setup

PARTS = ("core", "transports", "storage", "app")
FOUND = find_namespace_packages(
    include=[pattern for part in PARTS for pattern in (part, f"{part}.*")], exclude=["*.__pycache__"]
)

setup(packages=["isthmus.changes", *(f"isthmus.{name}" for name in FOUND)])
