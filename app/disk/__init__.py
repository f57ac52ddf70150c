"""Storage orders carried out on disk: workspaces, uploads, artifacts, locks.

The gateway uses `Workspaces` and `BlobFiles`; `openat` and `permissions` keep paths safe.
"""
