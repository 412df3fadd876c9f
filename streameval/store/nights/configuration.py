"""The configuration of a store: the states that it keeps, fixed by the first update.

Columns, the positive label, the filter of rows and the policies determine the states and cannot change later. Options
that only determine which values are computed from the states, such as `metrics` and `truncate`, are defaults: an
evaluation may name others. Key types (how scores and ids become keys) are fixed as well: if a column of a later night
has a narrower type, it is widened.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from streameval.errors import FormatError, OptionError, SchemaError
from streameval.evaluation.families import planned
from streameval.evaluation.labels.columns import late_field
from streameval.evaluation.labels.design import LabelDesign
from streameval.evaluation.labels.statements import LateSource
from streameval.evaluation.request import NO_INTERVALS, Request
from streameval.evaluation.slicing import Slicing
from streameval.kinds import ByColumn, InMemory, in_words, zone
from streameval.options import active, kept_options, record_options, refuse, verb_options
from streameval.scan import Piece, Scan, Where
from streameval.scan.derived import IdName, has_part, slicing
from streameval.scan.pieces import without_views
from streameval.scan.widen import plain, widen
from streameval.states.grouped.spec import GroupedSpec, divisible
from streameval.states.grouped.table import slice_type
from streameval.states.keyed.ids import id_type
from streameval.states.late import check_ids, comparison
from streameval.states.scores.types import score_type
from streameval.wording import shell

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from streameval.evaluation.protocol import MetricRequest
    from streameval.states.grouped.keys import By
    from streameval.states.protocol import StoredSpec
    from streameval.store.files.entries import Entry


COMPUTED = "computed"  # the type of a slicing column that is computed, since the data lack it; a time zone may follow
KEPT = kept_options()
LATE = ("on", "label_time", "label_conflicts", "labels_open")  # these apply to folding, not to evaluations
REPORTED = tuple(name for name, option in KEPT.items() if option.decides == "value")
SUBSETS = ("score", "cluster", "sketch")  # an evaluation may name some of the store's columns
SHOWN = tuple(
    name
    for name, option in verb_options("show").items()
    if name in verb_options("evaluate") and name not in KEPT and option.decides != "nothing"
)
ALL_STATES = {name: KEPT[name].rest for name in REPORTED}


def plain_options(given: Mapping[str, object], more: Sequence[str] = ()) -> dict[str, Any]:
    """The options of an update or an evaluation of a store, in plain form; None counts as not given.

    Raises
    ------
    OptionError
        If an option is unknown or invalid, or a store does not take it; options in `more`, and options with their
        default value, are accepted.
    """
    options, plain = {**verb_options("evaluate"), **KEPT}, {}
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


def contradiction_error(name: str, value: object, own: object, remedy: str) -> OptionError:
    """The error for an option whose value differs from the store's."""
    given, kept = (
        ", ".join(map(repr, one if isinstance(one, tuple) else () if one is None else (one,))) or "none"
        for one in (value, own)
    )
    return OptionError(f"{name}={given} contradicts the store's value, {kept}; {remedy}")


class Runs(NamedTuple):
    """Statements about a column.

    Attributes
    ----------
    runs : their published files, oldest first; see `streameval.store.nights.statements`
    rows, bytes : number of statements, and size of their files
    """

    runs: Sequence[str] = ()
    rows: int = 0
    bytes: int = 0


class Delivered(NamedTuple):
    """Statements that arrived.

    Attributes
    ----------
    runs : those about the label, and about each further column that arrives late, by ``""`` and its name
    files : name, size and modification time of the files of labels that were read, and the newest night at that time
    forgotten : places of the files that are read again if they are named, as vacuum may have deleted their statements
    """

    runs: Mapping[str, Runs]
    files: Sequence[Sequence[str | int]] = ()
    forgotten: Sequence[int] = ()

    @classmethod
    def read(cls, kept: Mapping[str, Any]) -> Delivered:
        """Read from the ledger."""
        return cls(**{**kept, "runs": {name: Runs(**runs) for name, runs in kept["runs"].items()}})

    def to_dict(self) -> dict[str, object]:
        """Plain values for the ledger."""
        return self._asdict() | {"runs": {name: runs._asdict() for name, runs in self.runs.items()}}

    @property
    def further(self) -> tuple[str, ...]:
        """The columns that arrive late, but for the label."""
        return tuple(filter(None, self.runs))

    @property
    def every_run(self) -> list[str]:
        """The published files of all columns."""
        return [name for runs in self.runs.values() for name in runs.runs]

    @property
    def forgotten_names(self) -> list[str]:
        """The forgotten files that were not read again, whatever they hold now."""
        read = {str(name) for place, (name, *_) in enumerate(self.files) if place not in self.forgotten}
        return sorted({str(self.files[place][0]) for place in self.forgotten} - read)


