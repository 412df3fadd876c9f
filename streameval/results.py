"""Results of metrics: values with their exactness, and curves.

A value is exact, or known up to bounds that contain the exact value, or estimated from a sample. The bounds of an
estimate are NaN; `stderr` and `bound` describe its error.

`Scalar.to_dict`, `to_arrow` and `from_arrow` all follow `COLUMNS`, which is derived from the fields of `Scalar`: a new
field is written and read everywhere.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, fields
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

from streameval.errors import OptionError
from streameval.wording import nearest, text_of_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    import pyarrow as pa

    from streameval.typing import Array


@dataclass(frozen=True, eq=False)
class Band:
    """Pointwise sampling intervals of a curve on a grid of x; NaN where there is no interval.

    Attributes
    ----------
    x, lower, upper : float64 arrays of shape (n_points,)
    level : level of each single interval, such as 0.95; the whole curve has a lower one
    unit : the sampling unit: a column, or ``row``
    effective_units : effective number of units, the smallest of those of all rows, positives and negatives
    freedom : the least degrees of freedom of the intervals
    reason : why no x has an interval; None if at least one has
    """

    x: Array
    lower: Array
    upper: Array
    level: float
    unit: str
    effective_units: float | None = None
    reason: str | None = None
    freedom: float | None = None


@dataclass(frozen=True, eq=False)
class Curve:
    """A curve for drawing; the area is that of the whole curve, not of the points kept.

    Attributes
    ----------
    name : ``roc``, ``precision_recall``, ``gain``, ``lift``, ``reliability``, ``corp`` or ``purity``
    of : the score or cluster column
    x, y : float64 arrays of shape (n_points,), at most 10,000 points
    thresholds : float64 array of shape (n_points,); scores at or above it are predicted positive (for ``lift``, it is
        the cluster size)
    area : area under the whole curve; for ``reliability`` the mean distance from the diagonal (`ece`), for ``corp`` the
        miscalibration (`corp.mcb`), for ``purity`` the share of positives among all rows
    exact : whether points and area are exact
    positives, rows : rows that the curve was computed from, and the positives among them; with weights, their sums
    weighted : whether there are weights
    band : pointwise sampling intervals; None without intervals

    Examples
    --------
    >>> import pyarrow as pa
    >>> from streameval import evaluate
    >>> data = pa.table({"label": [0, 1, 1, 0], "score": [0.1, 0.9, 0.4, 0.6]})
    >>> curve = evaluate(data, score="score").curve("roc")
    >>> curve.x, curve.y, curve.area
    (array([0. , 0. , 0.5, 0.5, 1. ]), array([0. , 0.5, 0.5, 1. , 1. ]), 0.75)
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
    """A curve over bins of rows in ascending order; empty bins are left out. `thresholds` are their lower ends.

    Attributes
    ----------
    low, high : float64 arrays of shape (n_bins,), the ends of each bin
    counts : float64 array of shape (n_bins,), rows of each bin; with weights, their sums

    Examples
    --------
    >>> import pyarrow as pa
    >>> from streameval import evaluate
    >>> data = pa.table({"label": [0, 1, 1], "cluster": [7, 7, 8]})
    >>> sizes = evaluate(data, cluster="cluster").curve("purity")
    >>> sizes.low, sizes.counts, sizes.y
    (array([1., 2.]), array([1., 2.]), array([1. , 0.5]))
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
    x_lower, x_upper, y_lower, y_upper : float64 arrays of shape (n_bins,), bounds of the mean score and of the share;
        equal to `x` and `y` if these are exact
    doubt : float64 array of shape (n_bins,), rows that may belong to the next bin, because their histogram bin crosses
        an end
    ci_lower, ci_upper : float64 arrays of shape (n_bins,), 95 % intervals of the share (Wilson 1927) with each row as a
        unit; too narrow if rows are correlated within groups, such as campaigns; NaN with weights or doubt

    Examples
    --------
    >>> import pyarrow as pa
    >>> from streameval import evaluate
    >>> data = pa.table({"label": [0, 1, 1, 0], "score": [0.1, 0.9, 0.4, 0.6]})
    >>> curve = evaluate(data, score="score").curve("reliability@2")
    >>> curve.x, curve.y, curve.counts
    (array([0.25, 0.75]), array([0.5, 0.5]), array([2., 2.]))
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
    """The distribution of the scores of each class, in bins of equal width from the lowest to the highest score.

    Attributes
    ----------
    of : the score column
    edges : float64 array of shape (n_bins + 1,); a bin includes its lower edge, the last bin also its upper edge
    negatives, positives : float64 arrays of shape (n_bins,), rows of each class; with weights, their sums
    infinite : (negatives, positives) with an infinite score, which are in no bin
    doubt : rows that may belong to the next bin, because their histogram bin crosses an edge
    weighted : whether there are weights

    Examples
    --------
    >>> import pyarrow as pa
    >>> from streameval import evaluate
    >>> data = pa.table({"label": [0, 1, 1, 0], "score": [0.1, 0.9, 0.4, 0.6]})
    >>> found = evaluate(data, score="score").distribution(bins=2)
    >>> found.edges, found.negatives, found.positives
    (array([0.1, 0.5, 0.9]), array([1., 1.]), array([1., 1.]))
    """

    of: str
    edges: Array
    negatives: Array
    positives: Array
    infinite: tuple[float, float] = (0.0, 0.0)
    doubt: float = 0.0
    weighted: bool = False

    def densities(self) -> tuple[Array, Array]:
        """Densities of both classes, float64 arrays of shape (n_bins,); each integrates to 1, or is 0 if empty.

        Examples
        --------
        >>> import numpy as np
        >>> found = Distribution("score", np.array([0.0, 0.5, 1.0]), np.array([3.0, 1.0]), np.array([0.0, 2.0]))
        >>> found.densities()
        (array([1.5, 0.5]), array([0., 2.]))
        """
        widths = self.edges[1:] - self.edges[:-1]
        negative, positive = (side / (max(side.sum(), 1e-300) * widths) for side in (self.negatives, self.positives))
        return negative, positive


FEW_UNITS = 50  # effective units beyond a threshold that an operating point needs
FEW_FREEDOM = 3.0  # degrees of freedom below which a sampling interval is rough
REST = "rest"  # all rows outside a slice
CENSUS = "census"  # the design of a sample of all rows


@dataclass(frozen=True, slots=True, repr=False)
class Scalar:
    """One number, with bounds that contain the exact value, if there are any.

    Attributes
    ----------
    metric : name of the metric, such as ``roc_auc``
    value : the number; NaN if it is undefined, see `reason`
    of : the score or cluster column
    lower, upper : bounds of the exact value, equal to `value` if that is exact; NaN for an estimate
    exact : whether the value is exact; False if it is undefined
    rows, positives : rows that the value was computed from, and the positives among them; `positives` is None for
        metrics that ignore labels
    reason : why the value or its bounds are NaN
    stderr : standard error of an estimate
    threshold : the score at which an operating point is reached
    bound : largest error that binning adds to an estimate, on top of `stderr`
    ci_lower, ci_upper, ci_level : the sampling interval of the value and its level, such as 0.95; see
        `streameval.metrics.estimates`
    ci_reason : why there is no sampling interval although one was requested
    unit : the sampling unit: a column, or ``row``
    units : number of units, if known
    effective_units : effective number of units by their size, the smallest of those of rows, positives and negatives
    freedom : degrees of freedom of the standard error: near the number of blocks if all decide the value alike, few
        if few blocks do
    blocks : number of blocks that have rows
    baseline : for a difference, the column that is subtracted
    p_value : for a difference, the two-sided p-value, adjusted for all differences of all rows, or for all by slice
        (Holm)
    verdict : for a difference: ``better``, ``worse`` or ``not shown``; with a margin also ``equivalent``
    slice : the values of the slicing columns; None for all rows
    mean_over : the column of groups, if the value is a mean over groups
    groups, groups_left_out, rows_left_out : groups with a value, groups without one, and the rows of the latter
    cut_share : for a cluster metric of a slice, the share of its rows in clusters that also have rows of other slices
    basis : ``labelled rows`` if the value is of these alone, as labels arrive late; it does not estimate all rows
    labelled_share : the share of labelled rows among all rows, for such a value; slices have the basis alone
    label_class : of several classes, the one against the rest, or ``macro``, ``weighted`` or ``micro`` for an average
    design, labelled, strata : of an estimate from a sample of labels, how these were drawn (``census`` if all rows are
        labelled), their number, and the number of strata after cutting at scores; `positives` is then None
    group_deciles : for a mean over groups, the deciles of their values: 11 numbers from the least to the greatest, each
        group counted once; None if no group has a value

    Examples
    --------
    >>> Scalar.certain("roc_auc", 0.75).to_dict()
    {'metric': 'roc_auc', 'of': None, 'value': 0.75, 'lower': 0.75, 'upper': 0.75, 'exact': True, 'rows': 0,
     'positives': 0}
    >>> Scalar.undefined("roc_auc", "one class only")
    Scalar(metric='roc_auc', value=nan, exact=False, reason='one class only')
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
    freedom: float | None = None
    blocks: int | None = None
    baseline: str | None = None
    p_value: float | None = None
    verdict: str | None = None
    slice: dict[str, Any] | None = None
    mean_over: str | None = None
    groups: int | None = None
    groups_left_out: int | None = None
    rows_left_out: int | None = None
    cut_share: float | None = None
    basis: str | None = None
    labelled_share: float | None = None
    label_class: str | None = None
    design: str | None = None
    labelled: int | None = None
    strata: int | None = None
    group_deciles: tuple[float, ...] | None = None

    @classmethod
    def certain(cls, metric: str, value: float, threshold: float | None = None) -> Scalar:
        """An exact value of `metric`, with its `threshold` if it has one."""
        return cls(metric, value, lower=value, upper=value, threshold=threshold)

    @classmethod
    def between(cls, metric: str, value: float, lower: float, upper: float) -> Scalar:
        """A value of `metric` known up to bounds: the exact one is certain to lie in [`lower`, `upper`]."""
        return cls(metric, value, lower=lower, upper=upper, exact=lower == upper)

    @classmethod
    def undefined(cls, metric: str, reason: str) -> Scalar:
        """An undefined value of `metric`, with the reason."""
        return cls(metric, math.nan, exact=False, reason=reason)

    def __repr__(self) -> str:
        """The fields that differ from their defaults, as constructor arguments."""
        arguments = []
        for each in fields(self):
            value = getattr(self, each.name)
            silent = value is None or value != value or value in _SILENT.get(each.name, ())
            if not silent or each.name in ("metric", "value"):
                arguments.append(f"{each.name}={value!r}")
        return f"Scalar({', '.join(arguments)})"

    @property
    def from_rest(self) -> bool:
        """Whether this is the difference between a slice and all other rows.

        Examples
        --------
        >>> one = Scalar("roc_auc", -0.1, of="s − s (rest)", baseline="s (rest)", slice={"country": "DE"})
        >>> one.from_rest
        True
        """
        base, rest = self.baseline or "", f" ({REST})"
        named = self.slice is not None and base.endswith(rest)
        return named and self.of == f"{base.removesuffix(rest)} − {base}"

    @property
    def ends(self) -> tuple[float, float]:
        """The ends to draw: those of the sampling interval if one was requested, otherwise the bounds."""
        if self.ci_lower is not None and self.ci_upper is not None:
            return self.ci_lower, self.ci_upper
        return (self.lower, self.upper) if self.ci_level is None else (self.value, self.value)

    def to_dict(self) -> dict[str, object]:
        """Plain values for JSON; NaN becomes None.

        Examples
        --------
        >>> Scalar.undefined("roc_auc", "one class only").to_dict()["value"] is None
        True
        """
        values = {name: getattr(self, name) for name in COLUMNS}
        plain: dict[str, Any] = {n: _plain(value) for n, value in values.items() if value is not None or n == "of"}
        if self.group_deciles is not None:
            plain["group_deciles"] = list(self.group_deciles)
        if self.slice is not None:
            plain["slice"] = {name: plain_slice_value(value) for name, value in self.slice.items()}
        return plain


