"""Judges observations with `core.oracle`, and formats findings.

`servers` and `clients` judge the two sides, `findings` holds what was found, `report` writes it.
"""
