"""Sizes of blocks and tables so small that a few rows take every path of a fold."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from streameval.states import cluster_counts, cluster_sizes
from streameval.states.keyed import builder as keyed_builder
from streameval.states.keyed import counts as runs
from streameval.states.keyed import hot


@contextmanager
def sizes(*, tiny: bool) -> Iterator[None]:
    """The engine's constants unchanged, or small enough that a few rows take every path."""
    with pytest.MonkeyPatch.context() as patch:
        if tiny:
            patch.setattr(hot, "LEARN", 6)
            patch.setattr(hot, "FULL", 700)
            patch.setattr(cluster_sizes, "LARGEST", 5)
            patch.setattr(cluster_counts, "_SMALL", 3)
            patch.setattr(keyed_builder, "BLOCK", 4)
            patch.setattr(runs, "CHUNK", 8)
            patch.setattr(runs, "_DENSE", 4)
            patch.setattr(runs, "SLAB", 16)
            patch.setattr(runs, "REFINE", 16)
            patch.setattr(runs, "WEIGHED", 16)
            patch.setattr(runs.KeyedCounts.intervals, "__defaults__", (5,))
        yield
