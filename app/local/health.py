"""The health check of a container: python -m app.local.health URL. The exit status is 0 for a successful response."""

from __future__ import annotations

import sys
import urllib.error
import urllib.request

ANSWER_S_MAX = 3.0


def main(url: str) -> int:
    """0 for a successful response; otherwise prints the response and returns 1."""
    try:
        with urllib.request.urlopen(url, timeout=ANSWER_S_MAX):
            return 0
    except urllib.error.HTTPError as error:
        print(error.read(2_000).decode(errors="replace"))
    except OSError as error:
        print(error)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
