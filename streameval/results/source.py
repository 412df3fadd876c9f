"""`Source`: where results come from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Source:
    """Where results come from, without credentials.

    Attributes
    ----------
    data : paths and URIs without credentials, and the types of objects in memory
    files : number of files that were read; 0 if there are none
    command : the shell command that repeats the run; empty if there is none
    nights : number of nights of a store
    """

    data: tuple[str, ...] = ()
    files: int = 0
    command: str = ""
    nights: int = 0