# Name and Arrow type of the columns of a result table, in order; slicing columns follow. Deciles have none: CSV files
# hold no lists.
COLUMNS: dict[str, str] = {"metric": "string", "of": "string"} | {
    each.name: {"str": "string", "float": "double", "int": "int64", "bool": "bool"}[str(each.type).partition(" ")[0]]
    for each in fields(Scalar)
    if each.name not in ("slice", "group_deciles")
}
_SILENT: dict[str, tuple[Any, ...]] = {"exact": (True,), "rows": (0,), "positives": (0,)}  # values that repr omits


def _plain(value: float | str | None) -> float | str | None:
    """A value for JSON: NaN becomes None, an infinity becomes text."""
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value


def slice_name(named: Mapping[str, object] | None) -> str:
    """A slice in the syntax of rules; empty for all rows.

    Examples
    --------
    >>> slice_name({"country": "DE", "night": None}), slice_name(None)
    ('{country=DE,night=null}', '')
    >>> slice_name({"name": "a, {b}", "length=0,20": "[0, 20)"})
    "{name='a, {b}',length=0,20=[0, 20)}"
    """
    if not named:
        return ""
    return f"{{{','.join(f'{column}={_rule_text(column, value)}' for column, value in named.items())}}}"


def _rule_text(column: str, value: object) -> str:
    """A value in the syntax of rules: a text that would be ambiguous is quoted, unless it is an interval of edges."""
    if "=" not in column and isinstance(value, str) and (set(value) & set(",={}") or value.strip(" '") != value):
        return "'{}'".format(value.replace("'", "''"))
    return slice_text(value)


