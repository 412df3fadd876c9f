"""`Scalar`: a value with its bounds, sampling interval and counts."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from streameval.wording import text_of_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping


FEW_UNITS = 50  # effective units below which a sampling interval is rough
REST = "rest"  # all rows outside a slice


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
    effective_units : effective number of units, the smallest of those of all rows, positives and negatives
    blocks : number of blocks that have rows
    baseline : for a difference, the column that is subtracted
    p_value : for a difference, the two-sided p-value, adjusted for all differences of the table (Holm)
    verdict : for a difference: ``better``, ``worse`` or ``not shown``; with a margin also ``equivalent``
    slice : the values of the slicing columns; None for all rows
    mean_over : the column of groups, if the value is a mean over groups
    groups, groups_left_out, rows_left_out : groups with a value, groups without one, and the rows of the latter
    cut_share : for a cluster metric of a slice, the share of its rows in clusters that also have rows of other slices
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
        told = []
        for each in fields(self):
            value = getattr(self, each.name)
            silent = value is None or value != value or value in _SILENT.get(each.name, ())
            if not silent or each.name in ("metric", "value"):
                told.append(f"{each.name}={value!r}")
        return f"Scalar({', '.join(told)})"

    @property
    def from_rest(self) -> bool:
        """Whether this is the difference between a slice and all other rows.

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
        """The ends to draw: those of the sampling interval if one was requested, otherwise the bounds."""
        if self.ci_lower is not None and self.ci_upper is not None:
            return self.ci_lower, self.ci_upper
        return (self.lower, self.upper) if self.ci_level is None else (self.value, self.value)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; NaN becomes None.

        Examples
        --------
        >>> Scalar.undefined("roc_auc", "one class only").to_dict()["value"] is None
        True
        """
        values = {name: getattr(self, name) for name in COLUMNS}
        found: dict[str, Any] = {
            name: _plain(value) for name, value in values.items() if value is not None or name == "of"
        }
        if self.group_deciles is not None:
            found["group_deciles"] = list(self.group_deciles)
        if self.slice is not None:
            found["slice"] = {name: plain_slice_value(value) for name, value in self.slice.items()}
        return found


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


def slice_name(named: Mapping[str, Any] | None) -> str:
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


def _rule_text(column: str, value: Any) -> str:
    """A value in the syntax of rules: a text that would be ambiguous is quoted, unless it is an interval of edges."""
    if "=" not in column and isinstance(value, str) and (set(value) & set(",={}") or value.strip(" '") != value):
        return "'{}'".format(value.replace("'", "''"))
    return slice_text(value)


def slice_text(value: Any) -> str:
    """A value of a slicing column as text; null is unquoted, and texts that could be mistaken for it are quoted.

    Examples
    --------
    >>> slice_text(None), slice_text("null"), slice_text(7)
    ('null', "'null'", '7')
    """
    return "null" if value is None else repr(value) if value in ("null", "") else str(value)


def plain_slice_value(value: Any) -> Any:
    """The value of a slicing column for JSON; infinities, NaN, decimals, dates and binaries become text."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes):
        return text_of_bytes(value)
    return value if value is None or isinstance(value, str | int) else str(value)


@dataclass(frozen=True)
class Source:
    """Where results come from, without credentials.

    Attributes
    ----------
    data : paths and URIs without credentials, and the types of objects in memory
    files : number of files that were read; 0 if there are none
    command : the shell command that repeats the run; empty if there is none
    nights : number of nights of a store
    """

    data: tuple[str, ...] = ()
    files: int = 0
    command: str = ""
    nights: int = 0
