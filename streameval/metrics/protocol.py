"""The interface of a metric, a pure function of states, and `Entry`, the row of facts about it.

A large state is finalized shard by shard. A metric computes a *partial* of each part of a shard, given the totals of
all parts above it, and combines the partials of all shards into a `Scalar`. Partials are numbers or small tables. The
result does not depend on their order.

The sampling error of a metric rests on *units*, which lie in blocks (`Sizes`). The *effective units* of n rows in B
blocks are

    n² (1 − 1/B) / Σ_b (n_b − n/B)²

with n_b the rows of block b, and likewise for its positives and its negatives; the smallest governs.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Generic, Never, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

    from typing_extensions import TypeVar

    from streameval.budget import Budget
    from streameval.typing import Array

    # the value, the part of a state, its partial, and the state; a `Metric` without them is one of any kind, which only
    # the finalizer calls, with the parts of the state that it was requested for
    V = TypeVar("V", covariant=True, default=Any)
    Part = TypeVar("Part", contravariant=True, default=Never)
    Out = TypeVar("Out", covariant=True, default=Any)
    P = TypeVar("P", default=Any)
    S = TypeVar("S", contravariant=True, default=Never)
    N = TypeVar("N", int, Array)  # counts of each class
else:
    from typing import TypeVar

    V, Part, Out, P, S = map(TypeVar, ("V", "Part", "Out", "P", "S"))

T = TypeVar("T")
Made = dict[tuple["Hashable", ...], tuple[list[object], Any]]  # by name and identities: the things, and what they give


class Partials(list[P]):
    """Partials of one metric, and what metrics of the same state have derived from theirs.

    Metrics with equal bases have the same partials, so values derived from these can be shared.

    Examples
    --------
    >>> rows, made = [object(), object()], {}
    >>> one, other = Partials(rows, made), Partials(rows, made)
    >>> one.once("size", one, lambda: len(one)), other.once("size", other, lambda: 1 / 0)
    (2, 2)
    """

    def __init__(self, partials: Iterable[P] = (), made: Made | None = None) -> None:
        super().__init__(partials)
        self._made = {} if made is None else made

    @classmethod
    def of(cls, partials: Sequence[P]) -> Partials[P]:
        """The partials themselves, or those of a list, which share nothing."""
        return partials if isinstance(partials, cls) else cls(partials)

    def once(self, name: Hashable, things: Sequence[object], make: Callable[[], T]) -> T:
        """The value of ``make()``, computed once for a name and the identities of `things`.

        The name must contain everything else that the value depends on.
        """
        key = name, *map(id, things)
        if key not in self._made:
            self._made[key] = list(things), make()  # an object that is kept shares its id with no other
        value: T = self._made[key][1]
        return value


class UserMetric(Protocol[V, Part, P, S]):
    """What a user's own metric must have; `as_metric` makes a `Metric` of it.

    It may also have `counts_nan`; for other members it derives from `Metric`.
    """

    @property
    def name(self) -> str:
        """The name in results, different from all names of the catalogue."""

    @property
    def family(self) -> str:
        """What its input is, a key of `streameval.metrics.catalogue.FAMILIES`."""

    def partial(self, part: Part) -> P:
        """What this part of a shard contributes."""

    def combine(self, partials: Sequence[P], state: S) -> V:
        """The value, a number or a `Scalar`."""


class Basis(ABC, Generic[Part, Out]):
    """Takes partials; frozen, so that equal bases are equal and run once."""

    @abstractmethod
    def partial(self, part: Part) -> Out:
        """What this part of a shard contributes."""


class Metric(Basis[Part, P], Generic[V, Part, P, S]):
    """One number of one state; frozen. It has a `name`, `combine`, and `partial` or `basis`; the rest has defaults.

    Attributes
    ----------
    name : the name in results, such as ``roc_auc``
    counts_nan : what ``nan="half"`` means for a metric of a score: True if `combine` counts NaN scores as halves;
        otherwise the metric is undefined as soon as there are any
    scores : ranges of scores, as pairs of the lowest and the highest, outside which the metric reads nothing; None if
        it reads all
    assignment_cells : of a metric of clusters against classes, the limit on the cells of the best matching
        (`streameval.metrics.contingency.assignment`); None if it needs no matching
    """

    if TYPE_CHECKING:  # properties here would be the defaults of fields of these names

        @property
        def name(self) -> str: ...  # noqa: D102 - the class documents it
        @property
        def counts_nan(self) -> bool: ...  # noqa: D102 - the class documents it
        @property
        def scores(self) -> Sequence[tuple[float, float]] | None: ...  # noqa: D102 - the class documents it
        @property
        def assignment_cells(self) -> int | None: ...  # noqa: D102 - the class documents it

    else:
        counts_nan, scores, assignment_cells = False, None, None

    def basis(self, part: Part) -> Basis[Part, P]:
        """What takes the partial: metrics with equal bases share the partials, which are computed once."""
        return self

    def partial(self, part: Part) -> P:
        """The partial of the basis; a metric that is its own basis computes it here."""
        return self.basis(part).partial(part)

    def joined(self, partials: list[P], state: S) -> list[P]:
        """The partials of all parts of a shard; fewer of them where together they would take much memory."""
        return partials

    @abstractmethod
    def combine(self, partials: Sequence[P], state: S) -> V:
        """The value, a `Scalar` except for curves, from the partials of all parts and the totals of the state.

        What metrics of equal bases have in common is made once with `Partials.once`.

        An iterative metric returns the metric of its next step instead: the state is finalized again with that one.
        """

    def points(self, rows: int) -> int | None:
        """How many of `rows` points the metric reads, from the best score down; None if it reads all."""
        return None

    def shrunk(self, share: float) -> Metric:
        """The metric for a part of the rows: a number of points is scaled so that it stays the same share of them."""
        return self


class Exact(Protocol):
    """Computes further metrics of an exact state."""

    def __call__(self, metrics: Sequence[Metric[T]], /) -> list[T]: ...  # noqa: D102 - the class documents it


class ShardMetric(Metric[V, Never, P, S]):
    """A metric whose partial needs more than the parts of a shard; then all metrics of the job are of this kind."""

    @abstractmethod
    def read(self, state: S, shard: tuple[int, int], budget: Budget | None) -> P:
        """The partial of a whole shard."""


@dataclass(frozen=True)
class _Adapted(Metric[Any, Part, P, S]):
    """A user's own metric with the defaults of all other members."""

    given: UserMetric[Any, Part, P, S]
    name: str
    family: str
    counts_nan: bool = False

    def partial(self, part: Part) -> P:
        return self.given.partial(part)

    def combine(self, partials: Sequence[P], state: S) -> object:
        value = self.given.combine(partials, state)
        return as_metric(value) if hasattr(value, "partial") else value  # its next step


