"""Resampling: which sampling intervals and comparisons are requested, and the blocks to fold for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streameval.errors import OptionError, SchemaError
from streameval.options import honoured
from streameval.results import REST
from streameval.states.grouped.keys import Blocks
from streameval.states.keyed.ids import id_type
from streameval.wording import few

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

LEVEL = 0.95  # level of intervals that other options imply


@dataclass(frozen=True)
class Resampling:
    """The sampling intervals that are requested.

    Attributes
    ----------
    level : level of the intervals; None for no intervals
    unit : column of the sampling units; None if each row is a unit
    baselines : columns that others are compared with
    bins : number of score bins in which blocks are counted; None to keep all scores
    rest : whether slices are compared with all other rows

    Examples
    --------
    >>> options = {"ci": None, "unit": "campaign", "baseline": (), "against": None}
    >>> Resampling.of(options | {"score": ("a",), "cluster": (), "resample_bins": "exact"})
    Resampling(level=0.95, unit='campaign', baselines=(), bins=None, rest=False)
    """

    level: float | None = None
    unit: str | None = None
    baselines: tuple[str, ...] = ()
    bins: int | None = 2048
    rest: bool = False

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Resampling:
        """The resampling that plain options request.

        Raises
        ------
        OptionError
            If there is nothing to compare with a baseline, or its name means all other rows of a slice.
        """
        unit, baselines = options["unit"], tuple(options["baseline"])
        for name in baselines:
            kinds = [kind for kind in ("score", "cluster") if name in options[kind]]
            if not kinds:
                have = few([*options["score"], *options["cluster"]])
                msg = f"baseline={name!r} is neither a score nor a cluster column that is evaluated; there are {have}"
                raise OptionError(msg, "baseline")
            if all(len(options[kind]) < 2 for kind in kinds):
                msg = f"baseline={name!r} has no other {kinds[0]} column to compare with; name one (--{kinds[0]})"
                raise OptionError(msg, "baseline")
            plain = name.removesuffix(f" ({REST})")
            if options.get("by") and plain != name and plain in (*options["score"], *options["cluster"]):
                msg = (
                    f"baseline={name!r}: of a slice, {plain} − {name} would read as its difference from all other "
                    "rows; rename the column, or leave out by (--by)"
                )
                raise OptionError(msg, "baseline")
        level, rest = options["ci"], options["against"] == REST
        if level is None and (unit or baselines or rest):
            level = LEVEL
        bins = options["resample_bins"]
        if level is None and bins != honoured("evaluate")["resample_bins"].rest:
            msg = f"resample_bins={bins!r} would change nothing without intervals: set ci, unit or baseline (--ci)"
            raise OptionError(msg, "resample_bins")
        return cls(level, unit, baselines, None if bins == "exact" else int(bins), rest)

    def check(self, schema: pa.Schema, name: str) -> None:
        """Raise `SchemaError` if the unit is not an id column; `name` is the file that errors name."""
        if self.unit is not None:
            try:
                id_type(schema.field(self.unit).type, self.unit)
            except SchemaError as error:
                msg = f"{name}: {error}"
                raise SchemaError(msg) from None

    @property
    def blocks(self) -> Blocks:
        """How units are divided into blocks."""
        return Blocks(self.unit)

    @property
    def named_unit(self) -> str:
        """The unit as results name it."""
        return self.unit or "row"

    def pairs(self, columns: Sequence[str]) -> list[tuple[str, str]]:
        """Pairs of a column and the baseline that it is compared with, of columns of one kind, each pair once.

        Examples
        --------
        >>> Resampling(0.95, None, ("a", "b")).pairs(["a", "b", "c"])
        [('b', 'a'), ('c', 'a'), ('c', 'b')]
        """
        found: list[tuple[str, str]] = []
        for base in self.baselines:
            if base in columns:
                others = (column for column in columns if column != base)
                found += [(other, base) for other in others if (base, other) not in found]
        return found


NO_INTERVALS = Resampling()
