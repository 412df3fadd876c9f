"""Rounds: work on keyed rows in several visits, each of which may hand rows on, under other keys, to the next one.

A round visits intervals of its buckets independently, in any order, on threads or on workers. It gives a value for each
interval; where it `hands_on`, also the rows that the interval contributes to the next round. Merged, these are the next
round. `run` does all rounds in this process; `streameval.engine.cluster` does them on workers, between which an
exchange moves the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, TypeVar

from streameval.states.keyed.counts import KeyedCounts

if TYPE_CHECKING:
    from streameval.budget import Budget
    from streameval.states.keyed.layout import Interval
    from streameval.states.protocol import StoredSpec

    T = TypeVar("T")
    R = TypeVar("R")

Mapper = Callable[[Callable[[Any], Any], Sequence[Any], str], Sequence[Any]]  # takes a function, items and a task name


class Round(Protocol):
    """Keyed rows, and how to visit them.

    Attributes
    ----------
    name : name of its tasks
    hands_on : whether another round follows
    """

    name: ClassVar[str]

    @property
    def hands_on(self) -> bool:
        """Whether another round follows."""

    def runs(self) -> Mapping[str, KeyedCounts]:
        """The keyed counts, which grow with the rows."""

    def with_runs(self, runs: Mapping[str, KeyedCounts], /) -> Self:
        """The same round over other rows."""

    def intervals(self, budget: Budget, within: Interval | None = None) -> list[Interval]:
        """Intervals of all buckets, or of those in `within`, that can be visited independently; at least one."""

    def visit(self, interval: Interval, budget: Budget) -> tuple[Any, Round | None]:
        """The value of an interval, and the rows that it hands on."""


class FirstRound(Round, Protocol):
    """A round over the rows of a state."""

    @property
    def holder(self) -> StoredSpec:
        """The spec of the state that holds the rows."""


def one_by_one(function: Callable[[T], R], items: Sequence[T], _: str) -> list[R]:
    """Map a function over items in this thread."""
    return [function(item) for item in items]


def merge(parts: Sequence[Round]) -> Round:
    """The round over the rows of all parts."""
    runs = [part.runs() for part in parts]
    return parts[0].with_runs({name: reduce(KeyedCounts.merge, (run[name] for run in runs)) for name in runs[0]})


def _visit(current: Round, budget: Budget, interval: Interval) -> tuple[Any, Round | None]:
    return current.visit(interval, budget)


def run(first: Round, budget: Budget, each: Mapper = one_by_one) -> list[list[Any]]:
    """Do all rounds in this process; returns the values of each. `each` maps a function over intervals."""
    current: Round | None = first
    values = []
    while current is not None:
        visits = each(partial(_visit, current, budget), current.intervals(budget), current.name)
        values.append([value for value, _ in visits])
        current = merge([part for _, part in visits]) if current.hands_on else None
        del visits  # they hold the rows of this round, which the next one does not need
        budget.release_spares()
    return values