def as_metric(given: Metric | UserMetric) -> Metric:
    """The metric of an object that has the members of `UserMetric`."""
    if isinstance(given, Metric):
        return given
    return _Adapted(given, given.name, given.family, getattr(given, "counts_nan", False))


def user_defined(metric: Basis) -> bool:
    """Whether workers of a cluster may be unable to import the class of a metric."""
    if isinstance(metric, _Adapted) or not type(metric).__module__.startswith("streameval."):
        return True
    return hasattr(metric, "inner") and user_defined(metric.inner)  # its values of slices, or over groups


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
    scale : scale of its sampling interval, a key of `streameval.metrics.estimates.SCALES`
    thresholded : whether it reads the rows beyond a threshold that depends on the data
    beyond : which rows beyond its threshold determine its sampling error: ``rows``, ``positives`` or ``negatives``;
        such metrics use fewer blocks and finer bins
    no_interval : why it has no sampling interval
    units : which units determine its sampling error, kinds of `counts` of `Sizes`
    rowwise : metric of its standard error where each row is a unit, without replicates
    needs : what it reads of the parts of exact scores: ``ranks`` for a `streameval.states.scores.parts.RankedPart`,
        ``groups`` for all else
    options : fields of the metric that options set: name of the field by name of the option
    useless : from the metric and the `Sizes` of the units to the value of a useless score, if no value can be worse
    of_all_rows : from a metric of a sample to the metric of all rows that it estimates, whose replicates it shares
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
    made: Callable[..., Metric] | None = None
    scale: str = "logit"
    thresholded: bool = False
    beyond: str = ""
    no_interval: str = ""
    units: tuple[str, ...] = ("rows", "positives", "negatives")
    rowwise: Any = None
    needs: str = "groups"
    options: Mapping[str, str] = field(default_factory=dict)
    useless: Callable[[Any, Sizes], float] | None = None
    of_all_rows: Callable[[Any], Metric] | None = None

    def named(self, name: str) -> Metric | None:
        """The metric of a name that this row stands for; None if it stands for none.

        Raises
        ------
        OptionError
            If a value in the name is out of its range.
        """
        match = None if self.made is None else _pattern(self.name).fullmatch(name)
        if self.made is None or match is None:
            return None
        try:
            values = [float(text) for text in match.groups()]
        except ValueError:
            return None
        return self.made(*values)

    def to_dict(self) -> dict[str, object]:
        """Plain values for JSON; an infinite end of the range is None."""
        inner = ("metric", "made", "rowwise", "needs", "options", "useless", "of_all_rows")
        facts = {name: getattr(self, name) for name in self.__slots__ if name not in inner}
        facts = {name: list(fact) if isinstance(fact, tuple) else fact for name, fact in facts.items()}
        return facts | {end: facts[end] if math.isfinite(facts[end]) else None for end in ("low", "high")}


