"""Judge an evaluation by rules: a gate on data, for example before a launch."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from streameval.errors import OptionError
from streameval.metrics.selection import meant_by
from streameval.results import Judgement, Scalar, slice_name
from streameval.rules import DRIFTS, EVERY, FACTS, LIVE, Rule, difference, judge, judge_slices, named_rules
from streameval.scan.derived import slicing
from streameval.wording import canonical, few, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from streameval.evaluation.intervals import Estimated
    from streameval.evaluation.request import Request
    from streameval.metrics.estimates import Estimate

    Rules = str | Iterable[str] | dict[str, str]
    Counts = tuple[int, int | None]


def rules_of_data(given: Rules) -> list[Rule]:
    """Rules that can be judged on data alone, without other nights.

    Raises
    ------
    OptionError
        If a rule is malformed, or refers to nights.

    Examples
    --------
    >>> rules_of_data("aul drop <= 0.01")
    Traceback (most recent call last):
    ...
    streameval.errors.OptionError: 'aul drop <= 0.01' compares nights: judge those of a store (streameval check)
    """
    rules = named_rules(given)
    for rule in rules:
        if rule.how or rule.always or rule.metric in (*LIVE, *DRIFTS, "nulls"):
            compares = rule.how or rule.always or rule.metric in DRIFTS
            what = "compares nights" if compares else f"speaks of {rule.metric}, which nights have"
            raise OptionError(f"{rule.text!r} {what}: judge those of a store (streameval check)")
    return rules


def implied(rules: Sequence[Rule], options: Mapping[str, Any]) -> dict[str, object]:
    """Options that rules need and that are not given: an interval level, and baselines for differences.

    Examples
    --------
    >>> implied(rules_of_data("roc_auc[b] - roc_auc[a] >= 0 proven @90%"), {"score": ["a", "b"]})
    {'ci': 0.9, 'baseline': ['a']}
    """
    levels = [rule.level for rule in rules if rule.level is not None]
    more: dict[str, Any] = {"ci": max(levels)} if levels and not options.get("ci") else {}
    given = list(options.get("by") or ())
    slicings = [dict.fromkeys(slicing(text)) for text in given]
    lacking = [r for r in rules if r.slices and r.slices != EVERY and not any(map(r.values_of, slicings))]
    if by := [",".join(column for column, _ in rule.slices) for rule in lacking]:
        more["by"] = list(dict.fromkeys([*given, *by]))
    if bases := [rule.than for rule in rules if rule.than is not None and rule.level is not None]:
        more["baseline"] = list(dict.fromkeys([*options.get("baseline", ()), *bases]))
    elif any(rule.than is not None for rule in rules):
        more["common_rows"] = True
    return more


def check_computed(rules: Sequence[Rule], request: Request) -> None:
    """Raise `OptionError`, before data are read, if a rule judges a metric that the request does not compute."""
    by_family = {"score": request.scores, "sample": request.scores, "sketch": request.sketches}
    by_family |= dict.fromkeys(("cluster", "classes"), request.clusters)
    computed = {metric.name: columns for name, columns in by_family.items() for metric in request.selection.of(name)}
    for rule in rules:
        rule.check_basis(late=request.late is not None)
        if rule.slices == EVERY and not request.slicing.keys:
            raise OptionError(f"{rule.text!r} judges every slice: name the slicing column (--by)", "by")
        if rule.metric in FACTS:
            continue
        names = [name for name in (rule.metric, canonical(rule.metric)) if name in computed]
        if not names:
            near = meant_by(rule.metric) or nearest(rule.metric, computed)
            said = near if near and " " in near else repr(near)
            remedy = f"did you mean {said}?" if near else f"there are {few(list(computed))}"
            raise OptionError(
                f"{rule.text!r}: no {rule.metric} is computed; {remedy} (--metric names those to compute)"
            )
        columns = computed[names[0]]
        for of in (rule.of,) if rule.than is None else (rule.of, rule.than):
            if of is None and len(columns) > 1:
                raise OptionError(f"{rule.text!r}: {rule.metric} is of {', '.join(columns)}; say which in brackets")
            if of is not None and of not in columns:
                raise OptionError(
                    f"{rule.text!r}: no {rule.metric} of {of!r} is computed; it is of {', '.join(columns)}"
                )


def judged(
    given: Rules,
    counts: Counts,
    result: Callable[..., Scalar],
    estimate: Callable[..., Estimate],
    results: Sequence[Scalar] = (),
    estimates: Sequence[Estimated] = (),
) -> Iterator[Judgement]:
    """Judge an evaluation by rules.

    Parameters
    ----------
    given : rules, see `named_rules`
    counts : rows and positives of the evaluation
    result : returns the result of a metric and column
    estimate : returns the same result with its replicates; called with ``paired=True`` for a difference
    results : all results, including those of slices
    estimates : the results of slices with their replicates
    """
    for rule in rules_of_data(given):
        if rule.slices:
            yield judge_slices(rule, _of_slices(rule, results, estimates))
            continue
        value = _value(rule, counts, result, estimate)
        ends = (None, None) if rule.level is None else (value.ci_lower, value.ci_upper)
        yield replace(judge(rule, value), ci_lower=ends[0], ci_upper=ends[1], ci_level=rule.interval_level)


def _of_slices(rule: Rule, results: Sequence[Scalar], estimates: Sequence[Estimated]) -> list[Scalar]:
    """What a rule judges in every slice of its slicing; intervals hold for all judged slices together.

    Raises
    ------
    OptionError
        If the rows were not sliced this way, several columns have the metric, or there are no intervals.
    """
    sliced = [r for r in results if r.slice and rule.values_of(r.slice)]
    if not sliced:
        names = ",".join(column for column, _ in rule.slices if column != "*")
        raise OptionError(f"{rule.text!r}: there are no slices{f' by {names}' if names else ''}; name them (--by)")
    named = [r for r in sliced if r.metric in (rule.metric, canonical(rule.metric)) and r.baseline is None]
    own = _of_column(rule, named, rule.of)
    for one in own:
        rule.check_basis(late=one.basis is not None)
    certain = own
    if rule.than is not None:
        pairs = zip(own, _of_column(rule, named, rule.than), strict=True)
        certain = [replace(difference(one, other), slice=one.slice) for one, other in pairs]
    if rule.interval_level is None:
        return certain
    number = sum(rule.judges(one.slice or {}) and one.value == one.value for one in certain)
    level = 1 - (1 - rule.interval_level) / max(number, 1)
    replicates = {(e.own.scalar.metric, e.own.scalar.of, slice_name(e.own.scalar.slice)): e for e in estimates}
    if not replicates:
        raise OptionError(f"{rule.text!r}: no sampling intervals were asked for; evaluate with ci=0.95 (--ci)")
    found = []
    for one, value in zip(own, certain, strict=True):
        new, old = (replicates.get((one.metric, of, slice_name(one.slice))) for of in (one.of, rule.than))
        if new is None or one.value != one.value:
            found.append(value)
        else:
            found.append(_sampled(value, new.own if old is None else new.paired, old and old.paired, level))
    return found


def _of_column(rule: Rule, named: Sequence[Scalar], column: str | None) -> list[Scalar]:
    """The results of slices of one column, which is the only one if None."""
    own = [r for r in named if column in (None, r.of)]
    if len(of := list(dict.fromkeys(r.of for r in own))) != 1:
        there = f"it is of {', '.join(map(str, of))}; say which in brackets" if of else "it was not computed"
        raise OptionError(f"{rule.text!r}: {rule.metric} of slices: {there}")
    return own


def _value(rule: Rule, counts: Counts, result: Callable[..., Scalar], estimate: Callable[..., Estimate]) -> Scalar:
    """The value that a rule judges, with its interval at the level of the rule."""
    if rule.metric in FACTS:
        count = counts[0] if rule.metric == "rows" else counts[1]
        if count is None:
            return Scalar.undefined(rule.metric, "no label was read, or labels are a sample")
        return Scalar.certain(rule.metric, count / counts[0] if rule.share else count)
    one = result(rule.metric, rule.of)
    rule.check_basis(late=one.basis is not None)
    certain = one if rule.than is None else difference(one, result(rule.metric, rule.than))
    if rule.interval_level is None:
        return certain
    if rule.than is None:
        return _sampled(certain, estimate(rule.metric, one.of), None, rule.interval_level)
    new, old = (estimate(rule.metric, of, paired=True) for of in (rule.of, rule.than))
    return _sampled(certain, new, old, rule.interval_level)


def _sampled(certain: Scalar, new: Estimate, old: Estimate | None, level: float) -> Scalar:
    """A value, or a difference with its certain bounds, with its interval at a level."""
    if old is None:
        return new.scalar_with(level)
    sampled = new.minus(old).scalar_with(level)
    return replace(sampled, lower=certain.lower, upper=certain.upper, exact=certain.exact)