NOTHING_DELIVERED = Delivered({"": Runs()})


_MANY_SLICES = (
    "slice by a column of fewer values, or raise the store's limit with add (--max-slices), or set it in the first "
    "update"
)
_OTHERWISE = {
    "max_slices": "leave it out, or change the store's limit (add)",
    "labels_open": "leave it out, or change the store's span (add)",
}
_OTHERWISE |= dict.fromkeys(("nan", "nulls", "unlabelled"), "leave it out, or change the store's policy (add)")
_ELSE = "leave it out, or create another store"


@dataclass(frozen=True)
class Configuration:
    """The configuration of a store.

    Attributes
    ----------
    options : the options of `streameval.evaluate` that a store keeps, in plain form
    types : key type of each score, cluster, class, sketch and unit column, and, under ``by NAME``, of slicing columns
    due : (group, column) of the states to fold; None for all
    statements : late labels that arrived

    Examples
    --------
    >>> Configuration.of({"score": "score_lr"}).options["score"]
    ('score_lr',)
    """

    options: dict[str, Any]
    types: dict[str, str]
    due: frozenset[tuple[str, str]] | None = None
    statements: Delivered = NOTHING_DELIVERED

    @classmethod
    def of(cls, given: Mapping[str, object]) -> Configuration:
        """Check the options of a first update, and make the configuration.

        Raises
        ------
        OptionError
            If the value of an option is invalid, or neither a score nor a cluster column is named.
        """
        scores = given.get("score")
        if isinstance(scores, Mapping) or "{class}" in str(scores):
            named = str(scores) if isinstance(scores, Mapping) else in_words(scores)
            raise OptionError(
                f"score={named}: a store keeps one class; name its column and the class (--score p_spam --pos-label "
                "spam), in a store for each class, or evaluate the files for all",
                "score",
            )
        options = {name: option.rest for name, option in KEPT.items()}
        options |= {name: value for name, value in plain_options(given).items() if name in KEPT}
        custom = [metric for metric in options["metrics"] if not isinstance(metric, str)]
        if custom:
            raise OptionError(
                f"metrics={custom[0]!r}: a store keeps names of metrics only; give your own metric to Store.evaluate"
            )
        if "," in (options["unit"] or ""):
            raise OptionError(
                f"unit={options['unit']!r}: a store keeps the blocks of one unit, without a comma in its name; name "
                "one (--unit), and evaluate the files by two crossed ones",
                "unit",
            )
        ids = [*options["cluster"], options["classes"]]
        both = [name for name in options["sketch"] if name in ids]
        if both:
            raise OptionError(
                f"sketch={both[0]!r}: a store holds this column as ids; use quantile_sketch (streameval sketch)",
                "sketch",
            )
        if isinstance(options["where"], InMemory):
            raise OptionError(
                f'where={options["where"].text!r}: a store keeps its filter as text; give SQL such as "n_chars > 5"',
                "where",
            )
        design = LabelDesign.of({name: option.rest for name, option in verb_options("evaluate").items()} | options)
        if options["on"]:
            if options["approx_agc"]:
                raise OptionError("late labels take no approx_agc; leave out approx_agc (--approx-agc)", "approx_agc")
            others = "size" if options["cluster"] else "drop"  # labels are few: clusters count the other rows
            if design is None and options["unlabelled"] == "error":
                options["unlabelled"] = others
        elif lone := next((name for name in LATE if options[name] != KEPT[name].rest), ""):
            raise OptionError(f"{lone} would change nothing without ids of labels: name their column (--on)", lone)
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
        if "statements" in kept:
            configuration = configuration.delivered(Delivered.read(kept["statements"]))
        for name, kind in configuration.types.items():
            if name in configuration.late_ids:
                continue
            (arrow_type if name in configuration.key_columns else _slices_arrow_type)(kind)
        return configuration

    def to_dict(self) -> dict[str, object]:
        """Plain values for the ledger."""
        plain = {n: v.to_dict() if isinstance(v, ByColumn) else v for n, v in self.options.items()}
        late = {"statements": self.statements.to_dict()} if self.options["on"] else {}
        return {"options": plain, "types": self.types, **late}

    def __str__(self) -> str:
        """The configuration in words: columns, then the options that differ from their defaults."""
        kinds = {"score": "scores", "cluster": "clusters", "sketch": "sketches of"}
        parts = [f"{what} {', '.join(self.options[name])}" for name, what in kinds.items() if self.options[name]]
        parts += [f"classes {self.options['classes']}"] if self.options["classes"] else []
        label = self.folding.label.column
        parts += [f"labels {label}"] if label else []
        named = (*kinds, "classes", "label")
        others = {name: value for name, value in record_options(self.options, "update").items() if name not in named}
        parts += [f"{name}{': ' if isinstance(v, dict) else '='}{in_words(v)}" for name, v in others.items()]
        return f"keeps {'; '.join(parts)}"

    def refuse_others(self, given: Mapping[str, object]) -> None:
        """Raise `OptionError` if an update names options that differ from the store's."""
        for name, value in plain_options(given).items():
            if name in KEPT and value != self.options[name] and not (name == "timezone" and self.is_timezone(value)):
                remedy = self._otherwise(name)
                if name in REPORTED:
                    remedy = "name it when you evaluate the store (show)"
                elif name in (*SUBSETS, "by"):
                    remedy = "leave it out, or add a column to the store (add)"
                own = self.zones.values() if name == "timezone" else ()
                raise contradiction_error(name, value, tuple(dict.fromkeys(own)) or self.options[name], remedy)

    def asked(self, given: Mapping[str, object]) -> dict[str, Any]:
        """The options of an evaluation: the given ones, and the store's for all others.

        Raises
        ------
        OptionError
            If the states of the store cannot honour an option.
        """
        plain = plain_options(given, SHOWN)
        for name, value in plain.items():
            subset = name in SUBSETS and set(value) <= set(self.options[name])
            if subset or name in ("where", *REPORTED) or value == self.options.get(name, value):
                continue  # where selects among the kept rows
            remedy = self._otherwise(name)
            if name in SUBSETS:
                near = [c for one in value for c in get_close_matches(one, self.options[name], 1) if c != one]
                more = "create another store" if self.design and name == "cluster" else "add it to the store (add)"
                remedy = f"{f'did you mean {near[0]!r}? Otherwise ' if near else ''}{more}"
            raise contradiction_error(name, value, self.options[name], remedy)
        given = {name: value for name, value in plain.items() if name in (*SHOWN, *SUBSETS, *REPORTED, "where")}
        subsets = {name: given[name] for name in SUBSETS if name in given}
        own = {name: value for name, value in self.options.items() if name not in LATE}
        asked = active(own | subsets | {"by": ()}) | {"where": None} | given  # slices have separate states
        names = [metric for metric in asked["metrics"] if isinstance(metric, str)]
        clips = any(fnmatchcase("log_loss", name) or name in ("score", "calibration") for name in names)
        if plain.get("clip") is None and not clips:
            asked["clip"] = None  # the store's clip is for a metric that is not requested
        return asked

    def _otherwise(self, name: str) -> str:
        """The remedy for an option that contradicts the store's."""
        addable = () if self.design else ("classes", "unit", "weight", "on")
        if name in (*addable, "label_conflicts") and self.options[name] == KEPT[name].rest:
            return f"leave it out, or add it to the store (add --{name.replace('_', '-')})"
        return _OTHERWISE.get(name, _ELSE)

    def more_slices(self, by: str) -> str:
        """The remedy for slices by columns that the store does not keep."""
        if self.design is None:
            return f"add them (add STORE DATA --by {shell([by])})"
        whole = "" if self.design.kind == "size" else "; evaluate the files with a filter (evaluate DATA --where)"
        return f"estimates from sampled labels have none{whole}"

    def request(self, **changes: object) -> Request:
        """The request of an evaluation, with the store's options or changes that it can honour; see `asked`."""
        request = Request.checked(self.asked(changes))
        request = replace(request, resampling=replace(request.resampling, pointed=True))  # whatever is asked later
        return request if request.label.column is None else replace(request, late=self.late)

    @cached_property
    def design(self) -> LabelDesign | None:
        """How labels were drawn, if they are a sample."""
        return self.request().design

    @cached_property
    def late(self) -> LateSource | None:
        """The columns of late labels; None if the store takes none."""
        if not self.options["on"]:
            return None
        where = None if self.options["where"] is None else Where.of(self.options["where"])
        given = {"labels": (), "labels_as_of": None, "rejects": None, "allow_unmatched": True}
        others = (*(where.columns if where else ()), *self.slicing.columns)
        source = LateSource.columns_of(self.options | given, others)
        return replace(source, further=self.statements.further)

    @property
    def no_late_labels(self) -> str:
        """Why late labels are refused, with the remedy."""
        remedy = "create one with" if self.design else "add it to the store (add --on), or create one with"
        return f"the store takes no late labels, for which it needs a column of ids; {remedy} it"

    @property
    def late_ids(self) -> dict[str, str]:
        """The keys in `types` of how the ids of late labels are compared, each with its column."""
        return {f"on {name}": name for name, _ in self.late.on} if self.late else {}

    def delivered(self, statements: Delivered) -> Configuration:
        """The configuration with these statements about its columns."""
        runs = {name: runs for name, runs in statements.runs.items() if name in ("", *self.key_columns)}
        return replace(self, statements=statements._replace(runs=runs))

    def with_late(self, types: Mapping[str, str]) -> Configuration:
        """The configuration with further columns that arrive late, of these key types."""
        runs = {**self.statements.runs, **dict.fromkeys(types, Runs())}
        return replace(self, types=self.types | dict(types), statements=self.statements._replace(runs=runs))

    def only(self, due: frozenset[tuple[str, str]]) -> Configuration:
        """That of some states of a night, whose rows may lack weights and slices that were added later."""
        if due not in self._narrowed:
            groups = {group for group, _ in due}
            sliced_by = {group.partition(".by ")[2] for group in groups}
            options = self.options | select_slicings(self.options, lambda columns: ",".join(columns) in sliced_by)
            options["weight"] = options["weight"] if "score" in groups else None
            self._narrowed[due] = replace(self, options=options, due=due)
        return self._narrowed[due]

    @cached_property
    def _narrowed(self) -> dict[frozenset[tuple[str, str]], Configuration]:
        """The results of `only`, as most nights have the same states."""
        return {}

    @cached_property
    def folding(self) -> Request:
        """The request that folds all states, with the store's slicings and row filter."""
        where = None if self.options["where"] is None else Where.of(self.options["where"])
        return replace(self.request(**self._all_states), slicing=self.slicing, where=where)

    @cached_property
    def folded(self) -> list[MetricRequest]:
        """The states to fold."""
        stored = self.stored(self.wanted(self.folding))
        return [w for w in stored if self.due is None or (w.group, w.of) in self.due]

    @cached_property
    def columns(self) -> list[str]:
        """The columns to read for the states to fold."""
        request = self.folding
        if self.due is None:
            return request.columns
        common = replace(request, scores=(), clusters=(), sketches=(), classes=None).columns
        needed = {*common, *request.label.complete, *(name for w in self.folded for name in w.spec.columns)}
        return [name for name in request.columns if name in needed]

    @property
    def readable(self) -> tuple[str, ...]:
        """Columns that nights may have, by name: those to read, and those from which slicing columns are computed."""
        return tuple(dict.fromkeys((*self.folding.columns, *self.slicing.sources)))

    @cached_property
    def slicing(self) -> Slicing:
        """The slicings of every night."""
        options = self.options
        slicing = Slicing.of(options["by"], options["max_slices"], _MANY_SLICES, options["timezone"])
        return replace(slicing, zones={**slicing.zones, **self.zones})

    @cached_property
    def zones(self) -> dict[str, str]:
        """The time zone of each slicing column that is a part of times with a zone, fixed by the first night."""
        kinds = {name.removeprefix("by "): kind for name, kind in self.types.items() if name.startswith("by ")}
        return {name: zone for name, kind in kinds.items() if (zone := _zone(kind))}

    def is_timezone(self, name: str) -> bool:
        """Whether all slices by parts of times are in this zone, requested or not."""
        return {self.zones.get(column) for column in self.slicing.columns if has_part(column)} == {name}

    @cached_property
    def _all_states(self) -> dict[str, object]:
        """Options that request all states; labels are included only if a metric of the store needs them."""
        if self.request().label.column is None:
            return {name: value for name, value in ALL_STATES.items() if name != "metrics"}
        return ALL_STATES

    def typed(self, planned: Scan) -> Configuration:
        """The configuration, with key types from a scan for the columns that have none yet."""
        schema, types = planned.schema, dict(self.types)
        if not self.zones and any(has_part(column) for column, _ in self.untyped):
            self.slicing.check_timezone(self.options["timezone"], schema, planned.pieces[0].name)
        for column, name in self.untyped:
            if name in self.late_ids:
                check_ids(schema.field(column).type, column, planned.pieces[0].name)
                types[name] = comparison(schema.field(column).type, schema.field(column).type) or "text"
            elif name == column:
                types[name] = _key_type(schema.field(column), self.numbers)
            elif column not in schema.names:
                types[name] = f"{COMPUTED} {self.slicing.timezones(schema).get(column, '')}".rstrip()
            elif kind := slice_type(schema.field(column).type, column, planned.pieces[0].name):
                types[name] = kind
        return replace(self, types=types)

    @property
    def untyped(self) -> list[tuple[str, str]]:
        """The columns that have no type yet, each with its key in `types`; a slicing column of nulls never has one."""
        ids = ((name if name in self.numbers else IdName(name), name) for name in self.key_columns)
        late = ((IdName(column), name) for name, column in self.late_ids.items())
        return [(column, name) for column, name in (*ids, *self._slices.items(), *late) if name not in self.types]

    def check_typed(self, entries: Iterable[Entry]) -> None:
        """Raise `FormatError` if partitions have states of a column without a key type."""
        untyped = {name for name in self.key_columns if name not in self.types}
        for entry, state in ((e, s) for e in (entries if untyped else ()) for s in e.states):
            needed = [state.of]
            needed += [self.options["classes"]] if state.group.startswith("classes") else []
            needed += [self.options["unit"]] if ".blocks" in state.group else []
            for name in untyped.intersection(needed):
                raise FormatError(
                    f"{entry.partition} has states of column {name!r}, whose type is missing in the ledger; "
                    "restore the ledger from a backup"
                )

    @property
    def _slices(self) -> dict[str, str]:
        """The columns of slices, or of strata of labels, with the keys of their types in `types`."""
        strata = (self.design.strata,) if self.design and self.design.strata else ()
        return {column: f"by {column}" for column in (*self.slicing.columns, *strata)}

    def widen_columns(self, planned: Scan) -> Scan:
        """Widen the columns of a scan to the store's key types.

        Raises
        ------
        SchemaError
            If a column's type cannot be widened to the store's type, or a slicing column is there only in some nights.
        """
        slices = {column: self.types[name] for column, name in self._slices.items() if name in self.types}
        for column, kind in slices.items():
            computed = kind.partition(" ")[0] == COMPUTED
            if computed == (column in planned.schema.names):
                have = "has" if computed else "lacks"
                raise SchemaError(
                    f"{planned.pieces[0].name}: it {have} a column {column!r}, unlike the nights of the store; "
                    "rename the column, or create another store"
                )
        self._check_zones(planned, slices)
        fields = []
        for field in without_views(planned.schema):
            due, sliced = self.types.get(field.name), slices.get(field.name)
            own = ""
            with suppress(SchemaError):
                own = _key_type(field, self.numbers)
            if due not in (None, own):
                field = _widen(field, planned, arrow_type(due), "holds")
            if (
                sliced
                and not sliced.startswith(COMPUTED)
                and slice_type(field.type, field.name, planned.pieces[0].name) not in (sliced, "")
            ):
                field = _widen(field, planned, _slices_arrow_type(sliced), "slices by")
            fields.append(field)
        return replace(planned, schema=pa.schema(fields))

    def _check_zones(self, planned: Scan, slices: Mapping[str, str]) -> None:
        """Raise `SchemaError` if times are in a zone, and those of the nights of the store are not, or conversely."""
        for each in self.slicing.derived(planned.schema):
            field = planned.schema.field(each.column)
            own = replace(each, zone=self.options["timezone"] or "").zone_of(field)
            kept = _zone(slices.get(each.name, ""))
            if each.name in slices and bool(own) != bool(kept):
                times = pa.types.is_timestamp(plain(field.type))
                have = f"times {_in_zone(own)}" if times else "dates"
                remedy = " with one zone for all nights (--timezone)" if times else ""
                raise SchemaError(
                    f"{planned.pieces[0].name}: column {each.column!r} has {have}, unlike the nights of the store "
                    f"({_in_zone(kept)}); write the column as there, or create another store{remedy}"
                )

    @property
    def numbers(self) -> tuple[str, ...]:
        """Score and sketch columns; all other key columns are ids."""
        return (*self.options["score"], *self.options["sketch"])

    @property
    def key_columns(self) -> tuple[str, ...]:
        """Score, cluster, sketch and class columns and the unit, each once; classes only if there are clusters."""
        score, cluster, sketch, classes, unit = (self.options[n] for n in (*SUBSETS, "classes", "unit"))
        named = (*score, *cluster, classes if cluster else None, *sketch, unit)
        return tuple(dict.fromkeys(name for name in named if name))

    def wanted(self, request: Request) -> list[MetricRequest]:
        """The states of partitions with their metrics, planned as in an evaluation of the files."""
        types = {name: self.types.get(name) or ("f8" if name in self.numbers else "hash") for name in self.key_columns}
        fields = {name: pa.field(name, arrow_type(kind)) for name, kind in types.items()}  # some may have no type yet
        fields |= {name: late_field(fields[name]) for name in self.statements.further}
        slices = {column: self.types.get(name, COMPUTED) for column, name in self._slices.items()}
        schema = pa.schema(
            [*((n, _slices_arrow_type(k)) for n, k in slices.items() if n not in fields), *fields.values()]
        )
        return planned(request, Scan(schema, (Piece("_", "_", 0, 0, 0, "_", source=_Nothing()),), 0, 0))

    @cached_property
    def specs(self) -> dict[tuple[str, str], StoredSpec]:
        """The spec of every state, by group and column."""
        wanted = self.wanted(self.request(**self._all_states))
        return {(w.group, w.of): w.spec for w in self.stored(wanted)}

    def stored(self, wanted: Sequence[MetricRequest]) -> list[MetricRequest]:
        """The requests of all states that are kept for some: of all rows, of blocks of units, and of slices."""
        whole = self.kept(wanted)
        requests = [*whole, *(one for key in self.slicing.keys for one in sliced(whole, key))]
        return [part for request in requests for part in request.stored]

    def kept(self, wanted: Sequence[MetricRequest]) -> list[MetricRequest]:
        """The requests themselves, and those of the unit blocks that are kept for them."""
        resampling = self.folding.resampling if self.options["unit"] else NO_INTERVALS
        blocks = (w.blocks(resampling) for w in wanted if w.family.replication.own_blocks)
        return [*wanted, *filter(None, blocks)]

    def with_(self, types: Mapping[str, str]) -> Configuration:
        """The configuration with these key types, restricted to its columns."""
        own = {*self.key_columns, *self._slices.values(), *self.late_ids}
        return replace(self, types={name: kind for name, kind in types.items() if name in own})

    def changed(self, before: Configuration) -> dict[tuple[str, str], tuple[StoredSpec, StoredSpec] | None]:
        """All states by (group, column), with the old and the new spec if they differ, otherwise None."""
        old = before.specs
        return {key: (old[key], spec) if key in old and old[key] != spec else None for key, spec in self.specs.items()}


