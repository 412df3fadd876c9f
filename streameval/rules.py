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

The usual value is the median of the last 7 earlier nights that are complete and passed the same rule, or failed it at
least ten nights ago: a bad week does not become the norm, a lasting change does. An accepted failure begins a new norm.
With fewer than 3 such nights the rule is undecided. A null value fails. A value that is known only up to bounds is
judged at its worse end, and so is the usual value: a pass is certain.

==================  =================================================================================
``rows``            rows of the night
``positives``       positive rows, of a sample of labels the known ones; in per cent, their share of the
                    labelled rows, which a sample does not have
``nulls[column]``   null values of a label, id or class column, null or NaN values of a score; in per
                    cent, their share of the rows. A store with a filter knows those of ids and classes
                    only if its files have none
==================  =================================================================================

Drift needs no labels: distances of the scores of a night from those of its usual nights (`Store.drift`)::

    drift_ks[score] <= 0.05 @95%         fails if the lower end of the interval of the largest distance is above 0.05
    drift_w1[score] <= 0.02              also drift_psi[score], which has no interval

Slices are written in braces after the column. The store must keep them, or the evaluation must have computed them::

    roc_auc[score_lr]{country=DE} >= 0.9                   one slice; fails if it has no value
    roc_auc[score_lr]{country=*} >= 0.9                    every slice with a value; fails if one fails
    roc_auc{country=*,channel=web} drop <= 0.05            each slice is compared with its own usual value
    roc_auc{length=>=80} >= 0.9                            a slice between edges; also length=0,20,80=>=80
    roc_auc{name='a, {b}'} >= 0.9                          single quotes around a value that contains , = { or }
    roc_auc[v2]{*} - roc_auc[v1]{*} >= -0.01 proven @95%   of data: every slice that was computed, of any slicing

Endings judge the sampling interval at a level::

    roc_auc[v2] >= 0.97 @95%                               fails only if the whole interval is below 0.97
    roc_auc[v2] - roc_auc[v1] >= -0.002 proven @95%        fails unless the whole interval is at least −0.002
    roc_auc[v2] - roc_auc[v1] within ±0.002 @95%           fails unless both are shown to be equivalent
    roc_auc[v2] drop <= 0.01 @95%                          the usual value has an error as well
    roc_auc[v2]{country=*} >= 0.97 always @95%             may be read every night, over all slices together
    roc_auc[v2] drop <= 0.01 always @95% each              the same for this rule alone

If labels are of some rows alone, an interval says nothing of the others: the rule must admit it (`evaluate`)::

    roc_auc[v2] >= 0.97 of labelled proven @95%            fails unless that holds for rows like the labelled ones

Without an interval the rule is undecided. Over several slices of data, the intervals hold for all of them together: at
95 % and 10 slices, each is taken at 99.5 % (Bonferroni). A rule with ``within`` makes two one-sided tests, with the
interval at 90 %, and needs no ``proven``. Each rule is judged alone, by its own columns, whatever else is compared: ten
candidates with a rule each are ten chances to err.
An ``always`` rule errs in any 365 nights with at most 5 %, over all its slices; all such rules that are checked
together share these 5 %, but those that end in ``each``. It judges the means of the last 1, 7 and 28 judged nights, a
drop the night alone, and prints how large a fall it would have shown. A pass proves nothing. Recommend a bound where a
fall may last: a usual value forgets.

==================================  ==============================================================================
windows of an ``always`` bound      every night that the rule judged, failed ones too, since a failure was accepted
usual value                         the last 7 earlier nights that passed, were accepted, or failed at least ten nights
                                    ago, since a failure was accepted, that night included
floor of standard errors            the 28 nights before, whatever their outcome
true spread of nights (τ²)          the last 28 values, about their mean on each side of an accepted failure
bins of ``drift_psi``               those of the usual nights of the first judgement, or the first since a failure was
                                    accepted, so that the value does not move with the usual nights
==================================  ==============================================================================

