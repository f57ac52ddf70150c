"""Operator pages over HTTP: servers, tools, tasks, files and metrics.

`app.gateway` builds `ServerPages`, `ToolPages`, `TaskPages` and `FilePages`, and imports `metrics` late.
"""