def slice_text(value: object) -> str:
    """A value of a slicing column as text; null is unquoted, and texts that could be mistaken for it are quoted.

    Examples
    --------
    >>> slice_text(None), slice_text("null"), slice_text(7)
    ('null', "'null'", '7')
    """
    return "null" if value is None else repr(value) if value in ("null", "") else str(value)


def plain_slice_value(value: object) -> str | int | float | None:
    """The value of a slicing column for JSON; infinities, NaN, decimals, dates and binaries become text."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes):
        return text_of_bytes(value)
    return value if value is None or isinstance(value, str | int) else str(value)


class LabelStratum(NamedTuple):
    """A stratum of a sample of labels.

    Attributes
    ----------
    name : its value, or its range of scores
    rows, labelled, positives : all rows, labelled rows, and positives among these; None for a sample of classes
    weight : sum of the design weights of labelled rows, which estimates `rows`
    variance : estimated variance of this sum
    """

    name: str
    rows: int
    labelled: int
    positives: int | None
    weight: float
    variance: float

    @classmethod
    def whole(cls, strata: Iterable[LabelStratum]) -> LabelStratum:
        """All rows of some strata."""
        _, rows, labelled, positives, weight, variance = zip(*strata, strict=True)
        of_all = sum(each or 0 for each in positives)
        return cls("all rows", sum(rows), sum(labelled), of_all, math.fsum(weight), math.fsum(variance))

    @property
    def doubtful(self) -> bool:
        """Whether the design weights sum up to other rows than there are, by more than 4 standard deviations."""
        return abs(self.weight - self.rows) > max(4 * math.sqrt(self.variance), 1e-9 * self.rows)


@dataclass(frozen=True)
class Source:
    """Where results come from, without credentials.

    Attributes
    ----------
    data : paths and URIs without credentials, and the types of objects in memory
    files : number of files that were read; 0 if there are none
    command : the shell command that repeats the run; empty if there is none
    nights : number of nights of a store
    zones : time zone of each slicing column that is a part of times with a zone
    """

    data: tuple[str, ...] = ()
    files: int = 0
    command: str = ""
    nights: int = 0
    zones: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Judgement:
    """The judgement of a value by a rule: of an evaluation, or of a night of a store.

    Attributes
    ----------
    rule, text : name of the rule, and the rule as it was written
    outcome : ``passed``, ``failed`` or ``undecided``; of nights also ``pending`` and ``earlier``
    value : the judged value; for a rule without a level, the worse end of its bounds; NaN if it is null
    reason : the comparison, in words
    usual, nights : the usual value that it was compared with (NaN without one), and the number of nights behind it
    partition, digest : the night, and the digest of the fold that was judged; empty for an evaluation
    accepted : why a failure was accepted; None if it was not
    judged : time of the judgement of a night, UTC
    ci_lower, ci_upper, ci_level : the sampling interval of an evaluation, if the rule has a level and there is one
    windows : of all rows by a rule that ends in ``always``, for each window: its nights, its value, the end of its
        interval that is compared with the bound, and the value at which it would have failed
    edges : of a rule on PSI, those of its bins; see `streameval.evaluation.alarms.Drift`

    Examples
    --------
    >>> from dataclasses import replace
    >>> failed = Judgement("auc_floor", "roc_auc[v2] >= 0.97", "failed", 0.95, "")
    >>> failed.word, failed.passed, replace(failed, accepted="known").word
    ('FAIL', False, 'accepted')
    """

    rule: str
    text: str
    outcome: str
    value: float
    reason: str
    usual: float = math.nan
    nights: int = 0
    partition: str = ""
    digest: str = ""
    accepted: str | None = None
    judged: datetime | None = None
    ci_lower: float | None = None
    ci_upper: float | None = None
    ci_level: float | None = None
    windows: tuple[tuple[float, ...], ...] = ()
    edges: tuple[float, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether the rule neither failed nor is undecided, or that was accepted."""
        return self.accepted is not None or self.outcome not in ("failed", "undecided")

    @property
    def word(self) -> str:
        """The outcome as tables show it."""
        if self.accepted is not None:
            return "accepted"
        return {"passed": "ok", "failed": "FAIL"}.get(self.outcome, self.outcome)

    def to_dict(self) -> dict[str, object]:
        """Plain values, those of nights or those of an evaluation; NaN becomes None."""
        own = ("partition", "usual", "nights", "accepted") if self.partition else ("ci_lower", "ci_upper", "ci_level")
        values = {name: getattr(self, name) for name in ("rule", "text", "outcome", "passed", "value", "reason", *own)}
        return {name: None if value != value else value for name, value in values.items()}


