"""Names of clustering metrics: a measure, its variant and an element of its value.

`streameval.metrics.contingency.clustering` lists the forms. A name is checked when it is read, before any data are
touched.
"""

from __future__ import annotations

import math
import re
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from streameval.errors import OptionError
from streameval.metrics.contingency.arithmetic import adjusted
from streameval.metrics.contingency.catalogue import MEASURES, PAIR_MEASURES, TABLE_MEASURES, measure_by_name
from streameval.metrics.contingency.measure import GROWS, NULL_MODEL, Measure
from streameval.metrics.contingency.null_models import MODELS, TableStatistics, ceilings, null_statistics

if TYPE_CHECKING:
    from collections.abc import Callable

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
        msg = f"{self.name!r} is not a clustering metric: {reason}"
        raise OptionError(msg)


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
