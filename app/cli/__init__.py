"""The command line: argument parser, dispatch to commands, `wrap` and `replay`.

`cli.main` is the entry point.
"""
