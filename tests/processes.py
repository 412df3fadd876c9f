"""What other processes do while a test looks at them."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


def opened(pid: int | str = "self") -> Iterator[str]:
    """Names of the files that a process has open; those that it closes meanwhile are left out."""
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            yield str(descriptor.readlink())