def select_slicings(
    options: Mapping[str, Any], select: Callable[[Iterable[str]], bool]
) -> dict[str, tuple[str, ...] | str | None]:
    """The slicings of options whose columns are selected, and the time zone only if one of them is by times."""
    by = tuple(text for text in options["by"] if select(slicing(text)))
    timed = any(has_part(name) for text in by for name in slicing(text))
    return {"by": by, "timezone": options["timezone"] if timed else None}


def sliced(requests: Iterable[MetricRequest], key: By) -> list[MetricRequest]:
    """The requests of the states of every slice, and of the blocks of units in it."""
    divided = [w for w in requests if divisible(w.spec)]
    return [replace(w, spec=GroupedSpec(w.spec, key), metrics=(), by=",".join(key.columns)) for w in divided]


class _Nothing:
    """An empty source, for partitions whose states are stored."""

    def batches(self, columns: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
        """No batches."""
        return iter(())


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
_SLICES = {"b": pa.bool_(), "i": pa.int64(), "s": pa.large_string(), "x": pa.large_binary(), COMPUTED: pa.null()}


def arrow_type(kind: str) -> pa.DataType:
    """The Arrow type for a key type, such as ``f4``, ``hash``, or ``d2`` (decimals with two places).

    Raises
    ------
    FormatError
        If there is no such key type, so that the ledger it is from is damaged.
    """
    if isinstance(kind, str):
        if kind in _ARROW:
            return _ARROW[kind]
        if re.fullmatch(r"d\d{1,2}", kind):
            return pa.decimal128(18, int(kind[1:]))
    raise _unknown_type_error(kind)


def _slices_arrow_type(kind: str) -> pa.DataType:
    """The Arrow type for a result of `slice_type`; raises `FormatError` as `arrow_type`."""
    with suppress(ValueError, TypeError):
        if kind in _SLICES:
            return _SLICES[kind]
        if _zone(kind):
            zone("timezone", _zone(kind))
            return _SLICES[COMPUTED]
        if match := re.fullmatch(r"decimal(32|64|128|256)\((\d{1,2}), (\d{1,2})\)", kind):
            return (pa.decimal256 if match[1] == "256" else pa.decimal128)(int(match[2]), int(match[3]))
        if match := re.fullmatch(r"timestamp\[(\w{1,2}), tz=(.+)\]", kind):
            return pa.timestamp(match[1], match[2])
        return pa.type_for_alias(kind)
    raise _unknown_type_error(kind)


def _zone(kind: str) -> str:
    """The time zone of a slicing column that is computed; empty for other columns, and for times without a zone."""
    computed, _, name = kind.partition(" ") if isinstance(kind, str) else ("", "", "")
    return name if computed == COMPUTED else ""


def _in_zone(name: str) -> str:
    return f"in {name}" if name else "without a zone"


def _unknown_type_error(kind: object) -> FormatError:
    """The error for a type that no column has."""
    msg = f"the ledger has a column of type {str(kind)[:60]!r}, which no column has; restore the ledger from a backup"
    return FormatError(msg)


def _key_type(field: pa.Field, numbers: Sequence[str]) -> str:
    """The key type of a column; `numbers` names the score and sketch columns, all others are ids."""
    return (score_type if field.name in numbers else id_type)(field.type, field.name)


def _widen(field: pa.Field, planned: Scan, kind: pa.DataType, does: str) -> pa.Field:
    """Widen a column to a type; `does` is the verb of the message.

    Raises
    ------
    SchemaError
        If the type cannot hold all values of the column's type.
    """
    if widen([field.type, kind]) == kind:
        return field.with_type(kind)
    own = plain(planned.schema.field(field.name).type)
    raise SchemaError(
        f"{planned.pieces[0].name}: column {field.name!r} is {own}, but the store {does} "
        f"{kind}, fixed by its first update, and the conversion could lose values; write the column as that type, or "
        "create another store"
    )
