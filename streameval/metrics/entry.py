"""A row of the catalogue of metrics."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class Entry:
    """A row of the catalogue.

    Attributes
    ----------
    name : the name in results; a capital letter stands for a value, such as the Q of ``agc@Q``
    family : what its input is, a key of `FAMILIES`
    subject : group of related metrics, such as ``ranking``; ``metrics=`` accepts it for all of them
    default : whether it is computed when no metric is named
    low, high : ends of its range
    better : ``higher``, ``lower``, or None where neither is better
    meaning : one line
    source : paper or definition
    metric : the metric; None if it depends on a value in the name
    made : constructs the metric from the values in the name; None if the name has none
    scale : scale of its sampling interval, a key of `streameval.metrics.scales.SCALES`
    thresholded : whether it reads the rows beyond a threshold that depends on the data; such metrics use fewer blocks
    beyond : which rows beyond its threshold determine its sampling error: ``rows``, ``positives`` or ``negatives``
    no_interval : why it has no sampling interval
    units : which units determine its sampling error, kinds of `streameval.metrics.units.Sizes.counts`
    rowwise : metric of its standard error where each row is a unit, without replicates
    """

    name: str
    family: str
    subject: str
    default: bool
    low: float
    high: float
    better: str | None
    meaning: str
    source: str
    metric: Any = None
    made: Callable[..., Any] | None = None
    scale: str = "logit"
    thresholded: bool = False
    beyond: str = ""
    no_interval: str = ""
    units: tuple[str, ...] = ("rows", "positives", "negatives")
    rowwise: Any = None

    def named(self, name: str) -> Any:
        """The metric of a name that this row stands for; None if it stands for none.

        Raises
        ------
        OptionError
            If a value in the name is out of its range.
        """
        found = None if self.made is None else _pattern(self.name).fullmatch(name)
        if self.made is None or found is None:
            return None
        try:
            values = [float(text) for text in found.groups()]
        except ValueError:
            return None
        return self.made(*values)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; an infinite end of the range is None."""
        facts = {name: getattr(self, name) for name in self.__slots__ if name not in ("metric", "made", "rowwise")}
        facts = {name: list(fact) if isinstance(fact, tuple) else fact for name, fact in facts.items()}
        return facts | {end: facts[end] if math.isfinite(facts[end]) else None for end in ("low", "high")}


@lru_cache(maxsize=1_000)
def _pattern(name: str) -> re.Pattern[str]:
    """The names that a row stands for, with a group for each value."""
    return re.compile("".join("([^,/@=]+)" if c.isupper() else re.escape(c) for c in name))
