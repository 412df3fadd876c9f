"""Names of clustering metrics: a measure, its variant and an element of its value.

Their table is in `streameval.metrics.contingency.clustering`. A name is checked when it is read, so that whatever is
wrong with it is said before any data are touched.
"""

from __future__ import annotations

import math
import re
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

from streameval.errors import OptionError
from streameval.metrics.contingency.catalogue import PAIR_MEASURES, TABLE_MEASURES, adjusted, measure_by_name
from streameval.metrics.contingency.null_models import MODELS, CountedStatistics, diagonal, null_statistics
from streameval.metrics.contingency.twoway import TwoWay

if TYPE_CHECKING:
    from collections.abc import Callable

    from streameval.metrics.contingency.null_models import TableStatistics

__all__ = ["MetricName", "variants"]

_LENGTHS = {"entropy_scores": 3, "bc_metrics": 3, "muc_scores": 3, "mic_scores": 3, "kappas": 3, "pairwise_hcv": 3}
_OPTIONS: dict[str, dict[str, Any]] = {
    **{model: {"model": model} for model in MODELS},
    "none": {"model": None},
    "raw": {"normalize": False},
    "normalized": {"normalize": True},
    "harmonic": {"mean": "harmonic"},
    "geometric": {"mean": "geometric"},
    "plain": {"standardize": False},
    "standardized": {"standardize": True},
}
_MODELLED = {"assignment_score", "vi_similarity", "split_join_similarity"}
_NORMALIZED = {*_MODELLED, "vi_distance", "split_join_distance", "mirkin_match_coeff", "mirkin_mismatch_coeff"}
_TAKES = {
    "model": _MODELLED,
    "normalize": _NORMALIZED,
    "mean": {"entropy_scores", "mic_scores"},
    "standardize": {"diseq_coeff"},
    "beta": {"fscore"},
}
_ELEMENT = re.compile(r"(.*?)((?:\.(?:0|[1-9][0-9]{0,8}))*)", re.DOTALL)


class MetricName(NamedTuple):
    """Parts of a name.

    Parameters
    ----------
    name : str
        As it was given.
    measure : str
        Of a table, or with ``pairwise.`` before it of its pair table, or ``adjust_to_null``.
    variant : tuple of str
        What follows between slashes.
    element : tuple of int
        What follows after points.

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
        """Read a name, whether or not there is such a metric; the number of ``beta=0.5`` is no element."""
        found = None if "beta=" in name else _ELEMENT.fullmatch(name)
        path, numbers = found.groups() if found else (name, "")
        measure, *variant = path.split("/")
        if measure == "pairwise" and variant:
            measure, variant = f"pairwise.{variant[0]}", variant[1:]
        return cls(name, measure, tuple(variant), tuple(map(int, numbers.split(".")[1:])))

    @property
    def base(self) -> str:
        """The measure without ``pairwise.``."""
        return self.measure.removeprefix("pairwise.")

    @property
    def known(self) -> bool:
        """Whether there is such a measure, whatever its variants and elements."""
        if self.measure != self.base:
            return self.base in PAIR_MEASURES or self.base in TwoWay._fields
        return self.measure == "adjust_to_null" or self.measure in TABLE_MEASURES

    @property
    def lengths(self) -> tuple[int, ...]:
        """Numbers of values: none for a number, that of a tuple; of an adjusted measure both ceilings before it."""
        if self.measure == "adjust_to_null":
            return 2, *_lengths(self.variant[0])
        return _lengths(self.base)

    def function(self) -> Callable[[TableStatistics], Any]:
        """What computes a known measure from facts.

        Raises
        ------
        OptionError
            If the measure has no such variant.
        """
        if self.measure == "adjust_to_null":
            measure, model = self._adjustment()
            return partial(_adjusted_to_null, measure=measure, model=model)
        name, options = self.base, self.options()
        if name == self.measure:
            return partial(TABLE_MEASURES[name], **options)
        if name in TwoWay._fields:
            return lambda facts: getattr(facts.pairs, name)
        return lambda facts: PAIR_MEASURES[name](facts.pairs, **options)

    def options(self) -> dict[str, Any]:
        """Arguments of the measure that the variant stands for.

        Raises
        ------
        OptionError
            If the measure has no such variant, or it says one thing twice.

        Examples
        --------
        >>> MetricName.of("assignment_score/m3/raw").options()
        {'model': 'm3', 'normalize': False}
        """
        options: dict[str, Any] = {}
        for word in self.variant:
            beta = self.base == "fscore" and word.startswith("beta=")
            given = {"beta": self._beta(word.removeprefix("beta="))} if beta else _OPTIONS.get(word, {})
            if not given or any(self.base not in _TAKES[key] for key in given):
                raise _refused(self.name, f"{self.base} has no variant {word!r}")
            if given.keys() & options.keys():
                raise _refused(self.name, f"{word!r} is said twice, or another word contradicts it; leave one out")
            options.update(given)
        return options

    def check_element(self) -> None:
        """Refuse an element that is not there, and the lack of one where there are several."""
        element, lengths = self.element, self.lengths
        if len(element) == len(lengths) and all(i < length for i, length in zip(element, lengths, strict=True)):
            return
        path = self.name.removesuffix("".join(f".{i}" for i in element))
        first, last = path + ".0" * len(lengths), path + "".join(f".{length - 1}" for length in lengths)
        several = f"it has several values; name one of {first} to {last}"
        raise _refused(self.name, several if lengths else f"it is one number; name {path}")

    def _adjustment(self) -> tuple[str, str]:
        if len(self.variant) != 2 or self.variant[1] not in MODELS:
            models = ", ".join(MODELS)
            raise _refused(self.name, f"give a measure and one of {models}, as in adjust_to_null/rand_index/m3")
        measure, model = self.variant
        if measure not in TABLE_MEASURES and measure not in PAIR_MEASURES:
            known = ", ".join(dict.fromkeys((*TABLE_MEASURES, *PAIR_MEASURES)))
            raise _refused(self.name, f"{measure!r} is no measure; known are {known}")
        return measure, model

    def _beta(self, text: str) -> float:
        try:
            beta = float(text)
        except ValueError:
            beta = math.nan
        if not beta >= 0:
            raise _refused(self.name, f"beta is {text!r}; give a number of at least 0, as in pairwise.fscore/beta=0.5")
        return beta


def variants(measure: str) -> list[str]:
    """Names of a measure with every word said that it takes but numbers; none for a measure that takes no word.

    Examples
    --------
    >>> variants("vi_distance")
    ['vi_distance/raw', 'vi_distance/normalized']
    """
    base = measure.removeprefix("pairwise.")
    taken = [key for key, measures in _TAKES.items() if key != "beta" and base in measures]
    choices = product(*([word for word, given in _OPTIONS.items() if key in given] for key in taken))
    return ["/".join([measure, *words]) for words in choices if words]


def _refused(name: str, reason: str) -> OptionError:
    return OptionError(f"{name!r} is no clustering metric: {reason}")


def _lengths(measure: str) -> tuple[int, ...]:
    return (_LENGTHS[measure],) if measure in _LENGTHS else ()


def _adjusted_to_null(facts: CountedStatistics, measure: str, model: str) -> Any:
    tables: tuple[TableStatistics, ...] = (
        facts,
        null_statistics(facts, model),
        diagonal(facts.classes),
        diagonal(facts.clusters),
    )
    actual, null, by_rows, by_cols = (measure_by_name(table, measure) for table in tables)
    return adjusted(actual, null, (by_rows, by_cols))
