"""Clustering metrics of an evaluation: a name and a measure of a summary.

`CLUSTERING_METRICS` are computed when a class column is given and no metric is picked. `clustering_metric` reads every
other name:

=====================================  ==============================================================================
``assignment_score``                   any method of `ContingencyTable`, at its defaults
``assignment_score/m3/raw``            null model (``none``, ``m1``, ``m2r``, ``m2c``, ``m3``), then ``raw`` or
                                       ``normalized``
``vi_distance/raw``                    not normalised
``entropy_scores/geometric.2``         another mean; element 2 of the tuple
``pairwise.kappas.0``                  a method of the pair table; element 0 of the tuple
``adjust_to_null/rand_index/m3.1``     adjusted to a null model; the second ceiling
=====================================  ==============================================================================

`clustering_metrics` expands the name of a measure with several values, and globs such as ``pairwise.*``.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import lru_cache, partial
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, cast

from streameval.errors import DataError, OptionError
from streameval.metrics.contingency.arithmetic import Value, adjust
from streameval.metrics.contingency.catalogue import (
    GROWS,
    MEASURES,
    NULL_MODEL,
    PAIR_MEASURES,
    TABLE_MEASURES,
    Measure,
    measure_by_name,
)
from streameval.metrics.contingency.measures import (
    MODELS,
    CountedStatistics,
    TableStatistics,
    ceilings,
    null_statistics,
)
from streameval.metrics.protocol import Entry, Metric
from streameval.results import Scalar

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from streameval.states.contingency.summary import Summary


_OPTION_WORDS: dict[str, tuple[str, Any]] = {
    **{model: ("model", model) for model in MODELS},
    "none": ("model", None),
    "raw": ("normalize", False),
    "normalized": ("normalize", True),
    "harmonic": ("mean", "harmonic"),
    "geometric": ("mean", "geometric"),
    "plain": ("standardize", False),
    "standardized": ("standardize", True),
}
_ELEMENT = re.compile(r"(.*?)((?:\.(?:0|[1-9][0-9]{0,8}))*)", re.DOTALL)
_ADJUSTED = "adjust_to_null"


@dataclass(frozen=True)
class ClusteringMetric(Metric[Scalar, "Summary", "tuple[float, float] | str", "object"]):
    """One number of a contingency table.

    Parameters
    ----------
    name : str
        As printed.
    measure : Measure
        Its function gives a number, or (nested) tuples of numbers. If it reads the matching it must be monotone in it:
        `bounds` evaluates it only at the two ends of the matching's interval.
    element : tuple of int
        Index of the number in those tuples.
    assignment_cells : int, optional
        Largest component, in cells, whose matching is solved; None where no matching is needed.

    Examples
    --------
    >>> import numpy as np
    >>> from streameval.states.contingency.summary import summarize
    >>> table = summarize(np.array([0, 0, 1]), np.array([0, 1, 1]), np.array([3, 1, 4]))
    >>> kappa = clustering_metric("pairwise.kappas.0")
    >>> kappa.compute(table), kappa.measure.better, kappa.measure.high
    (0.46153846153846156, 'higher', 1)
    >>> score = clustering_metric("assignment_score/none/raw")
    >>> score.bounds(replace(table, matching=(6, 8)))
    (6.0, 8.0)
    """

    name: str
    measure: Measure[..., Value]
    element: tuple[int, ...] = ()
    assignment_cells: int | None = None
    family: str = "classes"

    @property
    def needs_matching(self) -> bool:
        """Whether it needs the best matching of the cells: ``summary.matching``, its certain interval."""
        return "assignment_score" in self.name

    def partial(self, part: Summary) -> tuple[float, float] | str:
        """Both ends of the value, or why there is none."""
        try:
            lower, upper = self.bounds(part)
        except DataError as error:  # a measure of whole counts, adjusted to a null model whose counts are fractions
            return str(error)
        if lower == lower and upper == upper:
            return lower, upper
        return "no rows" if not part.total else "not defined for this table"

    def combine(self, partials: Sequence[tuple[float, float] | str], state: object) -> Scalar:
        """The value: a table has one summary, so there is one partial."""
        (ends,) = partials
        if isinstance(ends, str):
            return Scalar.undefined(self.name, ends)
        return Scalar.between(self.name, ends[0], *ends)

    def compute(self, summary: Summary) -> float:
        """The value, or its lower end where only an interval of the matching is known."""
        return self.bounds(summary)[0]

    def bounds(self, summary: Summary) -> tuple[float, float]:
        """Certain interval of the value; its ends are equal unless only an interval of the matching is known."""
        ends = summary.matching if self.needs_matching else None
        if ends is None or ends[0] == ends[1]:
            value = self._value(summary)
            return value, value
        low, high = (self._value(replace(summary, matching=(end, end))) for end in ends)
        return min(low, high), max(low, high)

    def _value(self, summary: Summary) -> float:
        value = self.measure.function(_facts(summary))
        for i in self.element:
            value = cast("tuple[Value, ...]", value)[i]
        return float(cast("float", value))


@lru_cache(maxsize=8)
def _facts(summary: Summary) -> CountedStatistics:
    return CountedStatistics(summary)


class _Name(NamedTuple):
    """Parts of a name: a measure, ``pairwise.`` and one, or ``adjust_to_null``; words between slashes; numbers."""

    name: str
    measure: str
    words: tuple[str, ...]
    element: tuple[int, ...]

    @classmethod
    def of(cls, name: str) -> _Name:
        """Split a name, whether or not the metric exists; the point in ``beta=0.5`` is a decimal point."""
        parts = None if "beta=" in name else _ELEMENT.fullmatch(name)
        path, numbers = parts.groups() if parts else (name, "")
        measure, *words = path.split("/")
        if measure == "pairwise" and words:
            measure, words = f"pairwise.{words[0]}", words[1:]
        return cls(name, measure, tuple(words), tuple(map(int, numbers.split(".")[1:])))

    @property
    def known(self) -> bool:
        """Whether the measure exists; words and element are not checked."""
        return self.measure == _ADJUSTED or self.measure in MEASURES

    def lengths(self, variant: Measure[..., Value]) -> tuple[int, ...]:
        """Shape of the value: empty for a number, else the length of the tuple, after 2 for an adjusted measure."""
        return (2,) * (self.measure == _ADJUSTED) + (len(variant.elements),) * bool(variant.elements)

    def variant(self) -> Measure[..., Value]:
        """The measure as the words say, with its function and the range of its values.

        Raises
        ------
        OptionError
            If the measure has no such variant, or two words set one option.
        """
        if self.measure == _ADJUSTED:
            return self._adjustment()
        measure, options = MEASURES[self.measure], self._options()
        low, high = (-1.0, 1.0) if options.get("standardize") else (measure.low, measure.high)
        if not options.get("normalize", True):
            high = math.inf
        if options.get("model", "m1") != "m1":
            low = -math.inf
        no_interval = measure.no_interval
        if not no_interval and measure.takes("model") and options.get("model", "m1") is not None:
            no_interval = NULL_MODEL
        elif not no_interval and measure.counts and not options.get("normalize", True):
            no_interval = GROWS
        if not options and no_interval == measure.no_interval:
            return measure
        function = partial(measure.function, **options) if options else measure.function
        return replace(measure, function=function, low=low, high=high, no_interval=no_interval)

    def _options(self) -> dict[str, Any]:
        """Arguments of the measure that the words set."""
        options: dict[str, Any] = {}
        for word in self.words:
            beta = word.startswith("beta=")
            option, value = ("beta", word) if beta else _OPTION_WORDS.get(word, ("", None))
            if not option or not MEASURES[self.measure].takes(option):
                self.refuse(f"{self.measure.removeprefix('pairwise.')} has no variant {word!r}")
            if option in options:
                self.refuse(f"{word!r} is said twice, or another word contradicts it; leave one out")
            options[option] = self._beta(word.removeprefix("beta=")) if beta else value
        return options

    def _beta(self, text: str) -> float:
        try:
            beta = float(text)
        except ValueError:
            beta = math.nan
        if not beta >= 0:
            self.refuse(f"beta is {text!r}; give a number of at least 0, as in pairwise.fscore/beta=0.5")
        return beta

    def _adjustment(self) -> Measure[..., Value]:
        if len(self.words) != 2 or self.words[1] not in MODELS:
            self.refuse(f"give a measure and one of {', '.join(MODELS)}, as in adjust_to_null/rand_index/m3")
        name, model = self.words
        if name not in TABLE_MEASURES and name not in PAIR_MEASURES:
            known = ", ".join(dict.fromkeys((*TABLE_MEASURES, *PAIR_MEASURES)))
            self.refuse(f"{name!r} is not a measure; known are {known}")
        measure = measure_by_name(name)

        def function(facts: TableStatistics) -> Value:
            return adjust(map(measure.function, (facts, null_statistics(facts, model), *ceilings(facts))))

        function.__doc__ = f"{name}, adjusted for chance: (x − null) / (ceiling − null).\n\n{measure.function.__doc__}"
        return Measure(
            function, -math.inf, math.inf, "higher" if measure.better else None, measure.elements,
            no_interval=NULL_MODEL,
        )  # fmt: skip

    def check_element(self, lengths: Sequence[int]) -> None:
        """Refuse an element that does not exist, and a tuple without a named element."""
        if len(self.element) == len(lengths) and all(map(int.__lt__, self.element, lengths)):
            return
        path = self.name.removesuffix("".join(f".{i}" for i in self.element))
        first, last = path + ".0" * len(lengths), path + "".join(f".{length - 1}" for length in lengths)
        several = f"it has several values; name one of {first} to {last}"
        self.refuse(several if lengths else f"it is one number; name {path}")

    def refuse(self, reason: str) -> NoReturn:
        """Raise `OptionError`."""
        raise OptionError(f"{self.name!r} is not a clustering metric: {reason}")


def _defaults() -> Iterable[ClusteringMetric]:
    for name in (name for name, measure in TABLE_MEASURES.items() if measure.default):
        measure = _Name.of(name).variant()
        for i, element in enumerate(measure.elements):
            yield ClusteringMetric(element, measure, (i,))
        if not measure.elements:
            yield ClusteringMetric(name, measure)


CLUSTERING_METRICS: tuple[ClusteringMetric, ...] = tuple(_defaults())
_DEFAULTS = {metric.name: metric for metric in CLUSTERING_METRICS}
_ORDER = tuple(dict.fromkeys((*sorted(name for name, m in TABLE_MEASURES.items() if not m.model), *MEASURES)))


def clustering_metrics(patterns: Iterable[str]) -> tuple[ClusteringMetric, ...]:
    """Metrics with these names; a measure of several values gives one metric for each.

    Globs match names. A glob with a slash matches fully spelled variants, such as ``assignment_score/*/raw``.

    Examples
    --------
    >>> [m.name for m in clustering_metrics(["bcubed_*", "pairwise.kapp*", "vi_distance/raw"])][2:5]
    ['bcubed_fscore', 'pairwise.kappa', 'pairwise.kappas.0']
    """
    chosen: dict[str, ClusteringMetric] = {}
    for pattern in patterns:
        if any(c in pattern for c in "*?["):
            known = _variant_names() if "/" in pattern else clustering_metric_names()
            names = [name for name in known if fnmatchcase(name, pattern)]
        else:
            names = _expand_names(pattern)
        chosen.update((name, clustering_metric(name)) for name in names)
    return tuple(chosen.values())


@lru_cache(maxsize=1)
def clustering_metric_names() -> tuple[str, ...]:
    """Every name that a glob can match: the defaults, then those computed on request."""
    others = (name for measure in _ORDER if measure not in _DEFAULTS for name in _expand_names(measure))
    return (*_DEFAULTS, *others)


@lru_cache(maxsize=1)
def _variant_names() -> tuple[str, ...]:
    """Every fully spelled variant that a glob can match; numeric options are not enumerated."""
    spelled = []
    for measure in _ORDER:
        taken = [option for option in ("model", "normalize", "mean", "standardize") if MEASURES[measure].takes(option)]
        choices = product(*([word for word, (option, _) in _OPTION_WORDS.items() if option == name] for name in taken))
        spelled += ["/".join([measure, *words]) for words in choices if words]
    return tuple(name for variant in spelled for name in _expand_names(variant))


def _expand_names(name: str) -> list[str]:
    """Names of the values of a measure, or the name itself if it is one number."""
    if name in _DEFAULTS:
        return [name]
    parts = _parts(name)
    elements = product(*map(range, parts.lengths(parts.variant())[len(parts.element) :]))
    return [".".join([name, *map(str, element)]) for element in elements]


def names_measure(name: str) -> bool:
    """Whether a name begins with a measure of contingency tables; any variants or elements may follow.

    Examples
    --------
    >>> names_measure("pairwise.fscore/beta=x"), names_measure("roc_auc")
    (True, False)
    """
    return name in _DEFAULTS or _Name.of(name).known


def clustering_metric(name: str) -> ClusteringMetric:
    """The metric of that name; see the module's table.

    Raises
    ------
    OptionError
        If there is no such measure, variant or element, or if the measure has several values and none is named.

    Examples
    --------
    >>> clustering_metric("assignment_score/m3/raw").needs_matching
    True
    >>> clustering_metric("ari")
    Traceback (most recent call last):
    streameval.errors.OptionError: 'ari' is not a clustering metric; ...
    >>> clustering_metric("pairwise.kappas.3")
    Traceback (most recent call last):
    streameval.errors.OptionError: ...: it has several values; name one of pairwise.kappas.0 to pairwise.kappas.2
    """
    if name in _DEFAULTS:
        return _DEFAULTS[name]
    parts = _parts(name)
    measure = parts.variant()
    parts.check_element(parts.lengths(measure))
    return ClusteringMetric(name, measure, parts.element)


def _parts(name: str) -> _Name:
    """The parts of a name; refused if there is no such measure."""
    parts = _Name.of(name)
    if not parts.known:
        known = ", ".join(dict.fromkeys(name.split(".")[0] for name in clustering_metric_names()))
        raise OptionError(
            f"{name!r} is not a clustering metric; known are {known}, variants such as assignment_score/m3/raw"
        )
    return parts


def clustering_row(metric: ClusteringMetric) -> Entry:
    """The row of a metric in the catalogue."""
    name, measure = metric.name, metric.measure
    by_range = "logit" if (measure.low, measure.high) == (0, 1) else "log" if measure.low == 0 else "plain"
    meanings = measure.meanings if metric.element else ()
    return Entry(
        name, metric.family, "pairwise" if name.startswith("pairwise.") else "clustering", name in _DEFAULTS,
        measure.low, measure.high, measure.better, meanings[metric.element[-1]] if meanings else measure.meaning,
        measure.source, metric, scale=measure.scale or by_range, no_interval=measure.no_interval,
        units=("pairs",) if measure.of_pairs else ("rows",),
        options={"assignment_cells": "assignment_cells"} if metric.needs_matching else {},
    )  # fmt: skip
