"""Mapping a function over the shards of a state: one after the other, or on the threads of an engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Mapper = Callable[[Callable[[Any], Any], Sequence[Any], str], Sequence[Any]]  # takes a function, items and a task name


def one_by_one(function: Callable[[Any], Any], items: Sequence[Any], _: str) -> list[Any]:
    """Map a function over items in this thread."""
    return [function(item) for item in items]
