"""Runs `abs` for shell scripts in a process that the test forks.

Python's start and the imports would take two seconds.

In a script `python -IS abs_in_shell.py ARGUMENTS` passes its arguments, folder, settings, input and output to the test,
and ends with the exit status.
"""

from __future__ import annotations

import json
import os
import socket
import sys

SOCKET = "TESTS_ABS_SOCKET"  # environment variable: the socket of the test

if __name__ == "__main__":
    with socket.socket(socket.AF_UNIX) as connection, connection.makefile() as reply:
        connection.connect(os.environ[SOCKET])
        settings = {name: value for name, value in os.environ.items() if name.startswith("ABS_")}
        order = {"pid": os.getpid(), "folder": os.getcwd(), "settings": settings, "arguments": sys.argv[1:]}
        connection.sendall(json.dumps(order).encode() + b"\n")
        sys.exit(int(reply.readline()))
