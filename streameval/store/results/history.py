"""History: every metric night by night, and over all nights up to each, as a Delta table that other tools read.

The table is derived from the ledger: a row belongs to the state files that it was computed from, by a *key*, the hash
of their names. Rows whose key is not due any more are dropped, rows that are missing are computed from the states, so
that a lost or outdated table costs time and nothing else. Where nights came after all others and the table is of the
version before, nothing is to be dropped: the new rows are appended, and the old ones are not read.

=============== ==============================================================
``version``       of the ledger that the row was written at
``span``          ``night``, or ``cumulative``: all nights from the first on
``partition``     the night, or the last of them
``of``, ``metric``  as results have them, with ``value``, ``lower``, ``upper``, …
=============== ==============================================================
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from streameval.errors import OptionError, StoreError
from streameval.results import Scalar
from streameval.scan import READ_ERRORS
from streameval.store.files.delta import FORGET, commit_table, open_table, read_rows

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from streameval.store.files.location import Location

__all__ = ["History", "Point", "Series", "asked", "key_of"]

FILES = 32  # of the table: then it is written anew as one

_FLOATS = ("value", "lower", "upper", "stderr", "threshold", "bound")
_KINDS = dict.fromkeys(_FLOATS, pa.float64()) | {"exact": pa.bool_(), "rows": pa.int64(), "positives": pa.int64()}
_SCALAR = [field.name for field in fields(Scalar)]
_SCHEMA = pa.schema(
    {"version": pa.int64(), "span": pa.string(), "partition": pa.string(), "group": pa.string(), "key": pa.string()}
    | {name: _KINDS.get(name, pa.string()) for name in _SCALAR}
)


def key_of(*facts: str) -> str:
    """A key of what a result depends on: state files, and the options of the metrics.

    Examples
    --------
    >>> key_of("a.parquet", "roc_auc") == key_of("a.parquet", "roc_auc") != key_of("a.parquetroc_auc")
    True
    """
    return hashlib.sha256("\0".join(facts).encode()).hexdigest()[:32]


@dataclass(frozen=True)
class Point:
    """A night of a series.

    Attributes
    ----------
    partition : the night
    night : its own value
    cumulative : the value over all nights up to it, where that was asked for
    """

    partition: str
    night: Scalar
    cumulative: Scalar | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values; a NaN is None, with its reason."""
        both = {"night": self.night, "cumulative": self.cumulative}
        told: dict[str, Any] = {"partition": self.partition}
        for span, result in both.items():
            if result is not None:
                facts = result.to_dict()
                told[span] = {name: facts[name] for name in facts if name not in ("metric", "of")}
        return told


