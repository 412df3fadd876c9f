"""States split by a key: slices, resampling blocks, nights."""

from streameval.states.grouped.keys import UNIT_HASH, Blocks, By, rank
from streameval.states.grouped.state import Grouped, GroupedSpec, divisible

__all__ = ["UNIT_HASH", "Blocks", "By", "Grouped", "GroupedSpec", "divisible", "rank"]
