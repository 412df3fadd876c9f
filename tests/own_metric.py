"""A metric as users write one, without `Metric`."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Positives:
    """Positives of a state of any family; parts are not read."""

    family: str = "score"
    name: str = "positives"

    def partial(self, part: Any) -> None:
        """Nothing of a part."""

    def combine(self, partials: Any, state: Any) -> float:
        """All positives."""
        return float(state.totals().pos)
