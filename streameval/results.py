"""What a metric gives back: a value and how exact it is, or a curve.

A value is exact, or known up to a certain interval, or an estimate from a sample. An estimate has no certain interval:
its ends are NaN, and `stderr` and `bound` say how far off it may be.

A `Scalar` is written to JSON by `Scalar.to_dict` and to tables by `to_arrow`; both, and `from_arrow`, follow `COLUMNS`,
so that a new field of the class is written and read everywhere.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from streameval.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pyarrow as pa

    from streameval.typing import Array

__all__ = [
    "COLUMNS",
    "Band",
    "Bins",
    "Curve",
    "Distribution",
    "Reliability",
    "Scalar",
    "Source",
    "from_arrow",
    "result_schema",
    "same_slice",
    "slice_table",
    "to_arrow",
]


@dataclass(frozen=True, slots=True)
class Scalar:
    """One number, with the interval that certainly holds the exact value, if there is one.

    Attributes
    ----------
    metric : name of the metric, such as ``roc_auc``
    value : the number; NaN where it is undefined, see `reason`
    of : the score or cluster column
    lower, upper : ends of the certain interval, equal to `value` where it is exact; NaN for an estimate
    exact : whether the value is exact; False where it is undefined
    rows, positives : rows that the value was computed from, and how many of them are positive; None for metrics that
        do not look at labels
    reason : why the value or its interval is NaN
    stderr : standard error of an estimate
    threshold : the score at which an operating point is reached
    bound : largest error that binning adds to an estimate, on top of `stderr`
    ci_lower, ci_upper, ci_level : the sampling interval of the value and its level, such as 0.95; see
        `streameval.metrics.estimates`
    ci_reason : why there is no sampling interval though one was asked for
    unit : what is drawn together: a column, or ``row``
    units : number of units, where it is known
    effective_units : effective number of units, the smallest of all rows, positives and negatives
    blocks : blocks that have rows
    baseline : of a difference, the column that the other is compared with
    p_value : of a difference, two-sided and adjusted for all differences of the table (Holm)
    verdict : of a difference: ``better``, ``worse`` or ``not shown``
    slice : the values of the slicing columns; None where all rows are meant
    mean_over : the column of groups, where the value is the mean of their own values
    groups, groups_left_out, rows_left_out : groups with a value, groups without one, and the rows of these

    Examples
    --------
    >>> Scalar.certain("roc_auc", 0.75).to_dict()
    {'metric': 'roc_auc', 'of': None, 'value': 0.75, 'lower': 0.75, 'upper': 0.75, 'exact': True, 'rows': 0,
     'positives': 0}
    """

    metric: str
    value: float
    of: str | None = None
    lower: float = math.nan
    upper: float = math.nan
    exact: bool = True
    rows: int = 0
    positives: int | None = 0
    reason: str | None = None
    stderr: float | None = None
    threshold: float | None = None
    bound: float | None = None
    ci_lower: float | None = None
    ci_upper: float | None = None
    ci_level: float | None = None
    ci_reason: str | None = None
    unit: str | None = None
    units: int | None = None
    effective_units: float | None = None
    blocks: int | None = None
    baseline: str | None = None
    p_value: float | None = None
    verdict: str | None = None
    slice: dict[str, Any] | None = None
    mean_over: str | None = None
    groups: int | None = None
    groups_left_out: int | None = None
    rows_left_out: int | None = None

    @classmethod
    def certain(cls, metric: str, value: float, threshold: float | None = None) -> Scalar:
        """An exact value."""
        return cls(metric, value, lower=value, upper=value, threshold=threshold)

    @classmethod
    def between(cls, metric: str, value: float, lower: float, upper: float) -> Scalar:
        """A value known up to an interval."""
        return cls(metric, value, lower=lower, upper=upper, exact=lower == upper)

    @classmethod
    def undefined(cls, metric: str, reason: str) -> Scalar:
        """A value that does not exist, with the reason."""
        return cls(metric, math.nan, exact=False, reason=reason)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; a NaN is None.

        Examples
        --------
        >>> Scalar.undefined("roc_auc", "one class only").to_dict()["value"] is None
        True
        """
        values = {name: getattr(self, name) for name in COLUMNS}
        found: dict[str, Any] = {
            name: _plain(value) for name, value in values.items() if value is not None or name == "of"
        }
        if self.slice is not None:
            found["slice"] = {name: _slice_value(value) for name, value in self.slice.items()}
        return found


