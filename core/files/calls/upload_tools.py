"""The tools by which the client of a server uploads files, as texts name them."""

from __future__ import annotations

from typing import NamedTuple


class UploadTools(NamedTuple):
    """The names that a client has for these tools.

    Attributes:
        put: takes the content of a file.
        link: gives a link to send files to; "" where nothing listens for HTTP.
    """

    put: str
    link: str

    @property
    def either(self) -> str:
        """The two names, or the one that there is."""
        return f"{self.put} or {self.link}" if self.link else self.put

    @property
    def how(self) -> str:
        """The end of a sentence: how to get the handle of a file."""
        link = f", or {self.link} and POST the file to the upload_url it gives" if self.link else ""
        return f"call {self.put} with its content{link}, and pass the upload handle from the response"
