"""The file plane: `FilePlane` is the face that the engine gives to the router, and `ArtifactResources` lists artifacts
as MCP resources. The work is done in `files/store`, `files/calls` and `files/transfer`, in this order. It rests on
`base`, `bridge`, `jsonrpc`, `state`, `files/store` and `files/calls`."""
