"""What a store keeps of its data, decided by its first update.

Columns, the positive label and the policies decide the states and cannot change later. Options that decide only which
values are computed of the states, such as `metrics` and `truncate`, are defaults: an evaluation of the store may name
others. Key types (how scores and ids become keys) are fixed as well: a column of a later night may have a narrower
type, and is widened.
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
from streameval.options import active, honoured, kept_options, recorded, refuse
from streameval.options.kinds import ByColumn, of_column
from streameval.scan import Piece, Scan, widened
from streameval.states.clusters.counts import id_type
from streameval.states.scores.types import score_type
from streameval.wording import unknown_column

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streameval.evaluation.families import MetricRequest
    from streameval.options import Option

__all__ = ["ALL_STATES", "REPORTED", "Configuration"]

_KEPT = kept_options()
REPORTED = tuple(name for name, option in _KEPT.items() if option.decides == "value")
_SUBSETS = ("score", "cluster", "sketch")  # an evaluation may name some of the store's columns
_SHOWN = tuple(
    name
    for name, option in honoured("show").items()
    if name in honoured("evaluate") and name not in _KEPT and option.decides != "nothing"
)
ALL_STATES = {name: _KEPT[name].rest for name in REPORTED}
_RENAMED = {"threshold": "aul_threshold"}  # in stores of earlier versions
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
    options : the options of `streameval.evaluate` that a store keeps, in plain form
    types : key type of each score, cluster and class column
    due : group and column of the states to fold; None for all

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
        """The configuration of a first update's options, checked.

        Raises
        ------
        OptionError
            If an option has a value that it does not take, or no score and no cluster column is named.
        """
        options = {name: option.rest for name, option in _KEPT.items()}
        options |= {name: value for name, value in _plain(given).items() if name in _KEPT}
        own = [metric for metric in options["metrics"] if not isinstance(metric, str)]
        if own:
            msg = f"metrics={own[0]!r}: a store keeps names of metrics only; give your own metric to Store.evaluate"
            raise OptionError(msg)
        ids = [*options["cluster"], options["classes"]]
        both = [name for name in options["sketch"] if name in ids]
        if both:
            msg = f"sketch={both[0]!r}: a store holds this column as ids; use quantile_sketch (streameval sketch)"
            raise OptionError(msg, "sketch")
        made = cls(options, {})
        made.request()
        return made

    @classmethod
    def read(cls, kept: Mapping[str, Any]) -> Configuration:
        """The configuration as the ledger keeps it.

        Raises
        ------
        FormatError
            If it has an option that this version does not know.
        """
        options = {_RENAMED.get(name, name): value for name, value in kept["options"].items()}
        if options.get("nulls") == "drop":  # which spoke of labels as well in stores of earlier versions
            options.setdefault("unlabelled", "drop")
        unknown = [name for name in options if name not in _KEPT]
        if unknown:
            msg = f"the store keeps an option {unknown[0]!r}, which this version does not know; use a newer streameval"
            raise FormatError(msg)
        return cls(
            {name: option.plain(options.get(name, option.default)) for name, option in _KEPT.items()},
            dict(kept["types"]),
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values for the ledger."""
        plain = {n: v.to_dict() if isinstance(v, ByColumn) else v for n, v in self.options.items()}
        return {"options": plain, "types": self.types}

    def __str__(self) -> str:
        """What it keeps, in words: columns, then the options that are not at their default."""
        kinds = {"score": "scores", "cluster": "clusters", "sketch": "sketches of"}
        parts = [f"{what} {', '.join(self.options[name])}" for name, what in kinds.items() if self.options[name]]
        parts += [f"classes {self.options['classes']}"] if self.options["classes"] else []
        label = self.folding.label.column
        parts += [f"labels {label}"] if label else []
        named = (*kinds, "classes", "label")
        others = {name: value for name, value in recorded(self.options).items() if name not in named}
        parts += [f"{name}={', '.join(map(str, v)) if isinstance(v, list) else v}" for name, v in others.items()]
        return f"keeps {'; '.join(parts)}"

    def refuse_others(self, given: Mapping[str, Any]) -> None:
        """Raise `OptionError` if an update names options that are not the store's."""
        for name, value in _plain(given).items():
            if name in _KEPT and value != self.options[name]:
                remedy = "leave it out, or begin another store"
                if name in REPORTED:
                    remedy = "name it when you evaluate the store (show)"
                elif name in _SUBSETS:
                    remedy = "leave it out, or let a column join (add)"
                raise self._contradiction(name, value, remedy)

    def asked(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Options of an evaluation: the store's, and those given that it can honour.

        Raises
        ------
        OptionError
            If the states of the store cannot honour an option.
        """
        plain = _plain(given, _SHOWN)
        for name, value in plain.items():
            if name in _SUBSETS and value and set(value) <= set(self.options[name]):
                continue
            if name not in REPORTED and value != self.options.get(name, value):
                remedy = "leave it out, or begin another store"
                if name in _SUBSETS:
                    near = [c for one in value for c in get_close_matches(one, self.options[name], 1) if c != one]
                    remedy = f"{f'did you mean {near[0]!r}? Otherwise ' if near else ''}let it join (add)"
                raise self._contradiction(name, value, remedy)
        given = {name: value for name, value in plain.items() if name in _KEPT or name in _SHOWN}
        own = active(self.options | {name: given[name] for name in _SUBSETS if name in given})
        asked = own | given
        if plain.get("clip") is None and not _clips(asked["metrics"]):
            asked["clip"] = None  # the store's own clips a metric that is not asked for
        return asked

    def _contradiction(self, name: str, value: Any, remedy: str) -> OptionError:
        msg = f"{name}={_said(value)} contradicts the store, which was begun with {_said(self.options[name])}; {remedy}"
        return OptionError(msg)

    def request(self, **changes: Any) -> Request:
        """What to compute: the store's own options, or others that it can honour."""
        return Request.checked(self.asked(changes))

    @property
    def folding(self) -> Request:
        """A request of every state, whatever the metrics."""
        return self.request(**self._all_states)

    @property
    def _all_states(self) -> dict[str, Any]:
        """Options that ask for every state; without labels if no metric of the store needs them."""
        if self.request().label.column is None:
            return {name: value for name, value in ALL_STATES.items() if name != "metrics"}
        return ALL_STATES

    def typed(self, found: Scan) -> Configuration:
        """The configuration with the key types of scanned columns, for columns that have none yet."""
        types = {name: self.types.get(name) or _key_type(self, found.schema.field(name)) for name in self.key_columns}
        return replace(self, types=types)

    def conformed(self, found: Scan) -> Scan:
        """The scan with column types that give the store's key types.

        Raises
        ------
        SchemaError
            If a column's type cannot be widened to the type that the store holds.
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
        """Score, cluster, class and sketched columns and the unit, each once."""
        classes = [self.options["classes"]] if self.options["classes"] else []
        unit = [self.options["unit"]] if self.options["unit"] else []
        named = (*self.options["score"], *self.options["cluster"], *classes, *self.options["sketch"], *unit)
        return tuple(dict.fromkeys(named))

    def wanted(self, names: Sequence[str], **changes: Any) -> list[MetricRequest]:
        """The states of the partitions with their metrics, as an evaluation of the files plans them."""
        fields = {name: pa.decimal128(18, int(t[1:])) if t[0] == "d" else _ARROW[t] for name, t in self.types.items()}
        pieces = tuple(Piece(name, name, 0, 0, 0, name, source=_Nothing()) for name in names[:1])  # one stands for all
        return planned(self.request(**changes), Scan(pa.schema(fields), pieces, 0, 0))

    def specs(self, names: Sequence[str]) -> dict[tuple[str, str], Any]:
        """The spec of every state, by group and column."""
        wanted = self.wanted(names, **self._all_states) if names else []
        return {(w.group, w.of): w.spec for w in self.kept(wanted)}

    def kept(self, wanted: Sequence[MetricRequest]) -> list[MetricRequest]:
        """What is kept for these requests: their states, and those of blocks of the unit."""
        own = [w for w in wanted if w.family.own_blocks and self.options["unit"]]
        blocks = (w.blocks(self.folding.resampling) for w in own)
        return [*wanted, *(made for made in blocks if made is not None)]

    def widened(self, given: Mapping[str, Any]) -> Configuration:
        """The configuration with more columns or metrics, named by the options of their kind.

        Raises
        ------
        OptionError
            If it contradicts what the store keeps.
        """
        options, plain = dict(self.options), _plain(given)
        for name, value in sorted(plain.items(), key=lambda item: bool(_KEPT[item[0]].of)):  # policies after columns
            option = _KEPT[name]
            own, rest = self.options[name], option.rest
            new = [c for c in options[option.of] if c not in self.options[option.of]] if option.of else []
            if name == "metrics" and not own and value:
                options[name] = ("default", *value)
            elif isinstance(value, ByColumn) or (new and not option.kind.many):
                options[name] = self._of_columns(option, value, new)
            elif isinstance(own, ByColumn) and option.kind.many:
                options[name] = ByColumn.of(dict(own.columns), tuple(dict.fromkeys((*own.others, *value))))
            elif option.kind.many:
                options[name] = tuple(dict.fromkeys((*own, *value)))
            elif own == rest:
                options[name] = value
            elif value != own:
                raise self._contradiction(name, value, "a store has one of them: begin another store")
        return Configuration.of({name: value for name, value in options.items() if value != _KEPT[name].rest}).with_(
            self.types
        )

    def _of_columns(self, option: Option, value: Any, new: Sequence[str]) -> Any:
        """A policy with what is said of columns that join; values may change for others, states may not."""
        own = self.options[option.name]
        said = dict(value.columns) if isinstance(value, ByColumn) else dict.fromkeys(new, value)
        stray = [name for name in said if name not in new and of_column(own, name) != said[name]]
        if stray and option.decides == "state":
            raise self._contradiction(option.name, value, "name columns that join")
        before = own if isinstance(own, ByColumn) else ByColumn((), own)
        return ByColumn.of(dict(before.columns) | said, before.others)

    def joined(self, before: Configuration) -> tuple[str, ...]:
        """Columns and metrics that were not kept before."""
        found: list[str] = []
        for name, value in self.options.items():
            own = before.options[name]
            if value != own and (isinstance(value, tuple) or name in ("classes", "weight")):
                found += [str(item) for item in value if item not in own] if isinstance(value, tuple) else [str(value)]
        return tuple(dict.fromkeys(name for name in found if name != "default"))

    def without(self, column: str) -> Configuration:
        """The configuration without a column.

        Raises
        ------
        OptionError
            If the store does not keep it, or could not go on without it.
        """
        single = [name for name in ("label", "weight") if self.options[name] == column]
        if single:
            msg = f"{column}: is the {single[0]} column, which decides all states; begin another store"
            raise OptionError(msg)
        if column not in self.key_columns:
            raise OptionError(unknown_column(column, self.key_columns, "the store keeps"))
        options = dict(self.options)
        for name in (*_SUBSETS, "classes"):
            own = options[name]
            options[name] = tuple(c for c in own if c != column) if isinstance(own, tuple) else own
        options["classes"] = None if options["classes"] == column or not options["cluster"] else options["classes"]
        options["unit"] = None if options["unit"] == column else options["unit"]
        if not any(options[name] for name in _SUBSETS):
            msg = f"{column}: is the only column of the store; delete the store instead"
            raise OptionError(msg)
        made = Configuration(active(options), self.types)
        return made.with_(self.types)

    def with_(self, types: Mapping[str, str]) -> Configuration:
        """The configuration with those key types that are of its columns."""
        return replace(self, types={name: kind for name, kind in types.items() if name in self.key_columns})

    def changed(self, before: Configuration) -> dict[tuple[str, str], bool]:
        """Group and column of every state, and whether it is another one than before."""
        old, new = (made._sketched.specs(["_"]) for made in (before, self))  # noqa: SLF001  another of this class
        return {key: key in old and old[key] != spec for key, spec in new.items()}

    @property
    def _sketched(self) -> Configuration:
        """The configuration with some key type for columns that have none yet."""
        numbers = (*self.options["score"], *self.options["sketch"])
        return replace(self, types={n: "f8" if n in numbers else "hash" for n in self.key_columns} | self.types)

    def narrowed(self, due: frozenset[tuple[str, str]]) -> Configuration:
        """The configuration that folds these states alone."""
        columns = {
            name: tuple(of for of in self.options[name] if any((group, of) in due for group in groups))
            for name, groups in (
                ("score", ("score", "sample", "score.blocks")),
                ("cluster", ("cluster", "classes")),
                ("sketch", ("sketch",)),
            )
        }
        classes = self.options["classes"] if any(group == "classes" for group, _ in due) else None
        options = self.options | columns | {"classes": classes, "metrics": (), "clip": None}
        return replace(Configuration(active(options), self.types).with_(self.types), due=due)


class _Nothing:
    """The source of a partition whose states are stored, so that its rows are not read."""

    def batches(self, columns: Sequence[str], batch_rows: int) -> Any:
        """No batches."""
        return iter(())


def _key_type(configuration: Configuration, field: pa.Field) -> str:
    """The key type of a column."""
    numbers = (*configuration.options["score"], *configuration.options["sketch"])
    kind = score_type if field.name in numbers else id_type
    return kind(field.type, field.name)


def _has_key_type(configuration: Configuration, field: pa.Field, due: str) -> bool:
    """Whether the keys of a column have the type that the store holds."""
    try:
        return _key_type(configuration, field) == due
    except SchemaError:
        return False


def _said(value: Any) -> str:
    """An option as messages spell it."""
    return ", ".join(map(repr, value)) or "none" if isinstance(value, tuple) else repr(value)


def _plain(given: Mapping[str, Any], more: Sequence[str] = ()) -> dict[str, Any]:
    """The options given for an update or an evaluation of a store, in plain form; None counts as not given.

    An option of `streameval.evaluate` that a store does not take is refused unless it has its default, or is one of
    `more`.
    """
    known, found = honoured("evaluate"), {}
    for name, value in given.items():
        if name not in known:
            refuse("a store", name, _KEPT)
        if value is None:
            continue
        option = known[name]
        found[name] = option.plain(value)
        if name in _KEPT or name in more or found[name] == option.rest:
            continue
        if option.decides == "nothing":
            msg = f"{name} is an option of Store(…), for all its verbs: give it there"
            raise OptionError(msg)
        refuse("a store", name, _KEPT)
    return found


def _clips(metrics: Sequence[Any]) -> bool:
    """Whether metrics include one that `clip` changes."""
    names = [metric for metric in metrics if isinstance(metric, str)]
    return any(fnmatchcase("log_loss", name) or name in ("score", "calibration") for name in names)