@dataclass(frozen=True)
class History:
    """A metric of a column, night by night.

    Attributes
    ----------
    metric, of : what it is of
    points : tuple of Point, in order of the nights
    """

    metric: str
    of: str | None
    points: tuple[Point, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {"metric": self.metric, "of": self.of, "points": [point.to_dict() for point in self.points]}

    def to_json(self, indent: int | None = None) -> str:
        """`to_dict` as JSON."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    def to_csv(self) -> str:
        """One line a night: its rows, value and interval, and those of all nights up to it."""
        names = ("rows", "positives", "value", "lower", "upper")
        spans = ["night"] + ["cumulative"] * any(point.cumulative for point in self.points)
        out = io.StringIO()
        lines = csv.writer(out, lineterminator="\n")
        lines.writerow(["partition", *(f"{span}_{name}" for span in spans for name in names)])
        for point in self.points:
            told = point.to_dict()
            lines.writerow([point.partition, *(told.get(span, {}).get(name) for span in spans for name in names)])
        return out.getvalue()

    def plot(self, save_to: str | Path | None = None) -> Any:
        """Draw the series, with bands where values are intervals; returns the matplotlib Axes."""
        from streameval.plots.series import plot_series

        spans = {"per night": [point.night for point in self.points]}
        if all(point.cumulative for point in self.points):
            spans["cumulative"] = [point.cumulative for point in self.points if point.cumulative]
        lines = {name: [(r.value, r.lower, r.upper) for r in results] for name, results in spans.items()}
        title = f"{self.metric} of {self.of}" if self.of else self.metric
        return plot_series([point.partition for point in self.points], lines, title, save_to=save_to)


class Series:
    """The table of all results that are kept.

    Parameters
    ----------
    place : Place
        Its directory.
    """

    def __init__(self, place: Location) -> None:
        self.place = place
        self._new: list[dict[str, Any]] = []

    @cached_property
    def _table(self) -> Any:
        """The table; None where there is none, or it cannot be read."""
        with suppress(StoreError, *READ_ERRORS):
            return open_table(self.place)
        return None

    @cached_property
    def _rows(self) -> pa.Table:
        """The rows that are there; none where they cannot be read."""
        with suppress(StoreError, *READ_ERRORS):
            if self._table is not None:
                return read_rows(self._table, self.place, _SCHEMA)
        return _SCHEMA.empty_table()

    def appendable(self, version: int) -> bool:
        """Whether the table was last written at a version of the ledger, and is of few files."""
        if self._table is None:
            return False
        files = self._table.get_add_actions(flatten=True)
        newest = files.column("max.version").to_pylist() if "max.version" in files.schema.names else []
        return len(newest) < FILES and max((n for n in newest if n is not None), default=None) == version

    def find(self, keys: Sequence[str], metric: str | None = None) -> dict[str, list[Scalar]]:
        """Results by key; of one metric only, where it is named."""
        here = pc.is_in(self._rows["key"], pa.array(keys, pa.string()))
        if metric is not None:
            here = pc.and_(here, pc.equal(self._rows["metric"], metric))
        rows = [*self._rows.filter(here).to_pylist()]
        rows += [row for row in self._new if row["key"] in set(keys) and metric in (None, row["metric"])]
        found: dict[str, list[Scalar]] = {}
        for row in rows:
            values = {name: row[name] for name in _SCALAR}
            values |= {name: math.nan for name in _FLOATS[:3] if values[name] is None}
            found.setdefault(row["key"], []).append(Scalar(**values))
        return found

    def add(self, span: str, partition: str, group: str, key: str, results: Sequence[Scalar]) -> None:
        """Take results in; they are kept once `write` or `append` is called."""
        for result in results:
            values = {name: getattr(result, name) for name in _SCALAR}
            values |= {name: None for name in _FLOATS if values[name] != values[name]}
            self._new.append({"span": span, "partition": partition, "group": group, "key": key, **values})

    def write(self, version: int, due: set[tuple[str, str]]) -> None:
        """Keep the new rows, and of those that are there the ones whose span and key are due and not among the new."""
        marks = pc.binary_join_element_wise(self._rows["span"], self._rows["key"], " ")
        left = due - {(row["span"], row["key"]) for row in self._new}
        kept = self._rows.filter(pc.is_in(marks, pa.array([f"{span} {key}" for span, key in left], pa.string())))
        if not self._new and kept.num_rows == self._rows.num_rows and self._table is not None:
            return
        self._commit(version, kept, "overwrite")

    def append(self, version: int) -> None:
        """Keep the new rows beside those that are there, if the table can be written."""
        self._commit(version, _SCHEMA.empty_table(), "append")

    def _commit(self, version: int, kept: pa.Table, mode: Literal["overwrite", "append"]) -> None:
        """Write the new rows, with those that are kept; a table that cannot be written is left alone."""
        rows = pa.concat_tables([kept, pa.Table.from_pylist(self._new, schema=_SCHEMA)])
        rows = rows.set_column(0, "version", pa.array([version] * rows.num_rows, pa.int64()))
        facts = {"action": f"version {version}"}
        with suppress(StoreError):
            commit_table(self.place, self._table, rows, facts, "metrics of a streameval store", FORGET, mode)


def asked(metric: str) -> dict[str, Any]:
    """Options of an evaluation that computes a metric of this name.

    Examples
    --------
    >>> asked("agc@0.01"), asked("tpr@fpr=0.001")["at"]
    ({'metrics': ('agc@0.01',), 'truncate': (0.01,), 'at': ()}, ('fpr=0.001',))
    """
    suffix = metric.partition("@")[2]
    try:
        truncate = (float(suffix),) if suffix and "=" not in suffix else ()
    except ValueError:
        msg = f"no metric is named {metric!r}; write for instance agc@0.01 or tpr@fpr=0.001"
        raise OptionError(msg) from None
    return {"metrics": (metric,), "truncate": truncate, "at": (suffix,) if "=" in suffix else ()}
