"""The metrics that a request selects from the catalogue, with their options."""

from __future__ import annotations

from dataclasses import dataclass, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from streameval.errors import OptionError
from streameval.metrics.catalogue import CATALOGUE, FAMILIES, clustering_rows, entry_of, glob_of
from streameval.metrics.contingency.assignment import ASSIGNMENT_CELLS
from streameval.metrics.contingency.clustering import (
    CLUSTERING_METRICS,
    clustering_metric_names,
    clustering_metrics,
    names_measure,
)
from streameval.metrics.scores.gain import truncated
from streameval.metrics.scores.operating_points import operating_points
from streameval.metrics.scores.sampled_gain import approximations
from streameval.metrics.sketches import named_quantile, quantiles

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from streameval.metrics.protocol import Entry, Metric

_INPUTS = {
    "score": "name one (--score)",
    "cluster": "name one (--cluster)",
    "classes": "name both (--cluster, --classes)",
    "sample": "set approx_agc=True (--approx-agc)",
    "sketch": "name one (--sketch)",
}


@dataclass(frozen=True)
class Selection:
    """The requested metrics, and their options.

    Attributes
    ----------
    families : families that there is input for
    patterns : names, globs, families and subjects; ``default`` for those computed by default; only these if empty
    own : the user's own metrics
    truncate, at, aul_threshold, assignment_cells : as `streameval.evaluate`
    quantiles : bins of ``agc_approx``; None if it was not requested
    clip : of ``log_loss``
    """

    families: tuple[str, ...]
    patterns: tuple[str, ...] = ()
    own: tuple[Any, ...] = ()
    truncate: tuple[float, ...] = ()
    at: tuple[str, ...] = ()
    aul_threshold: float = 1
    assignment_cells: int = ASSIGNMENT_CELLS
    quantiles: int | None = None
    clip: float | None = None

    def of(self, family: str) -> tuple[Metric, ...]:
        """The metrics of a family, each once."""
        if family not in self.families:
            return ()
        own = tuple(metric for metric in self.own if metric.family == family)
        if family == "classes":
            return (*self._clustering, *own)
        picked = self._picked(entry for entry in CATALOGUE if entry.family == family and entry.metric is not None)
        if family == "score":
            cuts = truncated(self.truncate)
            picked += cuts if not self.quantiles else tuple(m for m in cuts if not self.patterns or self._names(m.name))
            picked += (*operating_points(self.at), *self._named(self.patterns, (family,)))
        if family == "sketch":
            picked = quantiles(self.patterns, self._names_quantile)
        if family == "sample":
            areas = tuple(m for m in self._areas if not self.patterns or self._names(m.name))
            picked = (*areas, *self._named(self.patterns, (family,))) or self._areas
        return tuple(dict.fromkeys((*picked, *own)))

    def behind(self, family: str) -> tuple[Metric, ...]:
        """The metrics of a family that are not requested, but whose replicates give requested ones their intervals.

        Examples
        --------
        >>> selection = Selection(("score", "sample"), ("agc_approx",), quantiles=100)
        >>> [metric.name for metric in selection.behind("score")]
        ['agc']
        """
        own, due = self.of(family), (of_all_rows(metric) for other in self.families for metric in self.of(other))
        lacking = dict.fromkeys(metric for metric in due if metric is not None and metric not in own)
        return tuple(metric for metric in lacking if (entry := entry_of(metric.name)) and entry.family == family)

    def check(self) -> None:
        """Raise `OptionError` if a pattern matches no metric, or an operating point or a user's metric is invalid."""
        operating_points(self.at)
        for metric in self.own:
            _check_own(metric, self.families)
        for pattern in self.patterns:
            if not self.known(pattern):
                self._refuse_without_input(pattern)
                if "," in pattern and all(self.known(name.strip()) for name in pattern.split(",")):
                    raise OptionError(
                        f"no metric is named {pattern!r}; name each by a --metric, or give a list (metrics=[…])"
                    )
                names = list(self._names_of_all())
                near = self._forms(pattern) or [repr(name) for name in self._near(pattern)]
                hint = f"; did you mean {' or '.join(near)}? There" if near else "; there"
                msg = f"no metric is named {pattern!r}{hint} are: {', '.join(names)}"
                if "cluster" in self.families and "classes" not in self.families:
                    msg += ", and with a class column (--classes) those of clusters against classes"
                elif "classes" in self.families:
                    msg += ", and variants such as assignment_score/m3/raw"
                msg += f"; groups are {', '.join(self._groups)}"
                raise OptionError(msg)
        if self.clip is not None and not any("clip" in _options(metric) for metric in self.of("score")):
            raise OptionError(
                f"clip={self.clip:g} would change nothing without log_loss: add it to metrics (--metric log_loss)",
                "clip",
            )

    def known(self, pattern: str) -> bool:
        """Whether a pattern names metrics that there is input for."""
        others = any(fnmatchcase(name, pattern) for name in self._plain_names)
        others |= "sketch" in self.families and named_quantile(pattern) is not None
        return (
            others
            or bool(self._named((pattern,), self.families))
            or pattern == "default"
            or _group(pattern, self.families)
            or ("classes" in self.families and bool(_measures(pattern)))
        )

    def _refuse_without_input(self, pattern: str) -> None:
        """Raise `OptionError` if a pattern names metrics of families that there is no input for."""
        for family, remedy in _INPUTS.items():
            others = ("score", family) if family == "sample" else (family,)
            if family not in self.families and replace(self, families=others, quantiles=1).known(pattern):
                raise OptionError(f"metric {pattern!r} needs {FAMILIES[family]}: {remedy}")

    def _forms(self, name: str) -> list[str]:
        """How metrics that hold a value are written, of those that begin as a name does."""
        forms = [entry.name for entry in CATALOGUE if entry.made and entry.family in self.families]
        return [form for form in forms if form.partition("@")[0] == name.partition("@")[0]]

    def _near(self, name: str) -> list[str]:
        """The glob, the group or the metric that somebody may have meant."""
        names = list(self._names_of_all())
        if any(other.startswith(f"{name}.") for other in names):
            return [f"{name}.*"]
        return get_close_matches(name, [*names, *self._groups], 1)

    def _named(self, patterns: Iterable[str], families: Sequence[str]) -> tuple[Any, ...]:
        """Metrics of these families whose names hold a value, such as ``ece@20``."""
        rows = [entry for entry in CATALOGUE if entry.made and entry.family in families]
        found = ((entry.named(pattern) for entry in rows) for pattern in patterns)
        return tuple(self._with_options(metric) for each in found for metric in each if metric is not None)

    @property
    def _plain_names(self) -> tuple[str, ...]:
        """Names that there is input for, but those of the class column."""
        made: tuple[Any, ...] = ()
        if "score" in self.families:
            made = (*truncated(self.truncate), *operating_points(self.at), *self._areas)
        if "sketch" in self.families:
            made += quantiles((), self._names_quantile)
        fixed = [entry.name for entry in CATALOGUE if entry.metric is not None and entry.family in self.families]
        return (*fixed, *(metric.name for metric in made))

    @property
    def _groups(self) -> tuple[str, ...]:
        """Subjects that have input; each stands for all of its metrics."""
        rows = (*CATALOGUE, *(clustering_rows() if "classes" in self.families else ()))
        return tuple(dict.fromkeys(row.subject for row in rows if row.family in self.families))

    def _names_of_all(self) -> Iterable[str]:
        more = (name.split(".")[0] for name in clustering_metric_names()) if "classes" in self.families else ()
        return dict.fromkeys((*self._plain_names, *more))

    @property
    def _areas(self) -> tuple[Metric, ...]:
        return approximations(self.truncate, self.quantiles) if self.quantiles else ()

    def _picked(self, rows: Iterable[Entry]) -> tuple[Metric, ...]:
        found = (e for e in rows if (self.usual and e.default) or (self.narrowed and self._names(e.name, e)))
        return tuple(self._with_options(entry.metric) for entry in found)

    @property
    def narrowed(self) -> bool:
        """Whether something was picked, so that defaults are not computed."""
        return bool(self.patterns or self.own)

    @property
    def usual(self) -> bool:
        """Whether the defaults are computed."""
        return not self.narrowed or "default" in self.patterns

    def _names(self, name: str, entry: Entry | None = None) -> bool:
        """Whether a pattern names a metric, its family or its subject."""
        groups = (entry.family, entry.subject) if entry else ()
        return any(fnmatchcase(name, pattern) or pattern in groups for pattern in self.patterns)

    def _names_quantile(self, name: str) -> bool:
        """Whether a pattern names a quantile."""
        return self._names(name) or any(group in self.patterns for group in ("sketch", "quantiles"))

    def _with_options(self, metric: Any) -> Any:
        """The metric with the options that it takes; those not given leave its defaults."""
        given = {field: getattr(self, option) for option, field in _options(metric).items()}
        known = {field: value for field, value in given.items() if value is not None}
        return replace(metric, **known) if known else metric

    @property
    def _clustering(self) -> tuple[Any, ...]:
        usual = CLUSTERING_METRICS if self.usual else ()
        named = (m for pattern in self.patterns for m in _measures(pattern))
        asked = {m.name: m for m in (*usual, *named)}.values()
        return tuple(map(self._with_options, asked))


