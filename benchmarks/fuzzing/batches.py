"""Accumulators: any batches, merges, pickles and saves against one evaluation of all rows."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

from distributed.protocol import deserialize, serialize

from fuzzing.cases import Tally, drawn, seeded
from fuzzing.slices import told
from streameval import Accumulator, evaluate
from streameval.errors import StreamevalError

if TYPE_CHECKING:
    from pathlib import Path


def batches_case(seed: int, folder: Path, tally: Tally) -> None:
    """Rows dealt in batches to accumulators that are sent, saved and merged."""
    rng = seeded(seed)
    case = drawn(rng)
    size, exactly = len(case.table), "weight" not in case.options
    cuts = sorted({0, size, *(rng.randint(0, size) for _ in range(rng.randint(0, 4)))})
    try:
        whole = evaluate(case.table, **case.options)
    except StreamevalError as error:
        tally.refused(error)
        whole = None
    try:
        made = [Accumulator(**case.options) for _ in range(rng.randint(1, 3))]
        for start, stop in pairwise(cuts):
            at = rng.randrange(len(made))
            made[at].update(case.table.slice(start, stop - start))
            if rng.random() < 0.3:
                made[at] = deserialize(*serialize(made[at]))  # as Dask sends it to a worker
            if rng.random() < 0.3:
                made[at].save(folder / str(at))
                made[at] = Accumulator.load(folder / str(at), threads=1)
        rng.shuffle(made)
        for other in made[1:]:
            made[0].merge(other)
        found = made[0].result()
    except StreamevalError as error:
        tally.refused(error)
        if whole is not None:
            tally.wrong.append(f"batches are refused, all rows are not: {error}")
        return
    if whole is None:
        tally.wrong.append(f"all rows are refused, batches are not: {case.options}")
        return
    for one, other in zip(found.results, whole.results, strict=True):
        near = not exactly and math.isclose(one.value, other.value, rel_tol=1e-12, abs_tol=1e-12)
        if not near and told(one, exactly=exactly) != told(other, exactly=exactly):
            tally.wrong.append(f"batches {cuts} are not all rows: {one} for {other} with {case.options}")