_ALWAYS = ("value", "lower", "upper")  # fields that are NaN, not None, where a table has null

_NANOSECONDS = re.compile(r"(.*:\d\d\.\d{6})(\d{3})(.*)")  # the nanoseconds of a time, which Python's times lack


def result_schema() -> pa.Schema:
    """The Arrow schema of results."""
    import pyarrow as pa

    return pa.schema([(name, pa.type_for_alias(kind)) for name, kind in COLUMNS.items()])


def to_arrow(results: Iterable[Scalar]) -> pa.Table:
    """A table with one row per result; NaN becomes null. The deciles of groups, which are lists, are left to the JSON.

    If there are slices, a column `by` names the slicing (null for results of all rows), and the slicing columns follow.

    Examples
    --------
    >>> table = to_arrow([Scalar.certain("roc_auc", 0.75), Scalar.undefined("agc", "one class only")])
    >>> table["value"].to_pylist(), from_arrow(table)[0].value
    ([0.75, None], 0.75)
    """
    import pyarrow as pa

    results, schema = list(results), result_schema()
    values = ([getattr(result, field.name) for result in results] for field in schema)
    columns = [pa.array(each, field.type, from_pandas=True) for each, field in zip(values, schema, strict=True)]
    table = pa.Table.from_arrays(columns, schema=schema)
    slices = [result.slice for result in results]
    for name in dict.fromkeys(name for each in slices for name in each or ()):
        table = table.append_column(name, slice_column([(each or {}).get(name) for each in slices]))
    if any(slices):
        by = pa.array([",".join(each) if each else None for each in slices], pa.string())
        table = table.add_column(len(COLUMNS), "by", by)
    return table


