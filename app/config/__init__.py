"""Configuration: its shape, its checks, and what the engine gets of it.

`settings` is the shape, `load` reads and checks a file, `plan` makes a `Plan` and `Limits` from it. `rusted_tools` and
`remote_mcp_adapter` read the configurations of two other proxies.
"""
