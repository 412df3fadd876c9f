"""``streameval``, and ``python -m streameval``."""

from __future__ import annotations

import os
import signal

__all__ = ["run"]


def run() -> None:
    """Run the command line; Ctrl-C ends it without a traceback, while modules are imported as well."""
    heard = signal.getsignal(signal.SIGINT)
    if callable(heard):
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from streameval.cli import main

    try:
        signal.signal(signal.SIGINT, heard)
        main(prog_name="streameval")
    except KeyboardInterrupt:  # before the command has begun
        os._exit(130)


if __name__ == "__main__":
    run()
