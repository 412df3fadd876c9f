"""Clustering metrics of an evaluation: a name and a pure function of a summary.

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
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn

from streameval.errors import DataError, OptionError
from streameval.metrics.contingency.arithmetic import adjusted
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
from streameval.metrics.protocol import Metric
from streameval.results import Scalar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

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


class MetricName(NamedTuple):
    """Parts of a name.

    Parameters
    ----------
    name : str
        As given.
    measure : str
        A measure of a table, ``pairwise.`` and a measure of its pair table, or ``adjust_to_null``.
    variant : tuple of str
        The words between slashes.
    element : tuple of int
        The numbers after points.

    Examples
    --------
    >>> parsed = MetricName.of("pairwise/entropy_scores/geometric.2")
    >>> parsed.measure, parsed.variant, parsed.element, parsed.lengths
    ('pairwise.entropy_scores', ('geometric',), (2,), (3,))
    """

    name: str
    measure: str
    variant: tuple[str, ...]
    element: tuple[int, ...]

    @classmethod
    def of(cls, name: str) -> MetricName:
        """Split a name, whether or not the metric exists; the point in ``beta=0.5`` is a decimal point."""
        found = None if "beta=" in name else _ELEMENT.fullmatch(name)
        path, numbers = found.groups() if found else (name, "")
        measure, *variant = path.split("/")
        if measure == "pairwise" and variant:
            measure, variant = f"pairwise.{variant[0]}", variant[1:]
        return cls(name, measure, tuple(variant), tuple(map(int, numbers.split(".")[1:])))

    @property
    def known(self) -> bool:
        """Whether the measure exists; variant and element are not checked."""
        return self.measure == "adjust_to_null" or self.measure in MEASURES

    @property
    def lengths(self) -> tuple[int, ...]:
        """Shape of the value: empty for a number, else the length of the tuple, after 2 for an adjusted measure."""
        elements = self.found().elements
        shape = (len(elements),) if elements else ()
        return (2, *shape) if self.measure == "adjust_to_null" else shape

    def found(self) -> Measure[..., Any]:
        """The measure of the variant, with its function and the range of its values.

        Raises
        ------
        OptionError
            If the measure has no such variant.
        """
        if self.measure == "adjust_to_null":
            return self._adjustment()
        measure, options = MEASURES[self.measure], self.options()
        low, high = (-1.0, 1.0) if options.get("standardize") else (measure.low, measure.high)
        if not options.get("normalize", True):
            high = math.inf
        if options.get("model", "m1") != "m1":
            low = -math.inf
        function: Callable[..., Any] = partial(measure.function, **options) if options else measure.function
        return Measure(
            function,
            low,
            high,
            measure.better,
            measure.elements,
            of_pairs=measure.of_pairs,
            scale=measure.scale,
            no_interval=self._no_interval(measure, options),
        )

    def _no_interval(self, measure: Measure[..., Any], options: dict[str, Any]) -> str:
        """Why the variant has no sampling interval; empty if it has one."""
        if measure.no_interval:
            return measure.no_interval
        if measure.takes("model") and options.get("model", "m1") is not None:
            return NULL_MODEL
        return GROWS if measure.counts and not options.get("normalize", True) else ""

    def options(self) -> dict[str, Any]:
        """Arguments of the measure that the variant sets.

        Raises
        ------
        OptionError
            If the measure has no such variant, or two words set one option.

        Examples
        --------
        >>> MetricName.of("assignment_score/m3/raw").options()
        {'model': 'm3', 'normalize': False}
        """
        options: dict[str, Any] = {}
        for word in self.variant:
            beta = word.startswith("beta=")
            option, value = ("beta", word) if beta else _OPTION_WORDS.get(word, ("", None))
            if not option or not MEASURES[self.measure].takes(option):
                self._refuse(f"{self.measure.removeprefix('pairwise.')} has no variant {word!r}")
            if option in options:
                self._refuse(f"{word!r} is said twice, or another word contradicts it; leave one out")
            options[option] = self._beta(word.removeprefix("beta=")) if beta else value
        return options

    def check_element(self) -> None:
        """Refuse an element that does not exist, and a tuple without a named element."""
        element, lengths = self.element, self.lengths
        if len(element) == len(lengths) and all(i < length for i, length in zip(element, lengths, strict=True)):
            return
        path = self.name.removesuffix("".join(f".{i}" for i in element))
        first, last = path + ".0" * len(lengths), path + "".join(f".{length - 1}" for length in lengths)
        several = f"it has several values; name one of {first} to {last}"
        self._refuse(several if lengths else f"it is one number; name {path}")

    def _adjustment(self) -> Measure[..., Any]:
        if len(self.variant) != 2 or self.variant[1] not in MODELS:
            self._refuse(f"give a measure and one of {', '.join(MODELS)}, as in adjust_to_null/rand_index/m3")
        name, model = self.variant
        if name not in TABLE_MEASURES and name not in PAIR_MEASURES:
            known = ", ".join(dict.fromkeys((*TABLE_MEASURES, *PAIR_MEASURES)))
            self._refuse(f"{name!r} is not a measure; known are {known}")
        measure = measure_by_name(name)

        def function(facts: TableStatistics) -> Any:
            return adjusted(map(measure.function, (facts, null_statistics(facts, model), *ceilings(facts))))

        function.__doc__ = f"{name}, adjusted for chance: (x − null) / (ceiling − null).\n\n{measure.function.__doc__}"
        return Measure(
            function,
            -math.inf,
            math.inf,
            "higher" if measure.better else None,
            measure.elements,
            no_interval=NULL_MODEL,
        )

    def _beta(self, text: str) -> float:
        try:
            beta = float(text)
        except ValueError:
            beta = math.nan
        if not beta >= 0:
            self._refuse(f"beta is {text!r}; give a number of at least 0, as in pairwise.fscore/beta=0.5")
        return beta

    def _refuse(self, reason: str) -> NoReturn:
        raise OptionError(f"{self.name!r} is not a clustering metric: {reason}")


def variants(measure: str) -> list[str]:
    """All fully spelled variants; numeric options are not enumerated.

    Examples
    --------
    >>> variants("vi_distance")
    ['vi_distance/raw', 'vi_distance/normalized']
    """
    taken = [option for option in ("model", "normalize", "mean", "standardize") if MEASURES[measure].takes(option)]
    choices = product(*([word for word, (option, _) in _OPTION_WORDS.items() if option == name] for name in taken))
    return ["/".join([measure, *words]) for words in choices if words]


@dataclass(frozen=True)
class ClusteringMetric(Metric):
    """One number of a contingency table.

    Parameters
    ----------
    name : str
        As printed.
    function : callable
        From the statistics of a table to a number, or to (nested) tuples of numbers. If it reads the matching it must
        be monotone in it: `bounds` evaluates it only at the two ends of the matching's interval.
    element : tuple of int
        Index of the number in those tuples.
    needs_matching : bool
        Whether it needs the best matching of the cells; if so, set ``summary.matching`` to its certain interval first.
    assignment_cells : int, optional
        Largest component, in cells, whose matching is solved; None where no matching is needed.
    low, high : float
        Range of the values.
    better : {"higher", "lower", None}
        Which end is better; None where neither is.
    meaning, source : str
        One line each, for lists of metrics.
    scale : str
        Scale of its sampling interval, a key of `streameval.metrics.estimates.SCALES`.
    of_pairs : bool
        Whether it is a function of pair counts alone.
    no_interval : str
        Why it has no sampling interval.

    Examples
    --------
    >>> import numpy as np
    >>> from streameval.states.contingency.summary import summarize
    >>> table = summarize(np.array([0, 0, 1]), np.array([0, 1, 1]), np.array([3, 1, 4]))
    >>> kappa = clustering_metric("pairwise.kappas.0")
    >>> kappa.compute(table), kappa.better, kappa.high
    (0.46153846153846156, 'higher', 1)
    >>> score = clustering_metric("assignment_score/none/raw")
    >>> score.bounds(replace(table, matching=(6, 8)))
    (6.0, 8.0)
    """

    name: str
    function: Callable[[TableStatistics], Any]
    element: tuple[int, ...] = ()
    needs_matching: bool = False
    assignment_cells: int | None = None
    family: str = "classes"
    low: float = -math.inf
    high: float = math.inf
    better: Literal["higher", "lower"] | None = None
    meaning: str = ""
    source: str = ""
    scale: str = "plain"
    of_pairs: bool = False
    no_interval: str = ""

    @classmethod
    def of(cls, name: str, measure: Measure[..., Any], element: tuple[int, ...] = ()) -> ClusteringMetric:
        """The metric of a measure, or of one of its values."""
        meanings = measure.meanings if element else ()
        by_range = "logit" if (measure.low, measure.high) == (0, 1) else "log" if measure.low == 0 else "plain"
        return cls(
            name,
            measure.function,
            element,
            needs_matching="assignment_score" in name,
            low=measure.low,
            high=measure.high,
            better=measure.better,
            meaning=meanings[element[-1]] if meanings else measure.meaning,
            source=measure.source,
            scale=measure.scale or by_range,
            of_pairs=measure.of_pairs,
            no_interval=measure.no_interval,
        )

    def partial(self, part: Summary) -> tuple[float, float] | str:
        """Both ends of the value, or why there is none."""
        try:
            lower, upper = self.bounds(part)
        except DataError as error:  # a measure of whole counts, adjusted to a null model whose counts are fractions
            return str(error)
        if lower == lower and upper == upper:
            return lower, upper
        return "no rows" if not part.total else "not defined for this table"

    @property
    def options(self) -> Mapping[str, str]:
        """The option for its limit on cells, if it needs the best matching."""
        return {"assignment_cells": "assignment_cells"} if self.needs_matching else {}

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
        lower = self._value(_facts(summary))
        if not self.needs_matching or summary.matching is None or summary.matching[0] == summary.matching[1]:
            return lower, lower
        low, high = (self._value(_facts(replace(summary, matching=(m, m)))) for m in summary.matching)
        return min(low, high), max(low, high)

    def _value(self, facts: TableStatistics) -> float:
        value = self.function(facts)
        for i in self.element:
            value = value[i]
        return float(value)


@lru_cache(maxsize=8)
def _facts(summary: Summary) -> CountedStatistics:
    known = summary.matching
    return CountedStatistics(summary, solve=lambda: known[0]) if known is not None else CountedStatistics(summary)


def _defaults() -> Iterable[ClusteringMetric]:
    for name in (name for name, measure in TABLE_MEASURES.items() if measure.default):
        measure = MetricName.of(name).found()
        if measure.elements:
            yield from (ClusteringMetric.of(each, measure, (i,)) for i, each in enumerate(measure.elements))
        else:
            yield ClusteringMetric.of(name, measure)


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
            names = _expanded(pattern)
        chosen.update((name, clustering_metric(name)) for name in names)
    return tuple(chosen.values())


@lru_cache(maxsize=1)
def clustering_metric_names() -> tuple[str, ...]:
    """Every name that a glob can match: the defaults, then those computed on request."""
    others = (name for measure in _ORDER if measure not in _DEFAULTS for name in _expanded(measure))
    return (*_DEFAULTS, *others)


@lru_cache(maxsize=1)
def _variant_names() -> tuple[str, ...]:
    """Every variant that a glob can match."""
    return tuple(name for measure in _ORDER for variant in variants(measure) for name in _expanded(variant))


def _expanded(name: str) -> list[str]:
    """Names of the values of a measure, or the name itself if it is one number."""
    if name in _DEFAULTS:
        return [name]
    parsed = _parsed(name)
    elements = product(*map(range, parsed.lengths[len(parsed.element) :]))
    return [".".join([name, *map(str, element)]) for element in elements]


def names_measure(name: str) -> bool:
    """Whether a name begins with a measure of contingency tables; any variants or elements may follow.

    Examples
    --------
    >>> names_measure("pairwise.fscore/beta=x"), names_measure("roc_auc")
    (True, False)
    """
    return name in _DEFAULTS or MetricName.of(name).known


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
    parsed = _parsed(name)
    measure = parsed.found()
    parsed.check_element()
    return ClusteringMetric.of(name, measure, parsed.element)


def _parsed(name: str) -> MetricName:
    """The parts of a name; refused if there is no such measure."""
    parsed = MetricName.of(name)
    if not parsed.known:
        known = ", ".join(dict.fromkeys(name.split(".")[0] for name in clustering_metric_names()))
        raise OptionError(
            f"{name!r} is not a clustering metric; known are {known}, variants such as assignment_score/m3/raw"
        )
    return parsed
