"""``streameval``, and ``python -m streameval``."""

from __future__ import annotations

import atexit
import gc
import os
import signal

from streameval.posix import open_streams


def run() -> None:
    """Run the command line; Ctrl-C ends it without a traceback, while modules are imported as well."""
    open_streams()
    interrupt = signal.getsignal(signal.SIGINT)
    if callable(interrupt):
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    gc.set_threshold(50_000)  # modules hold most objects: searching them after every 700 new ones takes 0.1 s
    atexit.register(gc.freeze)  # searching all modules for garbage while Python ends takes 0.2 s
    from streameval.cli import main
    from streameval.cli.console import show_visibly

    show_visibly()
    try:
        signal.signal(signal.SIGINT, interrupt)
        main(prog_name="streameval")
    except KeyboardInterrupt:  # before the command has begun, or after it has ended
        os._exit(130)


if __name__ == "__main__":
    run()
