"""Comparisons over the same units: of two evaluations, and of slices, as if only their rows had been evaluated.

The block of a unit depends on its id alone, so a unit with rows in several slices lies in the same block in each of
them. A difference between a slice and all other rows, its *rest*, therefore accounts for units that both have.

Slices are compared with their rests by their number of rows, never by their values: a slice selected for a bad value
would look bad by chance. The rest is evaluated as if it were the whole data; clusters have only the rows of the rest.

Some metrics depend on the number of rows even for a random slice: metrics of clusters, if the slice cuts clusters;
metrics of clusters against classes; metrics of the top k points. Their differences have no interval, p-value or
verdict, and the reason is given.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from streameval.errors import OptionError
from streameval.evaluation import intervals
from streameval.evaluation.request import LEVEL, Resampling
from streameval.evaluation.result import Evaluation
from streameval.evaluation.slices import SlicedStates, usable
from streameval.kinds import of_column
from streameval.metrics.catalogue import entry_of
from streameval.options import NEEDS, verb_options
from streameval.results import REST, Scalar
from streameval.wording import few

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from streameval.evaluation.intervals import Estimated
    from streameval.metrics.estimates import Estimate
    from streameval.metrics.protocol import Metric
    from streameval.states.grouped.keys import By


_MEASURED = ("weight", "pos_label", "mean_over", "mean_weight", "cluster_scope")  # options that determine a quantity
_LIMITS = ("assignment_cells",)  # options of metrics that determine only how closely they are bounded
_UNLABELLED = ("classes", "sketch")  # families of metrics that read no labels


def compare(a: Evaluation, b: Evaluation) -> tuple[Scalar, ...]:
    """The difference b − a of every metric of two evaluations, paired over the same units.

    The evaluations may be of two nights, stores or filters. Metrics and columns that only one of them has are left out.

    Parameters
    ----------
    a, b : Evaluation
        Evaluations with sampling intervals over the same unit; `a` is the baseline.

    Returns
    -------
    tuple of Scalar
        With ``of="column (b) − column (a)"``, `stderr`, `ci_lower`, `ci_upper`, `verdict`, and `p_value` adjusted for
        all differences (Holm). The level is that of `b`.

    Raises
    ------
    OptionError
        If `a` or `b` is not an evaluation or has no sampling intervals, or they have different units, different
        versions of the unit hash, or no metric in common, or their metrics measure something else: with other
        weights, another positive label, groups, or another value of an option of the metric.

    Examples
    --------
    >>> import numpy as np, pyarrow as pa
    >>> from streameval import compare, evaluate
    >>> label, noise = np.arange(4000) % 2, np.random.default_rng(0).normal(size=4000)
    >>> night = pa.table({"label": label, "score": label + noise, "unit": np.arange(4000)})
    >>> one, two = (evaluate(night.slice(start, 2000), score="score", unit="unit") for start in (0, 2000))
    >>> found = compare(one, two)[0]
    >>> found.metric, found.of, found.verdict
    ('roc_auc', 'score (b) − score (a)', 'not shown')
    """
    return tuple(intervals.compared(_pairs(a, b, ("a", "b")), b.ci_level or LEVEL))


def with_comparison(a: Evaluation, b: Evaluation, names: tuple[str, str]) -> tuple[Scalar, ...]:
    """The results of `b`, and the differences b − a; p-values are adjusted for these and those of `b` together."""
    paired = {(one.paired.scalar.metric, one.paired.scalar.of): one.paired for one in b.estimates}
    own = []
    for one in b.results:
        if one.baseline is not None:
            other = str(one.of).removesuffix(f" − {one.baseline}")
            difference = paired[one.metric, other].minus(paired[one.metric, one.baseline])
            own.append((difference, intervals.better_end(one.metric)))
    adjusted = iter(intervals.compared([*own, *_pairs(a, b, names)], b.ci_level or LEVEL))
    return (*(one if one.baseline is None else next(adjusted) for one in b.results), *adjusted)


def _pairs(a: Evaluation, b: Evaluation, names: tuple[str, str]) -> list[tuple[Estimate, str | None]]:
    """The differences of every metric, each with its better end."""
    sides = [_estimates(side, name) for side, name in zip((a, b), names, strict=True)]
    if a.unit_hash != b.unit_hash:
        both = " and ".join(f"{name} with unit hash {e.unit_hash}" for name, e in zip(names, (a, b), strict=True))
        raise OptionError(
            f"cannot compare {both}: their blocks hold other units; evaluate both with one version of streameval"
        )
    common = [key for key in sides[1] if key in sides[0]]
    if not common:
        have = " and ".join(few([f"{metric} of {of}" for metric, of in side]) for side in sides)
        raise OptionError(f"there is nothing to compare: the evaluations have {have}")
    for key in common:
        _refuse_other_quantities([_quantity(side, *key) for side in (a, b)], names, key)
    pairs = [of_one_unit(sides[0][key], sides[1][key], names) for key in common]
    return [(minus_named(new, names[1], old, names[0]), intervals.better_end(new.scalar.metric)) for old, new in pairs]


def _quantity(side: Evaluation, metric: str, of: str | None) -> dict[str, object]:
    """The options that determine what a metric of a column measures, with their values."""
    entry, values = entry_of(metric), {}
    own = {} if entry is None or entry.metric is None else entry.options  # a name with a value has no others
    unread = _LIMITS if entry is None or entry.family not in _UNLABELLED else (*_LIMITS, "pos_label")
    for option in (verb_options("evaluate")[name] for name in (*_MEASURED, *own) if name not in unread):
        source = NEEDS.get(option.needs, ("",))[0]
        if source not in ("score", "cluster") or of in side.options.get(source, ()):
            values[option.name] = of_column(option.plain(side.options.get(option.name, option.default)), of or "")
    return values


def _refuse_other_quantities(
    sides: Sequence[Mapping[str, object]], names: tuple[str, str], key: tuple[str, str | None]
) -> None:
    """Raise `OptionError` if two evaluations measure different things by one metric of a column."""
    for name in sides[0]:
        values = [side.get(name) for side in sides]
        if values[0] != values[1]:
            spelling = verb_options("evaluate")[name].spelling
            both = " and ".join(
                f"{side} without {name}" if value is None else f"{side} with {name}={value!r}"
                for side, value in zip(names, values, strict=True)
            )
            raise OptionError(
                f"cannot compare {both} ({key[0]} of {key[1]}): evaluate both with the same {name} ({spelling})", name
            )


def _estimates(side: object, name: str) -> dict[tuple[str, str | None], Estimated]:
    """The results of an evaluation with their replicates, by metric and column."""
    if not isinstance(side, Evaluation):
        raise OptionError(f"{name} is of type {type(side).__name__}, not an evaluation: give what evaluate returns")
    if not side.estimates:
        raise OptionError(
            f"evaluation {name} has no sampling intervals; evaluate both with ci=0.95 and the same unit (--unit)"
        )
    return {(one.own.scalar.metric, one.own.scalar.of): one for one in side.estimates}


def of_one_unit(old: Estimated, new: Estimated, names: tuple[str, str]) -> tuple[Estimate, Estimate]:
    """The estimates to compare: `paired` if both have replicates there, otherwise `own`.

    Raises
    ------
    OptionError
        If the evaluations have different units.
    """
    pairs = (old.paired, new.paired), (old.own, new.own)
    pair = next((pair for pair in pairs if all(side.replicates.size for side in pair)), pairs[0])
    units = [(side.crossed[-1] if side.crossed else side).sizes.unit for side in pair]
    if units[0] != units[1] and all(side.replicates.size for side in pair):
        both = " and ".join(f"{name} over units of {unit}" for name, unit in zip(names, units, strict=True))
        raise OptionError(f"cannot compare {both} ({new.own.scalar.metric}): evaluate both with the same unit (--unit)")
    return pair


def minus_named(new: Estimate, side: str, old: Estimate, other: str) -> Estimate:
    """The difference of two estimates of one column, each named by its column and side; a side may be empty."""
    named = [
        replace(estimate, scalar=replace(estimate.scalar, of=f"{estimate.scalar.of} ({name})")) if name else estimate
        for estimate, name in ((new, side), (old, other))
    ]
    return named[0].minus(named[1], on_scale=True)


_MOST = 100  # slices compared per slicing
_RESTS = 8  # of them whose rests are resampled together


def rest_differences(
    sliced: SlicedStates, key: By, found: Sequence[Sequence[Estimated]], resampling: Resampling
) -> list[tuple[Estimate, str | None]]:
    """The differences of every metric between each of the 100 largest slices and its rest, with its better end.

    Parameters
    ----------
    sliced : the states of the slices, including those of blocks
    key : the slicing
    found : the results of every slice with their replicates, largest slices first
    resampling : the intervals and comparisons to compute
    """
    slices = list(found[:_MOST])
    differences: list[tuple[Estimate, str | None]] = []
    metrics = [(w.family.name, metric) for w in sliced.requests for metric in w.metrics]
    for mine, rest in zip(slices, _rests(sliced, key, slices, resampling), strict=True):
        for (family, metric), new, old in zip(metrics, mine, rest, strict=True):
            other, one = of_one_unit(old, new, (REST, "slice"))
            one = replace(one, reason=_size_bias(family, one.scalar, metric) or one.reason)
            differences.append((minus_named(one, "", other, REST), intervals.better_end(one.scalar.metric)))
    return differences


def _size_bias(family: str, value: Scalar, metric: Metric) -> str:
    """The reason why a slice may differ from other rows merely because of its size; empty if there is none."""
    if family == "classes":  # such values do not converge as classes are added
        return "values against classes depend on how many classes and clusters there are, fewer in a slice"
    if value.cut_share:
        return "the slice cuts clusters (cut_share), which alone changes their sizes"
    shrinks = metric.shrunk(0.5) != metric  # it reads the top k points
    return "its points are another share of a slice than of all other rows: ask for a share" if shrinks else ""


def _rests(
    sliced: SlicedStates, key: By, slices: Sequence[Sequence[Estimated]], resampling: Resampling
) -> Iterator[list[Estimated]]:
    """For each slice, the results of its rest with their replicates."""
    engine = sliced.engine
    groups = [tuple((values[0].own.scalar.slice or {}).values()) for values in slices]
    grouped = [(w, sliced.grouped(w, key)) for w in sliced.requests]
    split = intervals.slice_blocks(sliced.requests, sliced.states, resampling, key)
    left = {spec: each.each_without(groups) for spec, each in split.items()}
    for start in range(0, len(groups), _RESTS):
        several, values, known = [], [], []
        for group in groups[start : start + _RESTS]:
            blocks = {spec: next(counts) for spec, counts in left.items()}
            rest = [(w, state.without(group, budget=engine.budget)) for w, state in grouped]
            sources = intervals.replicated(engine, rest, blocks, resampling)
            results, certain = intervals.finalize_states(engine, sources, {}, resampling)
            found = iter(results)
            several.append(sources)
            values.append([one for w, state in rest for one in usable(w, state, list(islice(found, len(w.metrics))))])
            known.append(certain)
        yield from (rest for rest, _ in intervals.estimate_results(engine, several, values, resampling, known))


_CHUNK = 64  # slices whose states are extracted together


def compare_slices(
    sliced: SlicedStates, results: Sequence[Scalar], resampling: Resampling
) -> tuple[list[Scalar], list[Estimated]]:
    """Compute the intervals and differences of slices.

    Parameters
    ----------
    sliced : the states of the slices, including those of blocks
    results : the values, by slicing and slice, in the order of the requests
    resampling : the intervals and comparisons to compute

    Returns
    -------
    list of Scalar
        For each slicing, slice by slice, the values and then the differences between columns; last, the differences
        between each slice and all other rows. Their p-values are adjusted for those of all slicings together (Holm).
    list of Estimated
        The values with their replicates.
    """
    collected: list[Scalar | None] = []  # None in place of a difference: all are compared together
    estimates: list[Estimated] = []
    pairs: list[tuple[Estimate, str | None]] = []
    for key, by_slice in estimate_slices(sliced, results, resampling):
        for own in by_slice:
            between = intervals.baseline_differences(own, sliced.requests, resampling)
            collected += [
                *(estimate.own.scalar_with(resampling.level or 0) for estimate in own),
                *[None] * len(between),
            ]
            pairs += between
            estimates += own
        if resampling.rest:
            between = rest_differences(sliced, key, by_slice, resampling)
            collected += [None] * len(between)
            pairs += between
    adjusted = iter(intervals.compared(pairs, resampling.level or LEVEL))
    return [next(adjusted) if one is None else one for one in collected], estimates


def estimate_slices(
    sliced: SlicedStates, results: Sequence[Scalar], resampling: Resampling
) -> Iterator[tuple[By, list[list[Estimated]]]]:
    """For each slicing, the results of each slice with their replicates; arguments as for `compare_slices`."""
    rows, count = iter(results), sum(len(w.metrics) for w in sliced.requests)
    by_key: dict[tuple[str, ...], list[list[Scalar]]] = {key.columns: [] for key in sliced.slicing.keys}
    while count and (one := list(islice(rows, count))):
        by_key[tuple(one[0].slice or ())].append(one)
    for key in sliced.slicing.keys:
        yield key, list(_of_slices(sliced, key, by_key[key.columns], resampling))


def _of_slices(
    sliced: SlicedStates, key: By, slices: Sequence[Sequence[Scalar]], resampling: Resampling
) -> Iterator[list[Estimated]]:
    """The results of each slice of a slicing with their replicates."""
    engine = sliced.engine
    split = intervals.slice_blocks(sliced.requests, sliced.states, resampling, key)
    for start in range(0, len(slices), _CHUNK):
        some = slices[start : start + _CHUNK]
        groups = [tuple((values[0].slice or {}).values()) for values in some]
        states = [(w, sliced.grouped(w, key).several(groups, engine.budget)) for w in sliced.requests]
        sources = []
        for i, group in enumerate(groups):
            blocks = {spec: each.only(group) for spec, each in split.items()}
            sources.append(intervals.replicated(engine, [(w, each[i]) for w, each in states], blocks, resampling))
        yield from (own for own, _ in intervals.estimate_results(engine, sources, some, resampling))
