"""The fused kernels: loops that give a consumer what it needs of the rows of a layout, without their distinct keys.

Every consumer can also group the rows by key first. That general path is taken where a row of the table is missing;
both give the same bits, which one test checks for every row. There are at most six.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streameval.kernels.contingency.cells import cluster_cells, tally_classes
from streameval.kernels.groups import sweep_words
from streameval.kernels.keyed.ranked import rank_buckets, rank_sorted
from streameval.kernels.keyed.sizes import tally_clusters

if TYPE_CHECKING:
    from collections.abc import Callable

FUSED: dict[tuple[str, str], Callable[..., Any]] = {  # by the layout of the rows, and what is made of them
    ("short words", "areas"): rank_buckets,
    ("labelled words", "areas"): rank_sorted,
    ("tagged words", "areas"): sweep_words,
    ("ids", "sizes"): tally_clusters,
    ("cells", "clusters"): cluster_cells,
    ("cells", "classes"): tally_classes,
}
