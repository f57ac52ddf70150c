"""The file plane: `FilePlane` is its interceptor, and `ArtifactResources` lists artifacts as MCP resources. The work is
done in `files/store`, `files/calls` and `files/transfer`, in this order. `feature` constructs the rooms, which a copy
may leave out. It rests on `base`, `bridge`, `downstream`, `jsonrpc`, `state`, `upstream`, `files/store`, `files/calls`
and `files/transfer`."""
