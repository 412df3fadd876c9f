"""Sampling intervals of the number of rows, the number of positives, and the share of positives.

They are computed from the rows of each block. A total T has the replicates B/(B − 1)·(T − T_b), and an interval that is
symmetric on the log scale. The prevalence is a ratio of totals with an interval that is symmetric on the logit scale.
The intervals describe other samples with the same number of units, which differ in size (such as campaigns).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from streameval.metrics.estimates import Estimate
from streameval.metrics.units import Sizes
from streameval.results import Scalar

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streameval.metrics.resampled import Resampled
    from streameval.typing import Array

COUNTED = ("rows", "positives", "prevalence")


def counted(
    resampled: Mapping[tuple[str, str], Resampled], rows: int, positives: int, level: float
) -> tuple[Scalar, ...]:
    """Rows, positives and prevalence with their intervals; empty if no column has blocks that cover all rows.

    Parameters
    ----------
    resampled : sources of replicates, by family and column
    rows, positives : counts of the evaluation
    level : level of the intervals
    """
    for split in resampled.values():
        by_block = split.rows_by_block
        if by_block is not None and by_block.sum(axis=0).tolist() == [rows - positives, positives]:
            sizes = split.sizes
            return tuple(
                replace(one.scalar_with(level), rows=rows, positives=positives) for one in _estimates(by_block, sizes)
            )
    return ()


def _estimates(by_block: Array, sizes: Sizes) -> list[Estimate]:
    """Rows, positives and prevalence; `by_block` has shape (n_blocks, 2): negatives and positives of each block."""
    pos, each = by_block[:, 1].astype(np.float64), by_block.sum(axis=1).astype(np.float64)
    there = each > 0
    total, positive, blocks = float(each.sum()), float(pos.sum()), int(np.count_nonzero(there))
    grown = blocks / max(1, blocks - 1)
    left = np.where(total > each, total - each, 1.0)
    own = Sizes(sizes.unit, {"rows": each, "positives": pos, "negatives": each - pos}, sizes.units, sizes.single)
    found = (
        (total, grown * (total - each), "log"),
        (positive, grown * (positive - pos), "log"),
        (positive / total if total else float("nan"), (positive - pos) / left, "logit"),
    )
    return [
        Estimate(Scalar.certain(name, value), np.where(there, replicates, np.nan), own, scale)
        for name, (value, replicates, scale) in zip(COUNTED, found, strict=True)
    ]
