"""A value, and how exact it is."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["COLUMNS", "FEW_UNITS", "REST", "Scalar", "plain_slice_value", "slice_name", "slice_text"]

FEW_UNITS = 50  # effective units below which a sampling interval is rough
REST = "rest"  # of a slice: all other rows


@dataclass(frozen=True, slots=True, repr=False)
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
    cut_share : of a cluster metric of a slice, the share of its rows in clusters that have rows of other slices as well

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

    def __repr__(self) -> str:
        """The fields that say something, as they are given to the class."""
        told = []
        for each in fields(self):
            value = getattr(self, each.name)
            silent = value is None or value != value or value in _SILENT.get(each.name, ())
            if not silent or each.name in ("metric", "value"):
                told.append(f"{each.name}={value!r}")
        return f"Scalar({', '.join(told)})"

    @property
    def from_rest(self) -> bool:
        """Whether it is the difference of a slice from all other rows.

        Examples
        --------
        >>> one = Scalar("roc_auc", -0.1, of="s − s (rest)", baseline="s (rest)", slice={"country": "DE"})
        >>> one.from_rest
        True
        """
        base = self.baseline or ""
        rest = f" ({REST})"
        named = self.slice is not None and base.endswith(rest)
        return named and self.of == f"{base.removesuffix(rest)} − {base}"

    @property
    def ends(self) -> tuple[float, float]:
        """The ends that a picture shows: of the sampling interval where one was asked for, else of the certain one."""
        if self.ci_lower is not None and self.ci_upper is not None:
            return self.ci_lower, self.ci_upper
        return (self.lower, self.upper) if self.ci_level is None else (self.value, self.value)

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
            found["slice"] = {name: plain_slice_value(value) for name, value in self.slice.items()}
        return found


# Name and Arrow type of every column that results have in a table, in order; slicing columns follow.
COLUMNS: dict[str, str] = {"metric": "string", "of": "string"} | {
    each.name: {"str": "string", "float": "double", "int": "int64", "bool": "bool"}[str(each.type).partition(" ")[0]]
    for each in fields(Scalar)
    if each.name != "slice"
}
_SILENT: dict[str, tuple[Any, ...]] = {"exact": (True,), "rows": (0,), "positives": (0,)}  # left out of a repr


def _plain(value: float | str | None) -> float | str | None:
    """The value in JSON: a NaN is null, an infinity is text."""
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value


def slice_name(named: Mapping[str, Any] | None) -> str:
    """A slice as rules spell it; empty for all rows.

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


def _rule_text(column: str, value: Any) -> str:
    """A value as rules spell it: texts in single quotes where they would not end, but those between edges."""
    if "=" not in column and isinstance(value, str) and (set(value) & set(",={}") or value.strip(" '") != value):
        return "'{}'".format(value.replace("'", "''"))
    return slice_text(value)


def slice_text(value: Any) -> str:
    """A value of a slicing column in words: null without quotes, texts that read like it with them.

    Examples
    --------
    >>> slice_text(None), slice_text("null"), slice_text(7)
    ('null', "'null'", '7')
    """
    return "null" if value is None else repr(value) if value in ("null", "") else str(value)


def plain_slice_value(value: Any) -> Any:
    """The value of a slicing column in JSON: numbers that JSON does not have, decimals and binaries are text."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return value if value is None or isinstance(value, str | int) else str(value)
