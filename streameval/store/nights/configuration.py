"""The configuration of a store: the states that it keeps, fixed by the first update.

Columns, the positive label, the filter of rows and the policies determine the states and cannot change later. Options
that only determine which values are computed from the states, such as `metrics` and `truncate`, are defaults: an
evaluation may name others. Key types (how scores and ids become keys) are fixed as well: if a column of a later night
has a narrower type, it is widened.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streameval.errors import FormatError, OptionError, SchemaError
from streameval.evaluation.families import planned
from streameval.evaluation.request import Request
from streameval.evaluation.slicing import Slicing
from streameval.kinds import ByColumn, Filter, in_words
from streameval.options import active, honoured, kept_options, recorded, refuse
from streameval.scan import Piece, Scan, Where
from streameval.states.grouped.state import GroupedSpec, divisible
from streameval.states.grouped.table import slice_type
from streameval.states.scores.blocks import BlockSpec
from streameval.store.nights.key_types import COMPUTED, arrow_type, key_type, slices_arrow_type, widen_columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from streameval.evaluation.family import MetricRequest
    from streameval.states.grouped.keys import By
    from streameval.store.files.entries import Entry


KEPT = kept_options()
REPORTED = tuple(name for name, option in KEPT.items() if option.decides == "value")
SUBSETS = ("score", "cluster", "sketch")  # an evaluation may name some of the store's columns
SHOWN = tuple(
    name
    for name, option in honoured("show").items()
    if name in honoured("evaluate") and name not in KEPT and option.decides != "nothing"
)
ALL_STATES = {name: KEPT[name].rest for name in REPORTED}


def _spell(value: Any) -> str:
    """The value of an option for messages."""
    return (
        ", ".join(map(repr, value)) or "none" if isinstance(value, tuple) else "none" if value is None else repr(value)
    )


def plain_options(given: Mapping[str, Any], more: Sequence[str] = ()) -> dict[str, Any]:
    """The options of an update or an evaluation of a store, in plain form; None counts as not given.

    Raises
    ------
    OptionError
        If an option is unknown or invalid, or a store does not take it; options in `more`, and options with their
        default value, are accepted.
    """
    options, plain = honoured("evaluate"), {}
    for name, value in given.items():
        if name not in options:
            refuse("a store", name, KEPT)
        if value is None:
            continue
        option = options[name]
        plain[name] = option.plain(value)
        if name in KEPT or name in more or plain[name] == option.rest:
            continue
        if option.decides == "nothing":
            raise OptionError(f"{name} is an option of Store(…) and applies to all its methods: give it there")
        refuse("a store", name, KEPT)
    return plain


def contradiction_error(name: str, value: Any, own: Any, remedy: str) -> OptionError:
    """The error for an option whose value differs from the store's."""
    msg = f"{name}={_spell(value)} contradicts the store's value, {_spell(own)}; {remedy}"
    return OptionError(msg)


_MANY_SLICES = (
    "slice by a column of fewer values, or raise the store's limit with add (--max-slices), or set it in the first "
    "update"
)
_OTHERWISE = {"max_slices": "leave it out, or change the store's limit (add)"}


