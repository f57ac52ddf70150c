"""Stored files and their records: `FileStore`, with the quota, eviction, handles, signed links and tombstones of files,
and the workspaces of sessions. Used by the other rooms of `files` and by the engine. It rests on `base` and `state`."""
