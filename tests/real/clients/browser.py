"""A browser for logins: opens a page, and follows redirects with cookies until a page ends them."""

from __future__ import annotations

import sys
import urllib.request
from http.cookiejar import CookieJar

jar = CookieJar()
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPCookieProcessor(jar))
with opener.open(sys.argv[1], timeout=30) as page:
    page.read()