@dataclass(frozen=True)
class Configuration:
    """The configuration of a store.

    Attributes
    ----------
    options : the options of `streameval.evaluate` that a store keeps, in plain form
    types : key type of each score, cluster, class, sketch and unit column, and, under ``by NAME``, of slicing columns
    due : (group, column) of the states to fold; None for all

    Examples
    --------
    >>> Configuration.of({"score": "score_lr"}).options["score"]
    ('score_lr',)
    """

    options: dict[str, Any]
    types: dict[str, str]
    due: frozenset[tuple[str, str]] | None = None

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Configuration:
        """Check the options of a first update, and make the configuration.

        Raises
        ------
        OptionError
            If the value of an option is invalid, or neither a score nor a cluster column is named.
        """
        options = {name: option.rest for name, option in KEPT.items()}
        options |= {name: value for name, value in plain_options(given).items() if name in KEPT}
        custom = [metric for metric in options["metrics"] if not isinstance(metric, str)]
        if custom:
            raise OptionError(
                f"metrics={custom[0]!r}: a store keeps names of metrics only; give your own metric to Store.evaluate"
            )
        ids = [*options["cluster"], options["classes"]]
        both = [name for name in options["sketch"] if name in ids]
        if both:
            raise OptionError(
                f"sketch={both[0]!r}: a store holds this column as ids; use quantile_sketch (streameval sketch)",
                "sketch",
            )
        if isinstance(options["where"], Filter):
            raise OptionError(
                f'where={options["where"].text!r}: a store keeps its filter as text; give SQL such as "n_chars > 5"',
                "where",
            )
        configuration = cls(options, {})
        configuration.request()
        configuration.folding.slicing.check_apart(
            options["score"]
        )  # invalid slicings and filters are refused here as well
        return configuration

    @classmethod
    def read(cls, kept: Mapping[str, Any]) -> Configuration:
        """Read the configuration from the ledger.

        Raises
        ------
        FormatError
            If it has an option that this version does not know, or a type that no column has.
        """
        options = kept["options"]
        unknown = [name for name in options if name not in KEPT]
        if unknown:
            raise FormatError(
                f"the store keeps an option {unknown[0]!r}, which this version does not know; use a newer streameval"
            )
        configuration = cls(
            {name: option.plain(options.get(name, option.default)) for name, option in KEPT.items()}, {}
        )
        configuration = configuration.with_(kept["types"])
        for name, kind in configuration.types.items():
            if kind == COMPUTED and name not in configuration.key_columns:
                continue
            (arrow_type if name in configuration.key_columns else slices_arrow_type)(kind)
        return configuration

    def to_dict(self) -> dict[str, Any]:
        """Plain values for the ledger."""
        plain = {n: v.to_dict() if isinstance(v, ByColumn) else v for n, v in self.options.items()}
        return {"options": plain, "types": self.types}

    def __str__(self) -> str:
        """The configuration in words: columns, then the options that differ from their defaults."""
        kinds = {"score": "scores", "cluster": "clusters", "sketch": "sketches of"}
        parts = [f"{what} {', '.join(self.options[name])}" for name, what in kinds.items() if self.options[name]]
        parts += [f"classes {self.options['classes']}"] if self.options["classes"] else []
        label = self.folding.label.column
        parts += [f"labels {label}"] if label else []
        named = (*kinds, "classes", "label")
        others = {name: value for name, value in recorded(self.options).items() if name not in named}
        parts += [f"{name}{': ' if isinstance(v, dict) else '='}{in_words(v)}" for name, v in others.items()]
        return f"keeps {'; '.join(parts)}"

    def refuse_others(self, given: Mapping[str, Any]) -> None:
        """Raise `OptionError` if an update names options that differ from the store's."""
        for name, value in plain_options(given).items():
            if name in KEPT and value != self.options[name]:
                remedy = _OTHERWISE.get(name, "leave it out, or create another store")
                if name in REPORTED:
                    remedy = "name it when you evaluate the store (show)"
                elif name in (*SUBSETS, "by"):
                    remedy = "leave it out, or add a column to the store (add)"
                raise contradiction_error(name, value, self.options[name], remedy)

    def asked(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The options of an evaluation: the given ones, and the store's for all others.

        Raises
        ------
        OptionError
            If the states of the store cannot honour an option.
        """
        plain = plain_options(given, SHOWN)
        for name, value in plain.items():
            if name == "where":  # selects among the kept rows
                continue
            if name in SUBSETS and set(value) <= set(self.options[name]):
                continue
            if name not in REPORTED and value != self.options.get(name, value):
                remedy = _OTHERWISE.get(name, "leave it out, or create another store")
                if name in SUBSETS:
                    near = [c for one in value for c in get_close_matches(one, self.options[name], 1) if c != one]
                    remedy = f"{f'did you mean {near[0]!r}? Otherwise ' if near else ''}add it to the store (add)"
                raise contradiction_error(name, value, self.options[name], remedy)
        given = {name: value for name, value in plain.items() if name in (*SHOWN, *SUBSETS, *REPORTED, "where")}
        whole = {"by": ()}  # slices have separate states
        subset = {name: given[name] for name in SUBSETS if name in given}
        asked = active(self.options | subset | whole) | {"where": None} | given
        if plain.get("clip") is None and not _clips(asked["metrics"]):
            asked["clip"] = None  # the store's clip is for a metric that is not requested
        return asked

    def request(self, **changes: Any) -> Request:
        """The request of an evaluation, with the store's options or changes that it can honour; see `asked`."""
        return Request.checked(self.asked(changes))

    @property
    def folding(self) -> Request:
        """The request that folds all states, with the store's slicings and row filter."""
        where = None if self.options["where"] is None else Where.of(self.options["where"])
        return replace(self.request(**self._all_states), slicing=self.slicing, where=where)

    @property
    def readable(self) -> tuple[str, ...]:
        """Columns that nights may have, by name: those to read, and those from which slicing columns are computed."""
        return tuple(dict.fromkeys((*self.folding.columns, *self.slicing.sources)))

    @property
    def slicing(self) -> Slicing:
        """The slicings of every night."""
        return Slicing.of(self.options["by"], self.options["max_slices"], _MANY_SLICES)

    def sliced(self, wanted: Sequence[MetricRequest], keys: Sequence[By] | None = None) -> list[MetricRequest]:
        """The requests of the sliced states that are kept; `keys` are slicings, by default all."""
        return [
            replace(w, spec=GroupedSpec(w.spec, key), metrics=(), by=",".join(key.columns))
            for key in (self.slicing.keys if keys is None else keys)
            for w in wanted
            if divisible(w.spec)
        ]

    def sliced_blocks(self, wanted: Sequence[MetricRequest], keys: Sequence[By] | None = None) -> list[MetricRequest]:
        """The requests of the unit blocks that are kept for slices; `keys` are slicings, by default all."""
        return [
            replace(w, spec=GroupedSpec(w.spec, key), by=",".join(key.columns))
            for key in (self.slicing.keys if keys is None else keys)
            for w in self.kept(wanted)
            if isinstance(w.spec, BlockSpec)
        ]

    @property
    def _all_states(self) -> dict[str, Any]:
        """Options that request all states; labels are included only if a metric of the store needs them."""
        if self.request().label.column is None:
            return {name: value for name, value in ALL_STATES.items() if name != "metrics"}
        return ALL_STATES

    def typed(self, planned: Scan) -> Configuration:
        """The configuration, with key types from a scan for the columns that have none yet."""
        types = {
            name: self.types.get(name) or key_type(planned.schema.field(name), self.numbers)
            for name in self.key_columns
        }
        for column, name in self._slices.items():
            if kind := self.types.get(name) or _slice_type(planned, column):
                types[name] = kind
        return replace(self, types=types)

    @property
    def complete(self) -> bool:
        """Whether every key column has a type; a slicing column that was always null has none."""
        return {*self.key_columns, *self._slices.values()} <= set(self.types)

    @property
    def typed_columns(self) -> tuple[str, ...]:
        """The columns of the data from which `typed` takes types."""
        return (*self.key_columns, *self._slices)

    def check_typed(self, entries: Iterable[Entry]) -> None:
        """Raise `FormatError` if partitions have states of a column without a key type."""
        untyped = [name for name in self.key_columns if name not in self.types]
        for entry in entries if untyped else ():
            for state in entry.states:
                needed = {state.of}
                needed |= {self.options["classes"]} if state.group.startswith("classes") else set()
                needed |= {self.options["unit"]} if ".blocks" in state.group else set()
                lacking = [name for name in untyped if name in needed]
                if lacking:
                    msg = (
                        f"{entry.partition} has states of column {lacking[0]!r}, whose type is missing in the ledger; "
                    )
                    msg += "restore the ledger from a backup"
                    raise FormatError(msg)

    @property
    def _slices(self) -> dict[str, str]:
        """The slicing columns, with the keys of their types in `types`."""
        return {column: f"by {column}" for column in self.slicing.columns}

    def widen_columns(self, planned: Scan) -> Scan:
        """Widen the columns of a scan to the store's key types; raises `SchemaError` if a type is wider."""
        slices = {column: self.types[name] for column, name in self._slices.items() if name in self.types}
        for column, kind in slices.items():
            if (kind == COMPUTED) == (column in planned.schema.names):
                have = "has" if kind == COMPUTED else "lacks"
                raise SchemaError(
                    f"{planned.pieces[0].name}: it {have} a column {column!r}, unlike the nights of the store; "
                    "rename the column, or create another store"
                )
        return widen_columns(planned, self.types, self.numbers, slices)

    @property
    def numbers(self) -> tuple[str, ...]:
        """Score and sketch columns; all other key columns are ids."""
        return (*self.options["score"], *self.options["sketch"])

    @property
    def key_columns(self) -> tuple[str, ...]:
        """Score, cluster, sketch and class columns and the unit, each once; classes only if there are clusters."""
        classes = [self.options["classes"]] if self.options["classes"] and self.options["cluster"] else []
        unit = [self.options["unit"]] if self.options["unit"] else []
        named = (*self.options["score"], *self.options["cluster"], *classes, *self.options["sketch"], *unit)
        return tuple(dict.fromkeys(named))

    def wanted(self, names: Sequence[str], **changes: Any) -> list[MetricRequest]:
        """The states of partitions with their metrics, planned as in an evaluation of the files."""
        types = self.with_placeholders.types  # a column that was added when no night had rows has no type yet
        fields = {name: arrow_type(types[name]) for name in self.key_columns}
        pieces = tuple(Piece(name, name, 0, 0, 0, name, source=_Nothing()) for name in names[:1])  # one is enough
        return planned(self.request(**changes), Scan(pa.schema(fields), pieces, 0, 0))

    def specs(self, names: Sequence[str]) -> dict[tuple[str, str], Any]:
        """The spec of every state, by group and column."""
        wanted = self.wanted(names, **self._all_states) if names else []
        return {
            (w.group, w.of): w.spec for w in (*self.kept(wanted), *self.sliced(wanted), *self.sliced_blocks(wanted))
        }

    def kept(self, wanted: Sequence[MetricRequest]) -> list[MetricRequest]:
        """The requests themselves, and those of the unit blocks that are kept for them."""
        blocked = [w for w in wanted if w.family.replication.own_blocks and self.options["unit"]]
        blocks = (w.blocks(self.folding.resampling) for w in blocked)
        return [*wanted, *(block for block in blocks if block is not None)]

    def with_(self, types: Mapping[str, str]) -> Configuration:
        """The configuration with these key types, restricted to its columns."""
        own = {*self.key_columns, *self._slices.values()}
        return replace(self, types={name: kind for name, kind in types.items() if name in own})

    def changed(self, before: Configuration) -> dict[tuple[str, str], tuple[Any, Any] | None]:
        """All states by (group, column), with the old and the new spec if they differ, otherwise None."""
        old, new = (each.with_placeholders.specs(["_"]) for each in (before, self))
        return {key: (old[key], spec) if key in old and old[key] != spec else None for key, spec in new.items()}

    @property
    def with_placeholders(self) -> Configuration:
        """The configuration with placeholder key types for columns that have none yet."""
        return replace(self, types={n: "f8" if n in self.numbers else "hash" for n in self.key_columns} | self.types)


def slices_group(group: str, key: By) -> str:
    """The group of the sliced state in the ledger.

    Examples
    --------
    >>> from streameval.states.grouped.keys import By
    >>> slices_group("score", By(("country", "channel")))
    'score.by country,channel'
    """
    return f"{group}.by {','.join(key.columns)}"


class _Nothing:
    """An empty source, for partitions whose states are stored."""

    def batches(self, columns: Sequence[str], batch_rows: int) -> Any:
        """No batches."""
        return iter(())


def _clips(metrics: Sequence[Any]) -> bool:
    """Whether one of these metrics depends on `clip`."""
    names = [metric for metric in metrics if isinstance(metric, str)]
    return any(fnmatchcase("log_loss", name) or name in ("score", "calibration") for name in names)


def _slice_type(planned: Scan, column: str) -> str:
    """The type of a slicing column in a scan; see `slice_type`."""
    if column not in planned.schema.names:
        return COMPUTED
    return slice_type(planned.schema.field(column).type, column, planned.pieces[0].name)
