"""Uploads and downloads over HTTP: `UploadAdmission` decides who may upload, `ResumableUploads` handles uploads that
continue after a break, and `FileTransfers` all other requests. Used by the engine. It rests on `base`, `downstream`,
`files/calls`, `files/store`, `state` and `wire/http`."""
