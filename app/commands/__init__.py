"""The work of commands: start banner, checks of adapters, demo, files, tasks.

`app.cli` calls `banner`, `check_adapters` and `describe_eras`, and imports the other commands when they are used.
"""