def slice_column(values: Sequence[Any]) -> pa.Array:
    """The values of a slicing column as an Arrow array.

    Integers beyond int64 become uint64, or decimals if there are negative ones as well.

    Examples
    --------
    >>> [str(slice_column(values).type) for values in ([7, None], [2**64 - 1, None], [2**64 - 1, -1])]
    ['int64', 'uint64', 'decimal128(20, 0)']
    """
    import pyarrow as pa

    try:
        return pa.array(values)
    except OverflowError:
        if min(value for value in values if value is not None) >= 0:
            return pa.array(values, pa.uint64())
        return pa.array([None if value is None else Decimal(value) for value in values], pa.decimal128(20))


def same_slice(one: Mapping[str, object] | None, other: Mapping[str, object] | None) -> bool:
    """Whether two slices are the same; NaN equals NaN, and a date or time in `other` equals its text.

    Examples
    --------
    >>> import datetime
    >>> same_slice({"day": "2026-01-31"}, {"day": datetime.date(2026, 1, 31)}), same_slice(None, {"day": None})
    (True, False)
    >>> same_slice({"at": "2026-01-31 01:00:00.000+0100"}, {"at": datetime.datetime(2026, 1, 31, tzinfo=datetime.UTC)})
    True
    """
    if one is None or other is None:
        return one is other
    return one.keys() == other.keys() and all(_same_value(one[name], other[name]) for name in one)


