"""Where results come from."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Source"]


@dataclass(frozen=True)
class Source:
    """Where results come from, as far as others may know it.

    Attributes
    ----------
    data : what was named: paths and URIs without credentials, and the kinds of things in memory
    files : number of files that were read; 0 where there are none
    command : what repeats the run on the command line; empty where nothing does
    nights : number of a store's nights
    """

    data: tuple[str, ...] = ()
    files: int = 0
    command: str = ""
    nights: int = 0