A value has an interval: its bounds, or for a rule with a level its sampling interval, widened on both sides by the
distance of the bounds from the value. One end of the interval is compared with the bound of the rule, or its distance
from the usual value is. A rule without a level, or with ``proven``, uses the worse end; a rule with a level alone uses
the better end.
"""

from __future__ import annotations

import math
import operator
import re
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from statistics import median
from typing import TYPE_CHECKING, NoReturn

from streameval.errors import OptionError
from streameval.results import Judgement, Scalar, near_slice, slice_name, slice_text
from streameval.wording import digits, few, plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence


FACTS = ("rows", "positives", "nulls")  # facts of a night that need no states
DRIFTS = ("drift_ks", "drift_w1", "drift_psi")  # of a score against its usual nights, without labels
EVERY = (("*", "*"),)  # slices of any slicing
LIVE = ("age", "missing")  # facts of the store at the time of the check
_UNITS = {"m": 1 / 60, "h": 1.0, "d": 24.0}
_METRIC = r"(?:(?!>=|<=|==)[^\s\[\]{}<>])+"
_NUMBER = r"(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_QUOTED = r"'(?:[^']|'')*'"
_BRACES = re.compile(rf"\{{((?:=\s*{_QUOTED}(?=\s*[,}}])|[^{{}}])+)\}}|(?!\{{)")
_SLICE = re.compile(  # a column, optionally with edges, and a value that ends before the next column
    r"\s*([^,=]+(?:=[-+\d.eE, ]+(?=\s*=))?)\s*=\s*"
    rf"({_QUOTED}|>=[^,=]+|[^=]+?)\s*(?:,?\s*$|,(?=[^,=]+=))"
)
_PARTS = (  # parts of a rule in order: name, pattern, description for messages
    ("metric", re.compile(_METRIC), "the name of a metric, or rows, positives, nulls, age, missing"),
    ("of", re.compile(r"\[([^\[\]]+)\]|(?!\[)"), "a column in brackets"),
    ("slices", _BRACES, "slices in braces, such as {country=DE}, {country=*} or {*}"),
    (
        "other",
        re.compile(rf"[-−]\s*({_METRIC})|(?![-−])"),
        "the metric of another column, such as roc_auc[v2] - roc_auc[v1]",
    ),
    ("than", re.compile(r"\[([^\[\]]+)\]|(?!\[)"), "a column in brackets"),
    ("slices_than", _BRACES, "slices in braces, the same on both sides"),
    (
        "how",
        re.compile(r"(drop|rise|change)\b|(?=[<>=]|within\b)"),
        "drop, rise, change or a comparison (>=, >, <=, <, ==, within ±)",
    ),
    ("sign", re.compile(r">=|<=|==|>(?!>)|<(?!<)|within\s*(?:±|\+/-)"), "a comparison (>=, >, <=, <, ==, within ±)"),
    ("bound", re.compile(rf"[-+]?{_NUMBER}"), "a number"),
    ("unit", re.compile(r"[%mhd](?=[\s@]|$)|(?=[\s@]|$)"), "%, m, h, d or the end"),
    (
        "of_labelled",
        re.compile(r"(of\s+labelled)\b|(?=proven\b|always\b|@|or\b)|$"),
        "'of labelled', proven, always, a level such as @95%, 'or undecided' or the end",
    ),
    (
        "proven",
        re.compile(r"(proven\s+always|always\s+proven|proven|always)\b|(?=@|or\b)|$"),
        "proven, always, a level such as @95%, 'or undecided' or the end",
    ),
    ("level", re.compile(rf"@\s*({_NUMBER})\s*%|(?=or\b)|$"), "a level such as @95%, 'or undecided' or the end"),
    ("each", re.compile(r"(each)\b|(?=or\b)|$"), "each, 'or undecided' or the end"),
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
    sign, bound : the comparison, ``within`` for at most `bound` from 0; a bound on `age` is in hours
    share : whether the bound was given in per cent; `bound` is then a fraction
    lenient : whether an undecided rule passes
    than : for a difference, the column that is subtracted
    level : level of the sampling interval to judge, such as 0.95; None to judge the value
    slices : pairs (column, value) of the slices to judge, ``*`` for every value; `EVERY` for every slice of any
        slicing, empty for all rows
    proven : whether the whole interval must be on the right side; otherwise one end is enough
    of_labelled : whether the rule admits that labels are of some rows alone
    always : whether the level holds for a year of nights and all slices
    each : whether an `always` rule has its whole level; otherwise all of a file share it

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
    of_labelled: bool = False
    always: bool = False
    each: bool = False

    @classmethod
    def read(cls, text: str, name: str = "") -> Rule:
        """Parse a rule.

        Raises
        ------
        OptionError
            If the text is malformed; the message shows the position.
        """
        parts, places = _parse(text)
        unit, share, bound = parts["unit"], parts["unit"] == "%", float(parts["bound"])
        rule = cls(
            name or " ".join(text.split()),
            " ".join(text.split()),
            parts["metric"],
            parts["of"] or None,
            parts["how"],
            "within" if parts["sign"].startswith("within") else parts["sign"],
            bound / 100 if share else bound * _UNITS.get(unit, 1.0),
            share,
            bool(parts["lenient"]),
            parts["than"] or None,
            float(f"{float(parts['level']) / 100:.12g}") if parts["level"] else None,
            "proven" in parts["proven"],
            _slices(text, places["slices"], parts["slices"]),
            bool(parts["of_labelled"]),
            "always" in parts["proven"],
            bool(parts["each"]),
        )
        than = _slices(text, places["slices_than"], parts["slices_than"])
        if than != (rule.slices if parts["other"] else ()):
            _refuse(text, places["slices_than"], "both sides of a difference are of the same slices")
        for wrong, part, why in rule._refusals(unit, parts["other"]):
            if wrong:
                _refuse(text, places[part], why)
        return rule

    def _refusals(self, unit: str, other: str) -> list[tuple[bool, str, str]]:
        """Inconsistent parts: whether the rule has them, the part to point at, and what is wrong."""
        drift, drifts = self.metric in DRIFTS, "a drift is of a score in all rows, from its usual nights"
        metric, fact, example = self.metric, self.metric in (*FACTS, *LIVE), "such as roc_auc[v2] - roc_auc[v1]"
        unit_rule = "an age has a unit: m, h or d, such as 36h" if metric == "age" else "only an age has a unit of time"
        no_share = f"{metric} has no share; % belongs to drop, rise, change, nulls, positives"
        how, level, sliced, differs = bool(self.how), self.level is not None, bool(self.slices), bool(other)
        unnamed = "of" if self.of is None else "than"
        return [
            (how and self.sign not in ("<=", "<"), "sign", f"a {self.how} is bounded from above: <= or <"),
            (metric == "nulls" and self.of is None, "of", "nulls are of a column, such as nulls[label]"),
            (fact and metric != "nulls" and self.of is not None, "of", f"{metric} is of the night, not of a column"),
            (how and metric in LIVE, "how", f"{metric} has no usual value; compare it with a bound"),
            ((metric == "age") != (unit in _UNITS), "unit", unit_rule),
            (self.share and not how and metric not in ("positives", "nulls"), "unit", no_share),
            (
                differs and (fact or other != metric),
                "other",
                f"a difference is of one metric of two columns, {example}",
            ),
            (differs and None in (self.of, self.than), unnamed, f"a difference names both columns, {example}"),
            (differs and self.of == self.than, "than", f"a difference is of two columns, {example}"),
            (differs and how, "how", "a difference has no usual value; compare it with a bound"),
            (drift and how, "how", drifts),
            (drift and sliced, "slices", drifts),
            (drift and ">" in self.sign, "sign", "a drift is bounded from above: <= or <"),
            (drift and (self.always or self.proven), "proven", "the level of a drift is that of one night: @95%"),
            (metric == "drift_psi" and level, "level", "drift_psi has no sampling interval; leave out the level"),
            (drift and level and self.level != 0.95, "level", "the level of a drift is @95%"),
            (self.proven and self.always, "proven", "a pass every night is another error: leave out proven or always"),
            (self.proven and not level, "level", "proven needs a level, such as proven @95%"),
            (self.always and not level, "level", "always needs a level, such as always @95%"),
            (self.each and not self.always, "each", "each belongs to always: always @95% each"),
            (
                level and not 0.5 <= (self.level or 0) < 1,
                "level",
                "a level is at least 50% and below 100%, such as @95%",
            ),
            (level and fact, "level", f"{metric} has no sampling interval; leave out the level"),
            (
                self.sign == "within" and (fact or drift or self.always or not bool(self.bound > 0)),
                "sign",
                "within ± takes a metric or a difference and a bound above 0",
            ),
            (level and self.sign == "==", "sign", "an interval is held against a bound by >=, >, <= or <"),
            (sliced and fact, "slices", f"{metric} is of the night, not of a slice"),
        ]

    def judges(self, named: Mapping[str, object]) -> bool:
        """Whether the rule judges a slice; one without slices judges all rows, which are named by nothing.

        Examples
        --------
        >>> rule = Rule.read("roc_auc{country=DE,length=*} >= 0.9")
        >>> rule.judges({"length=0,20": "<0", "country": "DE"}), rule.judges({"length=0,20": "<0", "country": "FR"})
        (True, False)
        >>> Rule.read("roc_auc >= 0.9").judges({}), rule.judges({})
        (True, False)
        """
        if not self.slices:
            return not named
        own = self.values_of(named) or {}
        pairs = self.slices if self.slices != EVERY else ()
        return bool(own) and all(_is_value(text, own[column]) for column, text in pairs)

    def values_of(self, named: Mapping[str, object]) -> dict[str, object] | None:
        """The values of a slice by the columns that the rule names; None if the slice is by other columns.

        Examples
        --------
        >>> Rule.read("roc_auc{length=*} >= 0.9").values_of({"length=0,20": "<0"})
        {'length': '<0'}
        """
        if self.slices == EVERY:
            return dict(named)
        own = {c: name for c, _ in self.slices for name in named if c in (name, name.partition("=")[0])}  # or no edges
        matched = len(own) == len(self.slices) and {*own.values()} == {*named}
        return {column: named[name] for column, name in own.items()} if matched else None

    def check_basis(self, *, late: bool, sampled: bool = False) -> None:
        """Raise `OptionError` if an interval, or a share of positives, is judged that is not of all rows.

        Parameters
        ----------
        late : whether labels leave rows without a label
        sampled : whether they are a sample, from which metrics of all rows are estimated

        Examples
        --------
        >>> Rule.read("roc_auc[s] >= 0.97 of labelled @95%").check_basis(late=True)
        """
        if sampled and self.metric == "positives" and self.share and not self.how:
            raise OptionError(
                f"{self.text!r} judges the share of positives among sampled labels, which is not that of all rows: "
                "give a number of positives"
            )
        if late and not sampled and self.level is not None and not self.of_labelled:
            raise OptionError(
                f"{self.text!r} judges the interval of the labelled rows, which proves nothing about the others: write "
                "'of labelled' after the bound if that is meant"
            )

    @property
    def strict(self) -> bool:
        """Whether the worse end of an interval is judged."""
        return self.level is None or self.proven or self.sign == "within"

    @property
    def interval_level(self) -> float | None:
        """Level of the interval that is judged: two one-sided tests at 95 % are an interval at 90 %.

        Examples
        --------
        >>> Rule.read("roc_auc[b] - roc_auc[a] within ±0.002 @95%").interval_level
        0.9
        """
        if self.level is None or self.sign != "within":
            return self.level
        return float(f"{2 * self.level - 1:.12g}")

    @property
    def labelled(self) -> bool:
        """Whether the rule depends on labels, which may arrive late."""
        return self.metric not in ("rows", "nulls", *LIVE, *DRIFTS)

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


def _parse(text: str) -> tuple[dict[str, str], dict[str, int]]:
    """The parts of a rule by name, and the position of each in the text."""
    parts, at, places = dict[str, str](), 0, dict[str, int]()
    for part, pattern, expected in _PARTS:
        at += len(text[at:]) - len(text[at:].lstrip()) if part != "unit" else 0
        match = pattern.match(text, at)
        if match is None:
            before = "slices stand before the comparison, after the column" if text[at:].startswith("{") else ""
            _refuse(text, at, before or f"expected {expected}")
        places[part] = at
        parts[part] = (match[1] if pattern.groups else match[0]) or ""
        at = match.end()
    if text[at:].strip():
        _refuse(text, at, "expected the end")
    return parts, places


def _slices(text: str, at: int, listed: str) -> tuple[tuple[str, str], ...]:
    """Columns and values in braces; a value may hold a comma, such as ``[0, 20)``."""
    if listed.strip() == "*":
        return EVERY
    pairs: list[tuple[str, str]] = []
    place = 0
    while place < len(listed):
        pair = _SLICE.match(listed, place)
        if pair is None:
            _refuse(text, at, "a slice names columns and values, such as {country=DE,channel=*}")
        pairs.append((pair[1].strip(), pair[2]))
        place = pair.end()
    if len(dict(pairs)) < len(pairs):
        _refuse(text, at, "a slice names each column once")
    return tuple(pairs)


def _is_value(text: str, value: object) -> bool:
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
    raise OptionError(
        f"{text!r} is not a rule; {place}: {expected}; write 'roc_auc[score] >= 0.97' or 'aul[cluster] drop <= 0.01'"
    )


def named_rules(given: str | Iterable[str] | dict[str, str]) -> list[Rule]:
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
        rules = [Rule.read(text, name) for name, text in given.items()]
    else:
        rules = [Rule.read(text) for text in dict.fromkeys([given] if isinstance(given, str) else given)]
    if not rules:
        raise OptionError("name a rule, such as 'roc_auc[score] >= 0.97' (--rule, or --rules FILE.toml)")
    return rules


BASELINE = 7  # the usual value is the median of at most this number of nights
ENOUGH = 3  # least number of earlier nights
ESTIMATED = ("(an estimate)", "(the worse end of its interval)")  # endings of a reason if the value is not exact
SIGNS = {
    "within": lambda value, bound: abs(value) < bound,
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    ">": operator.gt,
    "<": operator.lt,
}


def judge(rule: Rule, result: Scalar, before: Sequence[Scalar] = ()) -> Judgement:
    """Judge a value.

    Parameters
    ----------
    rule : Rule
    result : Scalar
        The value, with its sampling interval at the level of the rule, if it has one.
    before : sequence of Scalar
        Values of the nights behind the usual value, at most `BASELINE`.

    Examples
    --------
    >>> from streameval.rules import Rule
    >>> usual = [Scalar.certain("m", value) for value in (0.5, 0.75, 0.75)]
    >>> verdict = judge(Rule.read("m drop <= 0.1"), Scalar.certain("m", 0.5), usual)
    >>> verdict.outcome, verdict.value, verdict.usual, verdict.reason
    ('failed', 0.5, 0.75, '0.25 below the usual 0.75 (3 nights)')
    """
    low, high = ends = bounds_of(result)
    if math.isnan(low) or math.isnan(high):
        return _judgement(rule, "failed", math.nan, f"{rule.metric} is null: {result.reason or 'undefined'}")
    if rule.level is not None:
        if result.ci_lower is None or result.ci_upper is None:
            return undecided(rule, result.value, 0, f"no interval: {result.ci_reason or 'none was computed'}")
        ends = result.ci_lower - (result.value - low), result.ci_upper + (high - result.value)
    if not rule.how:
        judged = ends[0] if (">" in rule.sign) == rule.strict else ends[1]
        if rule.sign == "within":
            judged = max(ends, key=abs)
        passed = SIGNS[rule.sign](judged, rule.bound) and (rule.sign != "==" or ends[0] == ends[1])
        value = judged if rule.level is None else result.value
        return _judgement(rule, "passed" if passed else "failed", value, _with_interval(rule, ends, result))
    usual = [ends for ends in map(bounds_of, before) if not math.isnan(ends[0])]
    if len(usual) < ENOUGH:
        worse = result.value if rule.level is not None else low if rule.how == "drop" else high
        why = f"{plural(len(usual), 'night')} to compare with, {ENOUGH} are needed"
        return undecided(rule, worse, len(usual), why)
    judgement = _judge_change(rule, ends, usual)
    return replace(judgement, reason=_with_interval(rule, ends, result, judgement.reason))


def judge_slices(rule: Rule, results: Sequence[Scalar], before: Sequence[Sequence[Scalar]] = ()) -> Judgement:
    """Judge each slice as `judge` does; the rule fails if one slice fails.

    Parameters
    ----------
    rule : Rule
    results : sequence of Scalar
        The metric in every slice of the slicing. If the rule judges several slices, those without a value are left out.
    before : sequence of sequences
        The same for each night behind the usual values.

    Examples
    --------
    >>> from streameval.rules import Rule
    >>> values = [Scalar("m", 0.5, slice={"c": "DE"}), Scalar("m", 0.9, slice={"c": "FR"})]
    >>> judge_slices(Rule.read("m{c=*} >= 0.8"), values).reason
    '1 of 2 slices: {c=DE} 0.5'
    >>> judge_slices(Rule.read("m{c=FRR} >= 0.8"), values).reason
    'm is null: there is no such slice; did you mean {c=FR}?'
    """
    matching = {slice_name(one.slice): one for one in results if rule.judges(one.slice or {})}
    defined = {name: one for name, one in matching.items() if one.value == one.value}
    if not defined:
        return judge_null(rule, results)
    earlier = [{slice_name(one.slice): one for one in night} for night in before]
    judgements = {
        name: judge(rule, one, [night[name] for night in earlier if name in night]) for name, one in defined.items()
    }
    if rule.level is None:
        return combine_slices(rule, judgements, len(matching))
    for name, one in defined.items():
        low, high, level = one.ci_lower, one.ci_upper, one.ci_level
        judgements[name] = replace(judgements[name], ci_lower=low, ci_upper=high, ci_level=level)
    worst = combine_slices(rule, judgements, len(matching))
    low, high, level = worst.ci_lower, worst.ci_upper, worst.ci_level
    if low is None or high is None or level is None or len(matching) == 1:
        return worst
    interval = f"[{digits(low)}, {digits(high)}] @{100 * level:.4g}%"
    return replace(
        worst, reason=f"{worst.reason}; {interval}, which holds for {plural(len(defined), 'slice')} together"
    )


def judge_null(rule: Rule, results: Sequence[Scalar]) -> Judgement:
    """The failure of a rule if none of the slices that it judges has a value; `results` are those of all slices."""
    why = next((one.reason for one in results if rule.judges(one.slice or {})), None)
    if why is None:
        why = f"there is no such slice{_meant(rule, results)}" if rule.slices else "the night has no value"
    return _judgement(rule, "failed", math.nan, f"{rule.metric} is null: {why}")


def combine_slices(rule: Rule, judgements: Mapping[str, Judgement], present: int) -> Judgement:
    """One judgement for all slices of a night: the worst of the worst outcome, and how many share it.

    The reason of an ``always`` rule has that of the worst slice as well.

    Parameters
    ----------
    rule : the rule
    judgements : that of each slice with a value, by name; at least one
    present : number of slices, with those without a value
    """
    badness = {name: _badness(rule, one) for name, one in judgements.items()}
    outcomes = {one.outcome for one in judgements.values()}
    outcome = next(word for word in ("failed", "undecided", "passed") if word in outcomes)
    names = [name for name, one in judgements.items() if one.outcome == outcome]
    worst = max(names, key=badness.__getitem__)
    if present == 1:
        return judgements[worst]
    if outcome == "passed":
        left = present - len(judgements)
        without = f"; {plural(left, 'slice')} without a value" if left else ""
        reason = f"the worst of {plural(len(judgements), 'slice')}: {worst}{without}"
    else:
        listed = [f"{name} {digits(judgements[name].value)}" for name in sorted(names, key=lambda name: -badness[name])]
        reason = f"{len(names)} of {plural(len(judgements), 'slice')}: {few(listed)}"
        reason = f"undecided: {reason}" if outcome == "undecided" else reason
    if rule.always:
        reason += f"; {worst}: {judgements[worst].reason.removeprefix('undecided: ')}"
    return replace(judgements[worst], reason=reason)


def _meant(rule: Rule, results: Sequence[Scalar]) -> str:
    """A question that suggests the nearest slice; empty if none is near."""
    named = {column: value for column, value in rule.slices if value != "*"}
    slices = filter(None, (rule.values_of(one.slice or {}) for one in results))
    near = near_slice(named, [{column: values[column] for column in named} for values in slices])
    return f"; did you mean {slice_name({**dict(rule.slices), **near})}?" if near else ""


def _badness(rule: Rule, judgement: Judgement) -> float:
    """A sort key: larger for values further on the wrong side."""
    value = judgement.value
    if rule.how:
        below = judgement.usual - value
        return abs(below) if rule.how == "change" else below if rule.how == "drop" else -below
    if rule.sign == "within":
        return abs(value)
    return -value if ">" in rule.sign else value if "<" in rule.sign else abs(value - rule.bound)


def difference(one: Scalar, other: Scalar) -> Scalar:
    """The difference of two values, with its bounds.

    Examples
    --------
    >>> less = difference(Scalar.certain("m", 0.75), Scalar.between("m", 0.5, 0.25, 0.625))
    >>> less.value, less.lower, less.upper
    (0.25, 0.125, 0.5)
    """
    (low, high), (other_low, other_high) = bounds_of(one), bounds_of(other)
    value = Scalar.between(one.metric, one.value - other.value, low - other_high, high - other_low)
    missing = next((side for side in (one, other) if math.isnan(side.value)), None)
    reason = None if missing is None else f"{missing.metric} of {missing.of}: {missing.reason or 'undefined'}"
    exact = one.exact and other.exact
    return replace(value, of=f"{one.of} − {other.of}", baseline=other.of, reason=reason, exact=exact)


def _judgement(
    rule: Rule, outcome: str, value: float, reason: str, usual: float = math.nan, nights: int = 0
) -> Judgement:
    return Judgement(rule.name, rule.text, outcome, value, reason, usual=usual, nights=nights)


def undecided(rule: Rule, value: float, nights: int, why: str) -> Judgement:
    """The judgement of a rule that cannot be judged; it passes if the rule ends in ``or undecided``."""
    return _judgement(rule, "passed" if rule.lenient else "undecided", value, f"undecided: {why}", nights=nights)


def bounds_of(result: Scalar) -> tuple[float, float]:
    """The bounds of a value; for an estimate without bounds, the value itself."""
    lower, upper = (result.value if math.isnan(end) else end for end in (result.lower, result.upper))
    return lower, upper


def _with_interval(rule: Rule, ends: tuple[float, float], result: Scalar, reason: str = "") -> str:
    """The reason: the interval and the comparison; without a level, the comparison and the kind of an inexact value."""
    if rule.level is None:
        exact = result.exact or result.lower == result.upper
        return f"{reason} {'' if exact else ESTIMATED[0 if math.isnan(result.lower) else 1]}".strip()
    interval = f"[{digits(ends[0])}, {digits(ends[1])}] @{(rule.interval_level or 0) * 100:g}%"
    unit = f"by {result.unit}" if result.unit else ""
    return ", ".join(filter(None, (f"{interval} {unit}".strip(), reason)))


def _judge_change(rule: Rule, ends: tuple[float, float], earlier: Sequence[tuple[float, float]]) -> Judgement:
    """Judge the distance from the usual value at its worse end."""
    moved, usual, worse = farthest(rule, ends, earlier, strict=True)
    distance = (moved / abs(usual) if usual else 0.0 if moved <= 0 else math.inf) if rule.share else moved
    outcome = "passed" if SIGNS[rule.sign](distance, rule.bound) else "failed"
    return _judgement(rule, outcome, worse, from_usual(worse, usual, len(earlier)), usual, len(earlier))


def farthest(
    rule: Rule, ends: tuple[float, float], earlier: Sequence[tuple[float, float]], *, strict: bool
) -> tuple[float, float, float]:
    """The distance from the usual value in the direction of a rule, that value, and the value of the night.

    Parameters
    ----------
    rule : Rule
    ends : bounds of the night's value
    earlier : those of the nights behind the usual value
    strict : whether bounds count at their worse ends, otherwise at their better ones
    """
    low, high = ends
    usual_low, usual_high = (median(ends[side] for ends in earlier) for side in (0, 1))
    down, up = ((usual_high, low), (usual_low, high)) if strict else ((usual_low, high), (usual_high, low))
    sides = [(down[0] - down[1], *down)] * (rule.how != "rise") + [(up[1] - up[0], *up)] * (rule.how != "drop")
    return max(sides, key=lambda side: side[0])


def from_usual(value: float, usual: float, nights: int) -> str:
    """How far a value lies from the usual one, in words.

    >>> from_usual(0.5, 0.75, 3)
    '0.25 below the usual 0.75 (3 nights)'
    """
    side = "below" if value < usual else "above"
    return f"{digits(abs(value - usual))} {side} the usual {digits(usual)} ({plural(nights, 'night')})"


def limits_of(rule: Rule) -> dict[str, Callable[[float], float]]:
    """The bounds of a rule by name, each a function of the usual value, for a picture of its values.

    Examples
    --------
    >>> [(name, limit(0.5)) for name, limit in limits_of(Rule.read("aul change <= 10%")).items()]
    [('lower bound', 0.45), ('upper bound', 0.55)]
    >>> limits_of(Rule.read("aul >= 0.4"))["bound"](0.8)
    0.4
    """

    def beyond(usual: float, sign: int) -> float:
        return usual + sign * rule.bound * (abs(usual) if rule.share else 1)

    if not rule.how:
        return {"bound": lambda _: rule.bound}
    ends = {"lower bound": lambda usual: beyond(usual, -1), "upper bound": lambda usual: beyond(usual, 1)}
    return ends if rule.how == "change" else {"bound": ends["lower bound" if rule.how == "drop" else "upper bound"]}