def _same_value(one: object, other: object) -> bool:
    if hasattr(other, "isoformat"):
        return isinstance(one, str) and _is_moment(one, other)
    return bool(one == other) or (one != one and other != other)


def _is_moment(text: str, moment: Any) -> bool:
    """Whether a slice's text is a date, a time, or a timestamp; times with a zone are equal if their instants are."""
    if text == str(moment):
        return True
    digits = _NANOSECONDS.fullmatch(text)
    beyond = int(digits[2]) if digits else 0
    plain = moment.replace(nanosecond=0) if hasattr(moment, "nanosecond") else moment
    try:
        parsed = type(plain).fromisoformat(digits[1] + digits[3] if digits else text)
    except ValueError:
        return False
    return bool(parsed == plain) and beyond == getattr(moment, "nanosecond", 0)


def near_slice(given: Mapping[str, object], slices: Iterable[Mapping[str, object]]) -> Mapping[str, object] | None:
    """The slice over the same columns whose values, as text, are closest to the given ones; None if none is close.

    Examples
    --------
    >>> near_slice({"country": "DEE"}, [{"country": "FR"}, {"country": "DE"}, {"source": "DEE"}])
    {'country': 'DE'}
    """
    from difflib import get_close_matches

    def text(values: Mapping[str, object]) -> str:
        return ",".join(slice_text(values[name]) for name in given)

    found = {text(each): each for each in slices if each.keys() == given.keys()}
    near = get_close_matches(text(given), found, 1)
    return found[near[0]] if near else None


_PART, _DATE = re.compile(r"(hour|day|week|month)\(.+\)"), re.compile(r"\d{4}-(\d\d|W\d\d)\b.*")
_CALENDAR = ("hour", "day", "date", "night", "week", "weekday", "month", "year")