@lru_cache(maxsize=1_000)
def _pattern(name: str) -> re.Pattern[str]:
    """The names that a row stands for, with a group for each value."""
    return re.compile("".join("([^,/@=]+)" if c.isupper() else re.escape(c) for c in name))


# reasons why the value of a metric of a score is undefined
ONE_CLASS = "one class only"
NO_POSITIVES = "no positives"
NO_NEGATIVES = "no negatives"
NO_ROWS = "no rows"
LACKS_ROWS = (ONE_CLASS, NO_POSITIVES, NO_NEGATIVES)  # true of no rows as well
NO_WEIGHT = "no weight in the part kept, or too little for float64"
WEIGHTED = "a histogram cannot bound a weighted metric cut at a number of points; leave out approx (--approx)"
HALF = "NaN scores count as halves in roc_auc, agc and gini only; choose nan='drop' (--nan drop)"
OUTSIDE = "a score is outside [0, 1], so the scores are not probabilities; transform them, or leave this metric out"
NO_LOGIT = "a score of 0 or 1 has no logit"
UNBOUNDED = "a histogram cannot bound a fit; leave out approx (--approx)"
NOTHING_FLAGGED = "no score reaches the threshold"


def class_counts(negatives: N, positives: N) -> dict[str, N]:
    """Counts of rows by kind, as `Sizes` takes them, from those of each class.

    >>> class_counts(3, 1)
    {'rows': 4, 'positives': 1, 'negatives': 3}
    """
    return {"rows": negatives + positives, "positives": positives, "negatives": negatives}


def too_few(units: float, of: str, needed: str) -> str:
    """The reason why there is no interval: effective units, rounded down so that they never read as enough.

    >>> too_few(4.97, "rows (campaign)", "at least 5")
    '4.9 effective units of rows (campaign): at least 5 are needed'
    """
    return f"{math.floor(units * 10) / 10:.1f} effective units of {of}: {needed} are needed"


@dataclass(frozen=True, eq=False)
class Sizes:
    """The measure of the rows of each block, by kind.

    Attributes
    ----------
    unit : what is drawn together, such as the column ``campaign``; ``row`` where each row is a unit
    counts : by kind, such as ``rows``, ``positives`` and ``negatives``: arrays of shape (n_blocks,)
    units : number of units; None where it is not known
    single : whether every row is a unit of weight 1; then the effective units are the rows
    """

    unit: str
    counts: Mapping[str, Array]
    units: int | None = None
    single: bool = False

    def of(self, kinds: Sequence[str]) -> Sizes:
        """Some kinds of units alone."""
        if self.counts.keys() <= {*kinds}:
            return self
        return replace(self, counts={kind: counts for kind, counts in self.counts.items() if kind in kinds})

    @cached_property
    def effective(self) -> dict[str, float]:
        """Effective units of each kind that occurs."""
        number = _rows if self.single else effective_units
        return {kind: number(counts) for kind, counts in self.counts.items() if counts.any()}

    @property
    def governing(self) -> tuple[float, str]:
        """The smallest number of effective units, and its kind."""
        return min(((units, kind) for kind, units in self.effective.items()), default=(0.0, "rows"))


def _rows(counts: Array) -> float:
    return float(counts.sum())


def effective_units(counts: Array) -> float:
    """Number of equal units that would spread over the blocks as unevenly.

    Parameters
    ----------
    counts : array of shape (n_blocks,), rows or weights of each block, empty blocks included

    Examples
    --------
    >>> round(effective_units(np.array([1.0, 0, 0, 0])), 12)  # one unit
    1.0
    """
    counts = np.asarray(counts, np.float64)
    total, blocks = counts.sum(), counts.size
    spread = float(np.square(counts - total / blocks).sum())
    return float(total**2 * (1 - 1 / blocks) / spread) if spread else math.inf
