"""Slicing: the columns by which rows are sliced, and the states to fold for them.

All slicings share one pass over the data. The state of all rows is the merge of the slices of the first slicing, so it
is not counted separately.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar, cast

import pyarrow as pa

from streameval.errors import OptionError, SchemaError
from streameval.results import Scalar
from streameval.scan.derived import Derived, SlicingColumn, has_part, read_from, slicing
from streameval.scan.widen import plain
from streameval.states.grouped.keys import By
from streameval.states.grouped.spec import GroupedSpec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streameval.budget import Budget
    from streameval.states.grouped.groups import Grouped
    from streameval.states.protocol import Spec, State, StoredSpec

T = TypeVar("T")
_REMEDY = (
    "slice by a column of fewer values, keep some with where (--where), take the mean over them (--mean-over), or "
    "raise max_slices (--max-slices)"
)
_NO_TIMES = (
    "timezone would change nothing without slices by the hour, day, week or month of times: name them in by "
    "(--by 'hour(sent_at)'), or leave it out"
)


@dataclass(frozen=True)
class Slicing:
    """How the rows are sliced.

    Attributes
    ----------
    keys : the slicings, each by one or several columns
    zones : time zone of slicing columns that are parts of a time; the others are in that of their column

    Examples
    --------
    >>> import pyarrow as pa
    >>> slicing = Slicing.of(("country", "country,hour(sent_at)"), 10_000)
    >>> slicing.columns, slicing.derived(pa.schema({"country": pa.string(), "sent_at": pa.timestamp("us")}))[0].column
    (('country', 'hour(sent_at)'), 'sent_at')
    """

    keys: tuple[By, ...] = ()
    zones: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, texts: Sequence[str], most: int, remedy: str = _REMEDY, timezone: str | None = None) -> Slicing:
        """Parse slicings; each may have at most `most` slices, and `remedy` says what to do if there are more.

        Parts of times are those of `timezone`, by default of the zone of their column.

        Raises
        ------
        OptionError
            If a text is not a valid slicing.
        """
        columns = [tuple(slicing(text)) for text in texts]
        for text, names in zip(texts, columns, strict=True):
            if not all(names):
                raise OptionError(f"by={text!r}: a column is missing before or after a comma; write country,channel")
        made = cls(tuple(By(names, most, remedy) for names in columns))
        for name in made._names:
            if name in ("by", *Scalar.__dataclass_fields__):
                raise OptionError(f"by={name!r}: results have a column of this name; rename the slicing column")
        if timezone is None:
            return made
        zones = {name: timezone for name in made._names if has_part(name)}
        if not zones:
            raise OptionError(_NO_TIMES, "timezone")
        return replace(made, zones=zones)

    @property
    def _names(self) -> list[str]:
        return list(dict.fromkeys(name for key in self.keys for name in key.columns))

    @property
    def columns(self) -> tuple[SlicingColumn, ...]:
        """Columns to read; the scan computes none that the data have."""
        return tuple(SlicingColumn(name, self.zones.get(name, "")) for name in self._names)

    @property
    def sources(self) -> tuple[str, ...]:
        """Columns that may be read: those it names, or those from which these are computed if the data lack them."""
        found = list[str]()
        for name in self.columns:
            with suppress(OptionError):
                found.append(read_from(name))
        return tuple(dict.fromkeys((*found, *self._names)))

    def derived(self, schema: pa.Schema) -> tuple[Derived, ...]:
        """The slicing columns that are computed from the columns of a scan, which has no columns of their names."""
        names = (name for name in self._names if name not in schema.names)
        found = (made for name in names if (made := Derived.of_text(name)) is not None)
        return tuple(replace(made, zone=self.zones.get(made.name, "")) for made in found)

    def timezones(self, schema: pa.Schema) -> dict[str, str]:
        """The zone of each column that is computed from times of a schema with a zone, or in a requested zone."""
        derived = [each for each in self.derived(schema) if each.column in schema.names]
        zones = {each.name: each.zone_of(schema.field(each.column)) for each in derived}
        return {name: zone for name, zone in zones.items() if zone}

    def check_apart(self, scores: Sequence[str]) -> None:
        """Raise `OptionError` if the values of a score are slices: each would hold equal scores."""
        for name in self._names:
            if name in scores:
                raise OptionError(
                    f"by={name!r}: a slice would hold rows of one score; give edges, such as by='{name}=0.2,0.5'"
                )

    def by_column(self, states: Mapping[By, T]) -> dict[str, T]:
        """What belongs to slicings by one column of the data each, by its name."""
        alone = (key for key in self.keys if len(key.columns) == 1 and not SlicingColumn(*key.columns).looks_computed)
        return {key.columns[0]: states[key] for key in alone}

    def check_timezone(self, timezone: str | None, schema: pa.Schema, name: str) -> None:
        """Raise `OptionError` if a requested time zone changes no slice; `name` is the file that errors name."""
        if timezone and not self.timezones(schema):
            raise OptionError(f"{name}: {_NO_TIMES}", "timezone")

    def check(self, schema: pa.Schema, name: str) -> None:
        """Raise `SchemaError` if a column cannot be computed from this schema; `name` is the file that errors name."""
        for column in self.sources:
            if column in schema.names:
                _refuse_unknown_zone(schema.field(column), name)
        for each in self.derived(schema):
            each.check(schema.field(each.column), name)

    def specs(self, specs: Sequence[Spec]) -> tuple[Spec, ...]:
        """The specs to fold instead of these."""
        return tuple(GroupedSpec(spec, key) for key in self.keys for spec in specs) if self.keys else tuple(specs)

    def grouped(self, states: Mapping[StoredSpec, State], spec: Spec, key: By) -> Grouped:
        """The state of a slicing."""
        return cast("Grouped", states[GroupedSpec(spec, key)])

    def overall_states(
        self, states: Mapping[StoredSpec, State], specs: Sequence[Spec], budget: Budget
    ) -> dict[StoredSpec, State]:
        """The states of all rows, by their inner specs."""
        if not self.keys:
            return {spec: states[spec] for spec in specs}
        for key in self.keys:
            grouped = self.grouped(states, specs[0], key)
            key.check(len(grouped.groups()), grouped.named.values)
        return {spec: cast("State", self.grouped(states, spec, self.keys[0]).total(budget)) for spec in specs}


def _refuse_unknown_zone(field: pa.Field, name: str) -> None:
    """Raise `SchemaError` for times of a zone that Arrow cannot find; `name` is the file that the error names."""
    kind = plain(field.type)
    if not pa.types.is_timestamp(kind) or kind.tz is None:
        return
    try:
        pa.array([0], pa.int64()).cast(kind).cast(pa.string())
    except pa.ArrowInvalid:
        remedy = "write the times in UTC, or install the zone (tzdata)"
        raise SchemaError(
            f"{name}: column {field.name!r} is in the time zone {kind.tz!r}, which this machine does not know; {remedy}"
        ) from None


WHOLE = Slicing()  # no slices
