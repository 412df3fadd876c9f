"""Standard streams of a command: a closed one is the null device, and what cannot be written to stderr is dropped.

Results that cannot be written to stdout are an error; messages never change what a command does, or its status.
"""

from __future__ import annotations

import io
import os
import sys
from typing import Any


def open_streams() -> None:
    """Open the streams that are closed, and replace stderr by a stream that never fails.

    The next file that is opened would get the number of a closed stream, and what is meant for the stream would be
    written into the file. Python has None for a closed stream.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115 - it stays open
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115 - it stays open
    encoding = sys.stderr.encoding if sys.stderr else None
    raw: Any = _Lossy(2, "w", closefd=False)
    sys.stderr = io.TextIOWrapper(io.BufferedWriter(raw), encoding, "backslashreplace", line_buffering=True)
    sys.__stderr__ = sys.stderr  # type: ignore[misc]  # final in typeshed; `cli.console` compares both


class _Lossy(io.FileIO):
    """A file that drops what it cannot write: it is closed, full, or a pipe that nobody reads."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data) or len(data)
        except OSError:
            return len(data)
