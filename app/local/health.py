"""What a container's health check runs: python -m app.local.health URL; the exit status is 0 where it answers 200."""

from __future__ import annotations

import sys
import urllib.error
import urllib.request

ANSWER_S_MAX = 3.0


def main(url: str) -> int:
    """0 where the URL answers well; else 1, after saying what it answered."""
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
