"""Files in calls: finds the handles in arguments and the files in results, moves them between store and workspace, and
rewrites both messages. Other rooms use `Calls`, `FileCall`, `offers` and `LinkedResources`. It rests on `base`,
`bridge`, `files/store`, `jsonrpc`, `state` and `upstream`."""
