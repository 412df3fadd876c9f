"""Lazy parts of a cached evaluation: values come from the cache, states and replicates are computed on first access."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, overload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from streameval.evaluation.intervals import Estimated
    from streameval.evaluation.result import Evaluation
    from streameval.metrics.resampled import Resampled


class CachedEvaluation:
    """An evaluation that is computed again, once, on first access to its replicates.

    Parameters
    ----------
    make : callable without arguments that returns the evaluation
    """

    def __init__(self, make: Callable[[], Evaluation]) -> None:
        self._make = make

    @cached_property
    def evaluation(self) -> Evaluation:
        """The evaluation."""
        return self._make()

    @property
    def resampled(self) -> Mapping[tuple[str, str], Resampled]:
        """The sources of replicates, for bands of curves."""
        return self.evaluation._resampled  # noqa: SLF001 - this stands for an evaluation, whose replicates are not public


class CachedEstimates(Sequence["Estimated"]):
    """The estimates of a cached evaluation, computed on first access."""

    def __init__(self, recalled: CachedEvaluation) -> None:
        self._recalled = recalled

    @overload
    def __getitem__(self, index: int) -> Estimated: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Estimated]: ...
    def __getitem__(self, index: Any) -> Any:
        return self._recalled.evaluation.estimates[index]

    def __len__(self) -> int:
        return len(self._recalled.evaluation.estimates)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the estimates as a tuple, without the store."""
        return tuple, (tuple(self),)


class CachedStates(Mapping[tuple[str, str], "Resampled"]):
    """The sources of replicates of a cached evaluation, computed on first access."""

    def __init__(self, recalled: CachedEvaluation) -> None:
        self._recalled = recalled

    def __getitem__(self, key: tuple[str, str]) -> Resampled:
        return self._recalled.resampled[key]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._recalled.resampled)

    def __len__(self) -> int:
        return len(self._recalled.resampled)