def _options(metric: Metric) -> Mapping[str, str]:
    """The fields that options set, by option; a user's own metric has none."""
    entry = entry_of(metric.name)
    return entry.options if entry else {}


def of_all_rows(metric: Metric) -> Metric | None:
    """The metric of all rows that a metric of a sample estimates; None for other metrics."""
    entry = entry_of(metric.name)
    return entry.of_all_rows(metric) if entry and entry.of_all_rows else None


def _measures(pattern: str) -> tuple[Any, ...]:
    """Metrics of clusters against classes that a pattern names."""
    if pattern in ("classes", "clustering", "pairwise"):
        return tuple(row.metric for row in clustering_rows() if pattern in (row.family, row.subject))
    glob = any(c in pattern for c in "*?[")
    return clustering_metrics([pattern]) if glob or names_measure(pattern) else ()


def _group(pattern: str, families: Iterable[str]) -> bool:
    """Whether a pattern is a family or a subject that there is input for."""
    return any(pattern in (entry.family, entry.subject) for entry in CATALOGUE if entry.family in families)


def _check_own(metric: Any, families: Iterable[str]) -> None:
    """Refuse a metric that has a name of the catalogue, or lacks its input."""
    if any(fnmatchcase(metric.name, glob_of(entry.name)) for entry in CATALOGUE) or names_measure(metric.name):
        raise OptionError(f"metrics has an object named {metric.name!r}, a name of the catalogue; give it another name")
    if metric.family not in FAMILIES:
        raise OptionError(
            f"metric {metric.name!r} has the family {metric.family!r}; families are {', '.join(FAMILIES)}"
        )
    if metric.family not in families:
        raise OptionError(f"metric {metric.name!r} needs {FAMILIES[metric.family]}: name one")
    try:
        hash(metric)
    except TypeError:
        raise OptionError(
            f"metric {metric.name!r} cannot be hashed; make it a frozen dataclass of plain values"
        ) from None
