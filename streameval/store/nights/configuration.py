"""Configuration: what a store keeps of its data, decided by its first update.

Columns, the positive label and the policies decide the states, so they cannot change later; which metrics are computed
of the states can, so `metrics`, `truncate`, `at` and `threshold` are defaults for whoever looks. Key types (how scores
and ids become keys) are frozen as well: a later night may have a narrower type, and is widened.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streameval.arguments import numbers, plain, texts
from streameval.errors import OptionError, SchemaError
from streameval.evaluation.families import planned
from streameval.evaluation.request import Request
from streameval.scan import Piece, Scan, widened
from streameval.states.clusters.counts import id_type
from streameval.states.scores.types import score_type

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streameval.evaluation.families import MetricRequest

__all__ = ["REPORTED", "Configuration"]

REPORTED = ("metrics", "truncate", "threshold", "at")  # options that decide no state
_LISTS = ("score", "cluster", "metrics", "truncate", "at")
_DEFAULTS: dict[str, Any] = {
    "label": "label",
    "pos_label": None,
    "score": (),
    "cluster": (),
    "classes": None,
    "weight": None,
    "nan": "error",
    "nulls": "error",
    "cluster_scope": "global",
    "approx": False,
    "metrics": (),
    "truncate": (),
    "threshold": 1,
    "at": (),
}
_ARROW = {
    "f4": pa.float32(),
    "f8": pa.float64(),
    "i4": pa.int32(),
    "i8": pa.int64(),
    "u8": pa.uint64(),
    "signed": pa.int64(),
    "unsigned": pa.uint64(),
    "hash": pa.large_string(),
}
_VIEWS = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}  # Arrow cannot filter views


@dataclass(frozen=True)
class Configuration:
    """What a store keeps.

    Attributes
    ----------
    options : arguments of `streameval.evaluate`, every one that a store takes
    types : key type of every score, cluster and class column

    Examples
    --------
    >>> Configuration.of({"score": "score_lr"}).options["score"]
    ('score_lr',)
    """

    options: dict[str, Any]
    types: dict[str, str]

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Configuration:
        """The configuration of a first update's options, checked.

        Raises
        ------
        OptionError
            If an option is not what it must be, or nothing is to be kept.
        """
        unknown = [name for name in given if name not in _DEFAULTS]
        if unknown:
            msg = f"a store takes no option {unknown[0]!r}; it takes {', '.join(_DEFAULTS)}"
            raise OptionError(msg)
        options = _DEFAULTS | {name: _plain(name, value) for name, value in given.items()}
        made = cls(options, {})
        made.request()
        return made

    @classmethod
    def read(cls, kept: Mapping[str, Any]) -> Configuration:
        """The configuration that the ledger has."""
        options = {name: tuple(value) if name in _LISTS else value for name, value in kept["options"].items()}
        return cls(_DEFAULTS | options, dict(kept["types"]))

    def to_dict(self) -> dict[str, Any]:
        """Plain values for the ledger."""
        return {"options": self.options, "types": self.types}

    def refuse_others(self, given: Mapping[str, Any]) -> None:
        """Raise `OptionError` if options are given that are not the store's."""
        for name, value in given.items():
            if name not in _DEFAULTS:
                Configuration.of({name: value})
            if _plain(name, value) != self.options[name]:
                remedy = "name it when you look (show)" if name in REPORTED else "leave it out, or begin another store"
                if name in ("score", "cluster"):
                    remedy = "leave it out, or let a column join (add)"
                asked, kept = _said(_plain(name, value)), _said(self.options[name])
                msg = f"{name}={asked} contradicts the store, which was begun with {kept}; {remedy}"
                raise OptionError(msg)

    def request(self, **changes: Any) -> Request:
        """What to compute: the store's own options, or others of `REPORTED`."""
        given = {name: _plain(name, value) for name, value in changes.items() if value is not None}
        return Request.checked(**self.options | given)

    @property
    def folding(self) -> Request:
        """A request of every state, whatever the metrics."""
        return self.request(metrics=(), truncate=(), at=(), threshold=1)

    def typed(self, found: Scan) -> Configuration:
        """The same with the key types of what was found for columns that have none yet."""
        types = {name: self.types.get(name) or _key_type(self, found.schema.field(name)) for name in self.key_columns}
        return replace(self, types=types)

    def conformed(self, found: Scan) -> Scan:
        """The scan, read as the key types want.

        Raises
        ------
        SchemaError
            If a column has a type that the store's does not hold.
        """
        fields = [self._conformed(field, found) for field in found.schema]
        return replace(found, schema=pa.schema(fields))

    def _conformed(self, field: pa.Field, found: Scan) -> pa.Field:
        plain = field.with_type(_VIEWS.get(field.type, field.type))
        due = self.types.get(field.name)
        if due is None or _has_key_type(self, plain, due):
            return plain
        kind = pa.decimal128(18, int(due[1:])) if due[0] == "d" else _ARROW[due]
        if widened([plain.type, kind]) == kind:
            return plain.with_type(kind)
        msg = (
            f"{found.pieces[0].name}: column {field.name!r} is {field.type}, but the store holds {kind}, fixed by its "
            "first update: no value may be lost; write the column as that type, or begin another store"
        )
        raise SchemaError(msg)

    @property
    def key_columns(self) -> tuple[str, ...]:
        """Columns that are keys."""
        classes = [self.options["classes"]] if self.options["classes"] else []
        return (*self.options["score"], *self.options["cluster"], *classes)

    def wanted(self, names: Sequence[str], **changes: Any) -> list[MetricRequest]:
        """States of the partitions and the metrics of each, as an evaluation of the raw files has them."""
        fields = {name: pa.decimal128(18, int(t[1:])) if t[0] == "d" else _ARROW[t] for name, t in self.types.items()}
        pieces = tuple(Piece(name, name, 0, 0, 0, name, source=_Nothing()) for name in names[:1])  # they are alike
        return planned(self.request(**changes), Scan(pa.schema(fields), pieces, 0, 0))

    def specs(self, names: Sequence[str]) -> dict[tuple[str, str], Any]:
        """The spec of every state, by its group and column."""
        return {(w.group, w.of): w.spec for w in self.wanted(names, metrics=(), truncate=(), at=())} if names else {}


class _Nothing:
    """The source of a partition that is not read: its states are there."""

    def batches(self, columns: Sequence[str], batch_rows: int) -> Any:
        """No batches."""
        return iter(())


def _key_type(configuration: Configuration, field: pa.Field) -> str:
    """The key type of a column."""
    kind = score_type if field.name in configuration.options["score"] else id_type
    return kind(field.type, field.name)


def _has_key_type(configuration: Configuration, field: pa.Field, due: str) -> bool:
    """Whether the keys of a column are of the type that is due."""
    try:
        return _key_type(configuration, field) == due
    except SchemaError:
        return False


def _said(value: Any) -> str:
    """An option as it is told."""
    return ", ".join(map(repr, value)) or "none" if isinstance(value, tuple) else repr(value)


def _plain(name: str, value: Any) -> Any:
    """An option as it is kept: lists as tuples, numbers of numpy as those of Python."""
    if name in ("score", "cluster", "metrics", "at"):
        return texts(name, value)
    if name == "truncate":
        return numbers(name, value)
    return value or None if name in ("classes", "weight") else plain(value)
