"""The stdio transport: servers as child processes, and a client on our own stdin and stdout, one JSON message a line.

The app uses `Child`, `ChildSpec`, `environment_for`, `serve_pipe` and `exit_reason`; `unix` uses `lines` and `outbox`.
"""
