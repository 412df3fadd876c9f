"""Commands in this process, and what other processes may do and hold."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from click.testing import CliRunner, Result

from streameval.cli import main

PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 24, 1, 2


def obey_permissions() -> None:
    """Root reads and writes where nobody may; without these capabilities a new process obeys like anyone else."""
    if os.getuid() == 0:
        for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
            ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)


def opened(pid: int | str = "self") -> Iterator[str]:
    """Names of the files that a process has open; those that it closes meanwhile are left out."""
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            yield str(descriptor.readlink())


def run(*words: object) -> Result:
    """The result of a command."""
    return CliRunner().invoke(main, [str(word) for word in words])
