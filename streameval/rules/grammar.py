"""The grammar of rules.

A rule is a line of text::

    roc_auc[score_lr] >= 0.97            a bound: >=, >, <=, < or ==
    roc_auc[v2] - roc_auc[v1] >= 0       a bound on the difference of two columns
    aul[cluster_loose] drop <= 0.01      distance below the usual value; `rise` is above, `change` either way
    rows drop <= 50%                     the same in per cent of the usual value
    nulls[label] <= 5%                   in per cent of the night's rows
    age <= 36h                           hours since the newest night ended (UTC); also m, d
    missing == 0                         days without a night, up to the newest
    aul drop <= 0.01 or undecided        passes if there are fewer than 3 nights to compare with

The usual value is the median of the last 7 earlier nights that are complete and did not fail the same rule, so that a
bad week does not become the norm. With fewer than 3 such nights the rule is undecided. A null value fails. A value that
is known only up to bounds is judged at its worse end, and so is the usual value: a pass is certain.

==================  =================================================================================
``rows``            rows of the night
``positives``       positive rows; in per cent, their share of the labelled rows
``nulls[column]``   null values of a label, id or class column, null or NaN values of a score; in per
                    cent, their share of the rows. A store with a filter knows those of ids and classes
                    only if its files have none
==================  =================================================================================

Slices are written in braces after the column. The store must keep them, or the evaluation must have computed them::

    roc_auc[score_lr]{country=DE} >= 0.9                   one slice; fails if it has no value
    roc_auc[score_lr]{country=*} >= 0.9                    every slice with a value; fails if one fails
    roc_auc{country=*,channel=web} drop <= 0.05            each slice is compared with its own usual value
    roc_auc{length=>=80} >= 0.9                            a slice between edges; also length=0,20,80=>=80
    roc_auc{name='a, {b}'} >= 0.9                          single quotes around a value that contains , = { or }

Two endings judge the sampling interval at a level::

    roc_auc[v2] >= 0.97 @95%                               fails only if the whole interval is below 0.97
    roc_auc[v2] - roc_auc[v1] >= -0.002 proven @95%        fails unless the whole interval is at least −0.002
    roc_auc[v2] drop <= 0.01 @95%                          the usual value is taken as exact

Without an interval the rule is undecided. At 95 %, a rule errs in 2.5 % of the nights whose true value equals its
bound; in a month of 30 independent such nights it errs at least once with a probability of 53 %.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, NoReturn

from streameval.errors import OptionError
from streameval.results import slice_text
from streameval.wording import digits

if TYPE_CHECKING:
    from collections.abc import Mapping

FACTS = ("rows", "positives", "nulls")  # facts of a night that need no states
LIVE = ("age", "missing")  # facts of the store at the time of the check
_UNITS = {"m": 1 / 60, "h": 1.0, "d": 24.0}
_METRIC = r"(?:(?!>=|<=|==)[^\s\[\]{}<>])+"
_NUMBER = r"(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_QUOTED = r"'(?:[^']|'')*'"
_SLICE = re.compile(  # a column, optionally with edges, and a value that ends before the next column
    r"\s*([^,=]+(?:=[-+\d.eE, ]+(?=\s*=))?)\s*=\s*"
    rf"({_QUOTED}|>=[^,=]+|[^=]+?)\s*(?:,?\s*$|,(?=[^,=]+=))"
)
_PARTS = (  # parts of a rule in order: name, pattern, description for messages
    ("metric", re.compile(_METRIC), "the name of a metric, or rows, positives, nulls, age, missing"),
    ("of", re.compile(r"\[([^\[\]]+)\]|(?!\[)"), "a column in brackets"),
    (
        "slices",
        re.compile(rf"\{{((?:=\s*{_QUOTED}(?=\s*[,}}])|[^{{}}])+)\}}|(?!\{{)"),
        "slices in braces, such as {country=DE} or {country=*}",
    ),
    (
        "other",
        re.compile(rf"[-−]\s*({_METRIC})|(?![-−])"),
        "the metric of another column, such as roc_auc[v2] - roc_auc[v1]",
    ),
    ("than", re.compile(r"\[([^\[\]]+)\]|(?!\[)"), "a column in brackets"),
    ("how", re.compile(r"(drop|rise|change)\b|(?=[<>=])"), "drop, rise, change or a comparison (>=, >, <=, <, ==)"),
    ("sign", re.compile(r">=|<=|==|>(?!>)|<(?!<)"), "a comparison (>=, >, <=, <, ==)"),
    ("bound", re.compile(rf"[-+]?{_NUMBER}"), "a number"),
    ("unit", re.compile(r"[%mhd](?=[\s@]|$)|(?=[\s@]|$)"), "%, m, h, d or the end"),
    ("proven", re.compile(r"(proven)\b|(?=@|or\b)|$"), "proven, a level such as @95%, 'or undecided' or the end"),
    ("level", re.compile(rf"@\s*({_NUMBER})\s*%|(?=or\b)|$"), "a level such as @95%, 'or undecided' or the end"),
    ("lenient", re.compile(r"(or\s+undecided)|$"), "the end, or 'or undecided'"),
)


@dataclass(frozen=True)
class Rule:
    """A parsed rule.

    Attributes
    ----------
    name : name of the rule, by default its text
    text : the rule as written
    metric, of : metric or fact, and its column; `of` is None if the rule does not name it
    how : ``drop``, ``rise`` or ``change`` from the usual value; empty for the value itself
    sign, bound : the comparison; a bound on `age` is in hours
    share : whether the bound was given in per cent; `bound` is then a fraction
    lenient : whether an undecided rule passes
    than : for a difference, the column that is subtracted
    level : level of the sampling interval to judge, such as 0.95; None to judge the value
    slices : pairs (column, value) of the slices to judge, ``*`` for every value; empty for all rows
    proven : whether the whole interval must be on the right side; otherwise one end is enough

    Examples
    --------
    >>> rule = Rule.read("aul[cluster_loose] drop <= 5% or undecided")
    >>> rule.metric, rule.of, rule.how, rule.bound, rule.lenient
    ('aul', 'cluster_loose', 'drop', 0.05, True)
    >>> rule = Rule.read("roc_auc[v2] - roc_auc[v1] >= -0.002 proven @95%")
    >>> rule.of, rule.than, rule.proven, rule.level
    ('v2', 'v1', True, 0.95)
    """

    name: str
    text: str
    metric: str
    of: str | None
    how: str
    sign: str
    bound: float
    share: bool = False
    lenient: bool = False
    than: str | None = None
    level: float | None = None
    proven: bool = False
    slices: tuple[tuple[str, str], ...] = ()

    @classmethod
    def read(cls, text: str, name: str = "") -> Rule:
        """Parse a rule.

        Raises
        ------
        OptionError
            If the text is malformed; the message shows the position.
        """
        parts, places = _parsed(text)
        unit, share, bound = parts["unit"], parts["unit"] == "%", float(parts["bound"])
        rule = cls(
            name or " ".join(text.split()),
            " ".join(text.split()),
            parts["metric"],
            parts["of"] or None,
            parts["how"],
            parts["sign"],
            bound / 100 if share else bound * _UNITS.get(unit, 1.0),
            share,
            bool(parts["lenient"]),
            parts["than"] or None,
            float(f"{float(parts['level']) / 100:.12g}") if parts["level"] else None,
            bool(parts["proven"]),
            _slices(text, places["slices"], parts["slices"]),
        )
        rule._check(text, places, unit)
        rule._check_difference(text, places, parts["other"])
        rule._check_level(text, places)
        rule._check_slices(text, places)
        return rule

    def _check(self, text: str, places: Mapping[str, int], unit: str) -> None:
        """Refuse inconsistent parts."""
        if self.how and self.sign not in ("<=", "<"):
            _refuse(text, places["sign"], f"a {self.how} is bounded from above: <= or <")
        if self.metric == "nulls" and self.of is None:
            _refuse(text, places["of"], "nulls are of a column, such as nulls[label]")
        if self.metric in ("rows", "positives", *LIVE) and self.of is not None:
            _refuse(text, places["of"], f"{self.metric} is of the night, not of a column")
        if self.metric in LIVE and self.how:
            _refuse(text, places["how"], f"{self.metric} has no usual value; compare it with a bound")
        if (self.metric == "age") != (unit in _UNITS):
            known = (
                "an age has a unit: m, h or d, such as 36h"
                if self.metric == "age"
                else "only an age has a unit of time"
            )
            _refuse(text, places["unit"], known)
        if self.share and not self.how and self.metric not in ("positives", "nulls"):
            _refuse(
                text, places["unit"], f"{self.metric} has no share; % belongs to drop, rise, change, nulls, positives"
            )

    def _check_difference(self, text: str, places: Mapping[str, int], other: str) -> None:
        """Refuse differences other than that of one metric between two columns."""
        example = "such as roc_auc[v2] - roc_auc[v1]"
        if (other and self.metric in (*FACTS, *LIVE)) or (other and other != self.metric):
            _refuse(text, places["other"], f"a difference is of one metric of two columns, {example}")
        if other and (self.of is None or self.than is None):
            _refuse(text, places["of" if self.of is None else "than"], f"a difference names both columns, {example}")
        if other and self.of == self.than:
            _refuse(text, places["than"], f"a difference is of two columns, {example}")
        if other and self.how:
            _refuse(text, places["how"], "a difference has no usual value; compare it with a bound")

    def _check_level(self, text: str, places: Mapping[str, int]) -> None:
        """Refuse invalid levels, and levels of facts, which have no sampling interval."""
        if self.proven and self.level is None:
            _refuse(text, places["level"], "proven needs a level, such as proven @95%")
        if self.level is not None and not 0.5 <= self.level < 1:
            _refuse(text, places["level"], "a level is at least 50% and below 100%, such as @95%")
        if self.level is not None and self.metric in (*FACTS, *LIVE):
            _refuse(text, places["level"], f"{self.metric} has no sampling interval; leave out the level")
        if self.level is not None and self.sign == "==":
            _refuse(text, places["sign"], "an interval is held against a bound by >=, >, <= or <")

    def _check_slices(self, text: str, places: Mapping[str, int]) -> None:
        """Refuse slices of facts and of differences, and levels of slices."""
        if self.slices and self.metric in (*FACTS, *LIVE):
            _refuse(text, places["slices"], f"{self.metric} is of the night, not of a slice")
        if self.slices and self.than is not None:
            _refuse(text, places["slices"], "a difference of columns is of all rows")
        if self.slices and self.level is not None:
            _refuse(text, places["level"], "slices are judged by their values; leave out the level")

    def judges(self, named: Mapping[str, Any]) -> bool:
        """Whether the rule judges a slice.

        Examples
        --------
        >>> rule = Rule.read("roc_auc{country=DE,length=*} >= 0.9")
        >>> rule.judges({"length=0,20": "<0", "country": "DE"}), rule.judges({"length=0,20": "<0", "country": "FR"})
        (True, False)
        """
        own = self.values_of(named)
        return own is not None and all(_is_value(text, own[column]) for column, text in self.slices)

    def values_of(self, named: Mapping[str, Any]) -> dict[str, Any] | None:
        """The values of a slice by the columns that the rule names; None if the slice is by other columns.

        Examples
        --------
        >>> Rule.read("roc_auc{length=*} >= 0.9").values_of({"length=0,20": "<0"})
        {'length': '<0'}
        """
        own = {column: name for column, _ in self.slices for name in named if column in _spellings(name)}
        matched = len(own) == len(self.slices) and {*own.values()} == {*named}
        return {column: named[name] for column, name in own.items()} if matched else None

    @property
    def labelled(self) -> bool:
        """Whether the rule depends on labels, which may arrive late."""
        return self.metric not in ("rows", "nulls", *LIVE)

    def told(self, value: float) -> str:
        """Format a judged value in the unit of the bound.

        Examples
        --------
        >>> Rule.read("nulls[label] <= 5%").told(0.0123), Rule.read("age <= 36h").told(49.5)
        ('1.23 %', '49.5 h')
        >>> Rule.read("rows drop <= 5%").told(541)
        '541'
        """
        if self.share and not self.how:
            return f"{digits(value * 100)} %"
        return f"{digits(value)} h" if self.metric == "age" else digits(value)

    def limit(self) -> str:
        """The comparison and the bound, for messages."""
        number = (
            f"{self.bound * 100:g}%"
            if self.share
            else f"{self.bound:g}h"
            if self.metric == "age"
            else f"{self.bound:g}"
        )
        return f"{self.how} {self.sign} {number}".strip()


def _parsed(text: str) -> tuple[dict[str, str], dict[str, int]]:
    """The parts of a rule by name, and the position of each in the text."""
    parts, at, places = dict[str, str](), 0, dict[str, int]()
    for part, pattern, expected in _PARTS:
        at += len(text[at:]) - len(text[at:].lstrip()) if part != "unit" else 0
        found = pattern.match(text, at)
        if found is None:
            _refuse(text, at, f"expected {expected}")
        places[part] = at
        parts[part] = (found[1] if pattern.groups else found[0]) or ""
        at = found.end()
    if text[at:].strip():
        _refuse(text, at, "expected the end")
    return parts, places


def _slices(text: str, at: int, listed: str) -> tuple[tuple[str, str], ...]:
    """Columns and values in braces; a value may hold a comma, such as ``[0, 20)``."""
    found: list[tuple[str, str]] = []
    place = 0
    while place < len(listed):
        pair = _SLICE.match(listed, place)
        if pair is None:
            _refuse(text, at, "a slice names columns and values, such as {country=DE,channel=*}")
        found.append((pair[1].strip(), pair[2]))
        place = pair.end()
    if len(dict(found)) < len(found):
        _refuse(text, at, "a slice names each column once")
    return tuple(found)


def _spellings(name: str) -> tuple[str, str]:
    """The names that a rule may use for a slicing column: in full, and without edges."""
    return name, name.partition("=")[0]


def _is_value(text: str, value: Any) -> bool:
    """Whether a rule's text matches the value of a slice; a quoted text matches strings only.

    Numbers match in any spelling, and booleans also as SQL and JSON write them.

    Examples
    --------
    >>> _is_value("0", 0.0), _is_value("0.0", 0), _is_value("true", True), _is_value("1", True), _is_value("1", "1.0")
    (True, True, True, False, False)
    """
    if text in ("*", slice_text(value)):
        return True
    if isinstance(value, str):
        return bool(re.fullmatch(_QUOTED, text)) and value == text[1:-1].replace("''", "'")
    if isinstance(value, bool):
        return text.lower() == str(value).lower()
    if "_" in text or not isinstance(value, int | float | Decimal):
        return False
    try:
        return bool((float if isinstance(value, float) else Decimal)(text) == value)
    except (ValueError, InvalidOperation):
        return False


def _refuse(text: str, at: int, expected: str) -> NoReturn:
    place = f"at {text[at:].strip()!r} (column {at + 1})" if text[at:].strip() else "at its end"
    msg = f"{text!r} is not a rule; {place}: {expected}; write 'roc_auc[score] >= 0.97' or 'aul[cluster] drop <= 0.01'"
    raise OptionError(msg)


def named_rules(given: Any) -> list[Rule]:
    """Parse a text, several texts, or a mapping from names to texts.

    Raises
    ------
    OptionError
        If there is no rule, or one is malformed.

    Examples
    --------
    >>> [rule.name for rule in named_rules({"floor": "roc_auc >= 0.9"}) + named_rules("aul > 0.1")]
    ['floor', 'aul > 0.1']
    """
    if isinstance(given, dict):
        found = [Rule.read(text, name) for name, text in given.items()]
    else:
        found = [Rule.read(text) for text in dict.fromkeys([given] if isinstance(given, str) else given)]
    if not found:
        msg = "name a rule, such as 'roc_auc[score] >= 0.97' (--rule, or --rules FILE.toml)"
        raise OptionError(msg)
    return found
