"""Stands in for the client that the conformance suite starts, and puts isthmus between the two.

    through.py FOLDER OPTION… -- COMMAND ARGUMENT… URL

starts `isthmus wrap` with these options in front of the URL, runs the command with isthmus's URL instead, and ends
isthmus. The exit code is the command's, or 1 if isthmus did not start or did not end well. Logs go to the folder.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "real"))
import rig


def main(folder: Path, options: list[str], client: list[str], url: str) -> int:
    proxy = rig.Proxy(
        [rig.ISTHMUS, "wrap", "--listen", "127.0.0.1:0", *options, url],
        folder=folder,
        tag=os.environ.get(rig.TAG_NAME),  # the caller ends all processes with its own tag
    )
    try:
        proxy.wait_ready()
        client_code = subprocess.run([*client, proxy.url], check=False).returncode
        proxy.terminate()
        proxy_code = proxy.wait_exit()
    except rig.RigError as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        if proxy.popen.poll() is None:
            proxy.kill()
    if proxy_code != 0:
        print(f"{proxy.describe()}: exit code {proxy_code}, expected 0", file=sys.stderr)
    return client_code or (1 if proxy_code else 0)


if __name__ == "__main__":
    at = sys.argv.index("--")
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:at], sys.argv[at + 1 : -1], sys.argv[-1]))
