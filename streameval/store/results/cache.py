"""Remembered: evaluations that are kept until the ledger changes.

An evaluation of a year reads every stored key; its results are a few kilobytes. They are kept under a name that says
what they depend on: the version of the ledger, the state files, the metrics, and the version of streameval. Curves and
tables of a remembered evaluation read the states when they are asked for.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from streameval.evaluation.result import Evaluation
from streameval.results import Scalar
from streameval.scan import READ_ERRORS
from streameval.store.files.states import StateFiles, put, read_bytes

if TYPE_CHECKING:
    from streameval.engine import Engine
    from streameval.store.files.location import Location

__all__ = ["LazyStates", "ResultCache"]

_FLOATS = ("value", "lower", "upper")


class LazyStates(Mapping[tuple[str, str], Any]):
    """States that are read when they are asked for.

    Parameters
    ----------
    readers : mapping of (group, column) to a callable that reads the state
    """

    def __init__(self, readers: Mapping[tuple[str, str], Callable[[], Any]]) -> None:
        self._readers = readers

    def __getitem__(self, key: tuple[str, str]) -> Any:
        return self._readers[key]()

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._readers)

    def __len__(self) -> int:
        return len(self._readers)


class ResultCache:
    """The evaluations of a store that are kept.

    Parameters
    ----------
    place : Place
        Their directory.
    """

    def __init__(self, place: Location) -> None:
        self.place = place

    def recall(self, version: int, key: str, states: LazyStates, engine: Engine, threshold: float) -> Evaluation | None:
        """The evaluation of a key, if it is kept."""
        try:
            told = json.loads(read_bytes(self.place.child(f"{version}-{key}.json")))
            results = tuple(_scalar(facts) for facts in told["results"])
            dropped = tuple((fact["reason"], fact["rows"]) for fact in told["dropped"])
            rows, positives = told["rows"], told["positives"]
        except (*READ_ERRORS, TypeError):
            return None
        kept: Any = states
        return Evaluation(rows, positives, results, dropped, (), kept, engine, threshold)

    def keep(self, version: int, key: str, evaluation: Evaluation) -> None:
        """Keep an evaluation, and none of other versions; a store that cannot be written is left alone."""
        with suppress(*READ_ERRORS):
            put(self.place.child(f"{version}-{key}.json"), evaluation.to_json().encode())
            files = StateFiles(self.place)
            files.delete([name for name, _, _ in files.list() if not name.startswith(f"{version}-")])


def _scalar(facts: dict[str, Any]) -> Scalar:
    """A result from its plain values."""
    known = {field.name for field in fields(Scalar)}
    if not set(facts) <= known:
        msg = f"a result has {', '.join(sorted(set(facts) - known))}"
        raise ValueError(msg)
    numbers = {name: _number(facts.get(name)) for name in _FLOATS}
    more = {name: _number(facts[name]) for name in ("stderr", "threshold", "bound") if name in facts}
    values: dict[str, Any] = facts | numbers | more
    return Scalar(**values)


def _number(value: float | str | None) -> float:
    """A number as JSON has it: null for NaN, infinities as text."""
    return math.nan if value is None else float(value)
