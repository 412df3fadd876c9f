"""``streameval``, and ``python -m streameval``."""

from __future__ import annotations

import atexit
import gc
import inspect
import os
import signal
import sys
import threading
from typing import Any

from streameval.streams import open_streams

# What libraries look for and no command uses, with the module that looks for it; half a second of every command.
_UNUSED = {
    "pandas": None,  # Arrow, on the first conversion of a list
    "coverage": "numba.misc.coverage_support",
    "cffi": "numba.core.typing.cffi_utils",
    "scipy.linalg": "numba.np.linalg",  # no loop multiplies matrices
    "jinja2": "dask.widgets.widgets",  # shows objects in notebooks
    "yaml": "numba.core.config",  # settings of numba in the working directory
    "charset_normalizer": "numpy.f2py.crackfortran",
}
_OBJECTS = 500_000  # objects that a command makes: 110,000 to 310,000 by its imports, 200,000 if it compiles its loops


class _Lean:
    """Makes a process of the command line work as if packages that it does not use were not installed."""

    @staticmethod
    def find_spec(name: str, _path: Any = None, _target: Any = None) -> None:
        """Raise `ModuleNotFoundError` for a package that is not used."""
        if name in _UNUSED and _UNUSED[name] in (None, _importer()):
            msg = f"{name} is not used by the command line"
            raise ModuleNotFoundError(msg, name=name)


def _importer() -> str:
    """The module whose import statement is being run."""
    name, frame = __name__, inspect.currentframe()
    while frame is not None and (name == __name__ or name.startswith("importlib.")):
        name, frame = str(frame.f_globals["__name__"]), frame.f_back
    return name


def run() -> None:
    """Run the command line; Ctrl-C ends it without a traceback, while modules are imported as well."""
    open_streams()
    heard = signal.getsignal(signal.SIGINT)
    if callable(heard):
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.meta_path.insert(0, _Lean)
    _spare_modules()
    from streameval.cli import main
    from streameval.cli.errors import show_visibly

    show_visibly()
    try:
        signal.signal(signal.SIGINT, heard)
        try:
            main(prog_name="streameval")
        except SystemExit as end:
            _leave(end.code)
            raise
    except KeyboardInterrupt:  # before the command has begun, or after it has ended
        os._exit(130)


def _spare_modules() -> None:
    """Collect garbage only after imports and the first compilation: almost nothing that they allocate is garbage.

    It is a tenth of a second of every command, half a second of the first.
    """
    usual = gc.get_threshold()

    def begin(phase: str, _info: Any) -> None:
        if phase == "stop":
            gc.callbacks.remove(begin)
            gc.freeze()
            gc.set_threshold(*usual)

    gc.callbacks.append(begin)
    gc.set_threshold(_OBJECTS, *usual[1:])


def _leave(status: Any) -> None:
    """End the process as `multiprocessing` ends its own: without clearing modules, which takes 0.3 s.

    Waits for threads and runs exit handlers. Returns if the interpreter has something to report: a status that is a
    message, or output that cannot be written.
    """
    if not isinstance(status, int | None):
        return
    threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001 - as `multiprocessing.process` does: it also ends the threads of pools, which no public function does
    atexit._run_exitfuncs()  # noqa: SLF001 - `os._exit` skips the exit handlers, and no public function runs them
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except (OSError, ValueError):  # a full disk, a closed pipe or a closed stream
        return
    os._exit(status or 0)


if __name__ == "__main__":
    run()
