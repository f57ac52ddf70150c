"""A browser for logins: opens a page, and follows redirects with cookies until a page ends them.

Where nobody listens yet, as at a redirect URI, it tries again.
"""

from __future__ import annotations

import sys
import time
import urllib.error
import urllib.request
from http.cookiejar import CookieJar

ATTEMPTS = 100
PAUSE_S = 0.2

jar = CookieJar()
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPCookieProcessor(jar))
for _ in range(ATTEMPTS):
    try:
        with opener.open(sys.argv[1], timeout=30) as page:
            page.read()
        break
    except urllib.error.URLError as error:
        if not isinstance(error.reason, ConnectionRefusedError):
            raise
        time.sleep(PAUSE_S)
else:
    sys.exit(f"{sys.argv[1]} leads to where nobody listens")