def own_order(slices: Sequence[Mapping[str, object]]) -> list[int]:
    """Positions of the slices of one slicing, if they have an order of their own, in that order; else none.

    Parts of times, dates and numbers between edges have one.

    Examples
    --------
    >>> own_order([{"n=5,20": name} for name in (">=20", None, "<5", "[5, 20)")])
    [2, 3, 0, 1]
    >>> own_order([{"night": "2026-02-01"}, {"night": "2026-01-31"}]), own_order([{"country": "FR"}, {"country": "DE"}])
    ([1, 0], [])
    """
    ranks = {name: _ranks(name, [each[name] for each in slices]) for name in (slices[0] if slices else ())}
    if not all(ranks.values()):
        return []
    return sorted(range(len(slices)), key=lambda i: tuple(rank[i] for rank in ranks.values()))


def _ranks(name: str, values: Sequence[object]) -> list[tuple[int, float, str]]:
    """The place of each value of a slicing column; empty if they have no order of their own."""
    texts = ["" if value is None else str(value) for value in values]
    whole = name in _CALENDAR and all(text.isdecimal() for text in texts if text)
    if "=" in name or whole or name.startswith("hour("):
        numbers = [_least(text) for text in texts]
        if any(at != at and text not in ("", "nan") for at, text in zip(numbers, texts, strict=True)):
            return []  # a column of the data has this name
    elif _PART.fullmatch(name) or all(_DATE.fullmatch(text) for text in texts if text):
        numbers = [0.0] * len(texts)
    else:
        return []
    last = [2 * (value is None) + (at != at) for value, at in zip(values, numbers, strict=True)]
    return [(end, 0.0 if end else at, text) for end, at, text in zip(last, numbers, texts, strict=True)]


def _least(text: str) -> float:
    """The least number of an interval such as ``[5, 20)``, or a number; NaN for any other text."""
    if text.startswith("<"):
        return -math.inf
    try:
        return float(re.sub(r"^(\[|>=)|, .*$", "", text))
    except ValueError:
        return math.nan


def slice_table(results: Iterable[Scalar], by: str | Sequence[str]) -> pa.Table:
    """A table with one row per slice of a slicing; see `streameval.Evaluation.slices`.

    Raises
    ------
    OptionError
        If there is no such slicing.
    """
    import pyarrow as pa

    by = by if isinstance(by, str) else ",".join(map(str, by))
    sliced = [result for result in results if result.slice and not result.from_rest]
    rows = [result for result in sliced if ",".join(result.slice or ()) == by]
    if not rows:
        have = list(dict.fromkeys(",".join(result.slice or ()) for result in sliced))
        there = "; ".join(have) or "nothing, since by was not given"
        # the columns in another order, or spelled as the nearest there are; no other slicing, however similar its name
        columns = [part for name in have for part in name.split(",")]
        spelled = sorted(nearest(part.strip(), columns) or part for part in by.split(","))
        meant = next((f"did you mean {name!r}? " for name in have if sorted(name.split(",")) == spelled), "")
        raise OptionError(f"there are no slices by {by!r}; {meant}there are slices by: {there}")
    slices: list[tuple[Mapping[str, Any], list[Scalar]]] = []
    for result in rows:
        if not slices or slices[-1][0] is not result.slice:
            slices.append((result.slice or {}, []))
        slices[-1][1].append(result)
    slices = [slices[i] for i in own_order([each for each, _ in slices])] or slices
    table: dict[str, pa.Array] = {name: slice_column([each[name] for each, _ in slices]) for name in slices[0][0]}
    largest = [max(row, key=lambda result: result.rows) for _, row in slices]
    for name in ("rows", "positives"):
        table[name] = pa.array([getattr(result, name) for result in largest], pa.int64())
    for i, first in enumerate(slices[0][1]):
        values = [row[i].value for _, row in slices]
        table[f"{first.metric}[{first.of}]"] = pa.array(values, pa.float64(), from_pandas=True)
    return pa.table(table)


def from_arrow(table: pa.Table) -> list[Scalar]:
    """Read results from a table that has at least the columns of `COLUMNS`; slices are not restored."""
    rows = table.select([name for name in COLUMNS if name in table.column_names]).to_pylist()
    return [Scalar(**row | {name: math.nan for name in _ALWAYS if row[name] is None}) for row in rows]
