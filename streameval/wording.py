"""Wording: counts and lists of names as messages have them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["few", "plural"]


def plural(count: int, word: str) -> str:
    """So many of something.

    Examples
    --------
    >>> plural(1, "row"), plural(0, "row"), plural(12_000, "row")
    ('1 row', '0 rows', '12,000 rows')
    """
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"


def few(names: Sequence[str]) -> str:
    """The first three names, and a sign that there are more.

    Examples
    --------
    >>> few(["a", "b"]), few(["a", "b", "c", "d"])
    ('a, b', 'a, b, c, …')
    """
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