# Name and Arrow type of every column that results have in a table, in order; slicing columns follow.
COLUMNS: dict[str, str] = {"metric": "string", "of": "string"} | {
    each.name: {"str": "string", "float": "double", "int": "int64", "bool": "bool"}[str(each.type).partition(" ")[0]]
    for each in fields(Scalar)
    if each.name != "slice"
}
_ALWAYS = ("value", "lower", "upper")  # NaN where a table has null


def result_schema() -> pa.Schema:
    """The Arrow schema of results."""
    import pyarrow as pa

    return pa.schema([(name, pa.type_for_alias(kind)) for name, kind in COLUMNS.items()])


def to_arrow(results: Iterable[Scalar]) -> pa.Table:
    """A table with one row for each result; a NaN is null.

    Where there are slices, a column `by` names their slicing, null for results of all rows, and each slicing column
    follows with its values.

    Examples
    --------
    >>> table = to_arrow([Scalar.certain("roc_auc", 0.75), Scalar.undefined("agc", "one class only")])
    >>> table["value"].to_pylist(), from_arrow(table)[0].value
    ([0.75, None], 0.75)
    """
    import pyarrow as pa

    results = list(results)
    rows = [{name: getattr(result, name) for name in COLUMNS} for result in results]
    plain = [{name: None if value != value else value for name, value in row.items()} for row in rows]
    table = pa.Table.from_pylist(plain, schema=result_schema())
    slices = [result.slice for result in results]
    for name in dict.fromkeys(name for each in slices for name in each or ()):
        table = table.append_column(name, pa.array([(each or {}).get(name) for each in slices]))
    if any(slices):
        by = pa.array([",".join(each) if each else None for each in slices], pa.string())
        table = table.add_column(len(COLUMNS), "by", by)
    return table


def same_slice(one: Mapping[str, Any] | None, other: Mapping[str, Any] | None) -> bool:
    """Whether two slices are the same; a NaN equals a NaN, and a date its text.

    Examples
    --------
    >>> import datetime
    >>> same_slice({"day": "2026-01-31"}, {"day": datetime.date(2026, 1, 31)}), same_slice(None, {"day": None})
    (True, False)
    """
    if one is None or other is None:
        return one is other
    return one.keys() == other.keys() and all(_same_value(one[name], other[name]) for name in one)


def _same_value(one: Any, other: Any) -> bool:
    if hasattr(other, "isoformat"):
        other = str(other)
    return bool(one == other) or (one != one and other != other)


def slice_table(results: Iterable[Scalar], by: str) -> pa.Table:
    """One row for each slice of a slicing; see `streameval.Evaluation.slices`."""
    import pyarrow as pa

    sliced = [result for result in results if result.slice]
    found = [result for result in sliced if ",".join(result.slice or ()) == by]
    if not found:
        have = "; ".join(dict.fromkeys(",".join(result.slice or ()) for result in sliced))
        msg = f"there are no slices by {by!r}; there are slices by: {have or 'nothing, since by was not given'}"
        raise OptionError(msg)
    slices: list[tuple[Mapping[str, Any], list[Scalar]]] = []
    for result in found:
        if not slices or slices[-1][0] is not result.slice:
            slices.append((result.slice or {}, []))
        slices[-1][1].append(result)
    columns: dict[str, pa.Array] = {name: pa.array([each[name] for each, _ in slices]) for name in slices[0][0]}
    largest = [max(row, key=lambda result: result.rows) for _, row in slices]
    for name in ("rows", "positives"):
        columns[name] = pa.array([getattr(result, name) for result in largest], pa.int64())
    for i, first in enumerate(slices[0][1]):
        values = [row[i].value for _, row in slices]
        columns[f"{first.metric}[{first.of}]"] = pa.array(values, pa.float64(), from_pandas=True)
    return pa.table(columns)


def from_arrow(table: pa.Table) -> list[Scalar]:
    """The results of a table that has `COLUMNS` among its columns."""
    rows = table.select(list(COLUMNS)).to_pylist()
    return [Scalar(**row | {name: math.nan for name in _ALWAYS if row[name] is None}) for row in rows]


