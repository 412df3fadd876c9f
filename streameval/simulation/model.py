"""The options of a simulation: their ranges, and quantities derived from them.

**From a uniform number to a campaign.** Let K campaigns have sizes from a distribution, and number them from the
largest on. The Lorenz curve gives the share v of all messages that the largest share q of the campaigns holds; its
inverse q(v) maps a uniform v to the campaign ⌊K q(v)⌋. For Pareto sizes of shape α, q(v) = v^(α/(α−1)). For gamma sizes
of shape k, q(v) = Q(k, Q⁻¹(k+1, v)) with the regularised upper incomplete gamma function Q, since the size of a
message's campaign is size-biased, which gives a gamma distribution of shape k+1. q is tabulated at 65,537 points and
interpolated linearly, so campaigns in the same 65,536th of the messages have the same expected size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Literal

import numpy as np

from streameval.errors import OptionError

if TYPE_CHECKING:
    from numpy.typing import NDArray

CELLS = 1 << 16
SHAPES = {"gamma": 0.5, "pareto": 1.5}
LONE_POSITIVES = 0.2

_INTEGERS = {"rows": (1, 10**12), "seed": (0, 2**128 - 1)}
_SHARES = ("positives", "label_error", "singletons", "split", "join", "noise", "missed")


@dataclass(frozen=True)
class Model:
    """The validated options of a simulation; :func:`streameval.simulation.simulate` describes them.

    Raises
    ------
    OptionError
        If an option is out of its range, or two of them exclude each other.

    Examples
    --------
    >>> model = Model(rows=100_000, seed=1, singletons=0.5, mean=100)
    >>> model.campaigns
    500
    >>> [round(share, 3) for share in model.positive_shares]
    [0.05, 0.45]
    """

    rows: int
    seed: int = 0
    sizes: Literal["gamma", "pareto"] = "gamma"
    shape: float | None = None
    mean: float = 50.0
    positives: float = 0.25
    lone_positives: float | None = None
    label_error: float = 0.0
    singletons: float = 0.3
    split: float = 0.1
    join: float = 0.05
    noise: float = 0.01
    missed: float = 0.05
    auc_a: float = 0.95
    auc_b: float = 0.85

    def __post_init__(self) -> None:
        """Raise `OptionError` for options that cannot be simulated."""
        for name, (low, high) in _INTEGERS.items():
            check_integer(name, getattr(self, name), low, high)
        if self.sizes not in SHAPES:
            raise OptionError(f"sizes={self.sizes!r} is not a size distribution; choose one of {', '.join(SHAPES)}")
        for name in _SHARES:
            _check_real(name, getattr(self, name), 0 <= _real(getattr(self, name)) <= 1, "a share from 0 to 1")
        for name in ("auc_a", "auc_b"):
            _check_real(name, getattr(self, name), 0 < _real(getattr(self, name)) < 1, "an AUC between 0 and 1")
        _check_real("mean", self.mean, 1 <= _real(self.mean) < math.inf, "a mean campaign size of at least 1 message")
        if self.shape is not None:
            least, wanted = (1.01, "at least 1.01") if self.sizes == "pareto" else (0.01, "at least 0.01")
            _check_real("shape", self.shape, least <= _real(self.shape) < math.inf, f"a {self.sizes} shape {wanted}")
        if self.noise + self.missed > 1:
            raise OptionError(
                f"noise={self.noise!r} and missed={self.missed!r} exceed all rows; let their sum be at most 1"
            )
        self._check_positives()

    def _check_positives(self) -> None:
        """Raise `OptionError` if the share of positives among singletons contradicts the overall share."""
        if self.lone_positives is None:
            return
        lone = self.lone_positives
        _check_real("lone_positives", lone, 0 <= _real(lone) <= 1, "a share from 0 to 1")
        low, high = self.singletons * lone, self.singletons * lone + 1 - self.singletons
        if not low - 1e-12 <= self.positives <= high + 1e-12:
            raise OptionError(
                f"positives={self.positives!r} cannot be met with lone_positives={lone!r} and singletons="
                f"{self.singletons!r}; give positives from {low:g} to {high:g}, or leave lone_positives out"
            )

    @property
    def campaigns(self) -> int:
        """Number of campaigns, including those for which no message is drawn."""
        return max(1, round(self.rows * (1 - self.singletons) / self.mean))

    @property
    def positive_shares(self) -> tuple[float, float]:
        """Shares of truly positive messages among singletons and among campaign messages, each in [0, 1]."""
        alone, together = self.singletons, 1 - self.singletons
        if together == 0:
            return self.positives, 0.0
        lone = LONE_POSITIVES * self.positives if self.lone_positives is None else self.lone_positives
        held = min(max((self.positives - alone * lone) / together, 0.0), 1.0)
        return (min(max((self.positives - together * held) / alone, 0.0), 1.0) if alone else 0.0), held

    @cached_property
    def keys(self) -> tuple[int, int, int]:
        """Keys of the hashes of campaigns, clusters and joins, each in [0, 2^64); they depend on the seed."""
        first, second, third = np.random.SeedSequence(self.seed).generate_state(3, np.uint64).tolist()
        return first, second, third

    @cached_property
    def ranks(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Table of K q(v) at v = 0, 1/65,536, …, 1, and of its steps: float64 arrays of shape (65537,)."""
        shape = SHAPES[self.sizes] if self.shape is None else self.shape
        ranks = _lorenz_inverse(self.sizes, shape) * self.campaigns
        return ranks, np.append(np.diff(ranks), 0.0)


@lru_cache(maxsize=4)
def _lorenz_inverse(sizes: str, shape: float) -> NDArray[np.float64]:
    """Shares q(v) of the campaigns, largest first, that hold the shares v = 0, 1/65,536, …, 1 of all messages.

    Returns a float64 array of shape (65537,), which must not be changed: it is cached, since gamma sizes take a tenth
    of a second.
    """
    share = np.linspace(0, 1, CELLS + 1)
    if sizes == "pareto":
        return share ** (shape / (shape - 1))
    from scipy.special import gammaincc, gammainccinv

    return np.asarray(gammaincc(shape, gammainccinv(shape + 1, share)), np.float64)


def check_integer(name: str, value: object, low: int, high: int) -> None:
    """Raise `OptionError` unless a value is an integer in [low, high]."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or not low <= value <= high:
        raise OptionError(f"{name}={value!r} is out of range; give a whole number from {low} to {high:,}")


def _real(value: object) -> float:
    """A value as a float; NaN, which lies in no range, if it is not a number."""
    return float(value) if isinstance(value, int | float | np.number) and not isinstance(value, bool) else math.nan


def _check_real(name: str, value: object, holds: bool, wanted: str) -> None:
    """Raise `OptionError`, which says what is `wanted`, unless a condition `holds`."""
    if not holds:
        raise OptionError(f"{name}={value!r} is out of range; give {wanted}")