def _slice_value(value: Any) -> Any:
    """The value of a slicing column in JSON: numbers that JSON does not have, decimals and binaries are text."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return value if value is None or isinstance(value, str | int) else str(value)


def _plain(value: float | str | None) -> float | str | None:
    """The value in JSON: a NaN is null, an infinity is text."""
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value


@dataclass(frozen=True, eq=False)
class Band:
    """Pointwise sampling intervals of a curve, on a grid of x; NaN where there is none.

    Attributes
    ----------
    x, lower, upper : float64 arrays of shape (n_points,)
    level : of each interval, such as 0.95; not of the whole curve
    unit : what is drawn together: a column, or ``row``
    """

    x: Array
    lower: Array
    upper: Array
    level: float
    unit: str


@dataclass(frozen=True, eq=False)
class Curve:
    """A curve for drawing; its area is that of the whole curve, not of the points kept.

    Attributes
    ----------
    name : ``roc``, ``precision_recall``, ``gain``, ``lift``, ``reliability``, ``corp`` or ``purity``
    of : the score or cluster column
    x, y : float64 arrays of shape (n_points,), at most 10,000 points
    thresholds : float64 array of shape (n_points,); scores at or above it are taken as positive (for ``lift``, the
        cluster size)
    area : area under the whole curve; of ``reliability`` its mean distance from the diagonal (`ece`), of ``corp`` what
        the distance costs (`corp.mcb`), of ``purity`` the share of positives of all rows
    exact : whether points and area are exact
    positives, rows : what the curve was computed from; with weights, sums of weights
    weighted : whether there are weights
    band : pointwise sampling intervals, where the evaluation has intervals
    """

    name: str
    of: str | None
    x: Array
    y: Array
    thresholds: Array
    area: float
    exact: bool = True
    positives: float = 0
    rows: float = 0
    weighted: bool = False
    band: Band | None = None


@dataclass(frozen=True, eq=False)
class Bins(Curve):
    """A curve over bins of rows, ascending; bins without rows are left out. `thresholds` are their lower ends.

    Attributes
    ----------
    low, high : float64 arrays of shape (n_bins,), the ends of each bin
    counts : float64 array of shape (n_bins,), rows of each bin; with weights, their sum
    """

    low: Array = field(kw_only=True)
    high: Array = field(kw_only=True)
    counts: Array = field(kw_only=True)


@dataclass(frozen=True, eq=False)
class Reliability(Bins):
    """A reliability curve: for each bin its mean score `x` and its share of positives `y`.

    The ends of bins of equal width are their edges, those of bins of equal count the lowest and the highest score.

    Attributes
    ----------
    x_lower, x_upper, y_lower, y_upper : float64 arrays of shape (n_bins,), certain ends of the mean score and of the
        share, equal to `x` and `y` where these are exact
    doubt : float64 array of shape (n_bins,), rows that may belong to the next bin: those of bins of a histogram that
        cross an end
    ci_lower, ci_upper : float64 arrays of shape (n_bins,), 95 % interval of the share (Wilson 1927) if every row were
        drawn on its own; too narrow where rows come in groups, such as campaigns; NaN with weights, and where there is
        doubt
    """

    x_lower: Array = field(kw_only=True)
    x_upper: Array = field(kw_only=True)
    y_lower: Array = field(kw_only=True)
    y_upper: Array = field(kw_only=True)
    doubt: Array = field(kw_only=True)
    ci_lower: Array = field(kw_only=True)
    ci_upper: Array = field(kw_only=True)


@dataclass(frozen=True, eq=False)
class Distribution:
    """How the scores of each class are distributed, in bins of equal width from the lowest score to the highest.

    Attributes
    ----------
    of : the score column
    edges : float64 array of shape (n_bins + 1,); bins hold their lower edge, the last one its upper edge as well
    negatives, positives : float64 arrays of shape (n_bins,), rows of each class; with weights, their sums
    infinite : rows (negatives, positives) whose score is infinite, which are in no bin
    doubt : rows of bins of a histogram that cross an edge, and may belong to the next bin
    weighted : whether there are weights
    """

    of: str
    edges: Array
    negatives: Array
    positives: Array
    infinite: tuple[float, float] = (0.0, 0.0)
    doubt: float = 0.0
    weighted: bool = False

    def densities(self) -> tuple[Array, Array]:
        """Densities of the negatives and of the positives: each integrates to 1, or is 0 where the class is empty."""
        widths = self.edges[1:] - self.edges[:-1]
        negative, positive = (side / (max(side.sum(), 1e-300) * widths) for side in (self.negatives, self.positives))
        return negative, positive


@dataclass(frozen=True)
class Source:
    """Where results come from, as far as others may know it.

    Attributes
    ----------
    data : what was named: paths and URIs without credentials, and the kinds of things in memory
    files : number of files that were read; 0 where there are none
    command : what repeats the run on the command line; empty where nothing does
    nights : number of a store's nights
    """

    data: tuple[str, ...] = ()
    files: int = 0
    command: str = ""
    nights: int = 0
