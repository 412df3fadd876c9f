"""Drift of a score between nights, from the states of a store; `streameval.evaluation.alarms` has the statistics."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from streameval.errors import DataError, OptionError
from streameval.evaluation.alarms import Drift, distances, with_error
from streameval.states.scores.blocks import BlockCounts
from streameval.states.scores.counts import ScoreCounts
from streameval.store.nights.merge import spec_as_kept
from streameval.wording import few, unknown_column

if TYPE_CHECKING:
    from streameval.engine import Engine
    from streameval.evaluation.families import MetricRequest
    from streameval.states.protocol import State
    from streameval.store.nights.configuration import Configuration
    from streameval.store.nights.merge import Nights
    from streameval.typing import Array


def score_request(configuration: Configuration, score: str) -> tuple[MetricRequest, MetricRequest | None]:
    """The exact scores of a column and their blocks; raises `OptionError` if the store does not keep the column."""
    request = configuration.request(metrics=("roc_auc",), truncate=(), at=(), ci=0.95)
    columns = {w.of: w for w in configuration.wanted(request) if w.group == "score"}
    if score not in columns:
        raise OptionError(f"drift: {unknown_column(score, list(columns), 'the scores of the store are')}")
    blocks = columns[score].blocks(request.resampling) if configuration.options["unit"] else None
    return columns[score], blocks


def inexact(nights: Nights, request: MetricRequest) -> str:
    """Why the scores of some nights are not exact, with a remedy; empty if they are."""
    states = [(entry.partition, entry.state(request.group, request.of)) for entry in nights.entries]
    names = [name for name, state in states if state and spec_as_kept(request.spec, state) != request.spec]
    remedy = "compare nights that have them"
    return f"vacuum --keep turned the exact scores {request.of} of {few(names)} into bins; {remedy}" if names else ""


def drift_of(nights: Nights, against: Nights, engine: Engine, score: str) -> Drift:
    """How far the scores of some nights are from those of others.

    Memory: 16 bytes for each distinct score of either side.

    Raises
    ------
    OptionError
        If the store does not keep the column, or only bins of its scores.
    DataError
        If a side has no scores, or no longer has exact ones.
    """
    request, blocks = score_request(nights.configuration, score)
    one, other = (_counted(side, engine, request) for side in (nights, against))
    unit, (ks, w1, psi) = nights.configuration.options["unit"], distances(one, other)
    drift = Drift(score, int(one[1].sum()), int(other[1].sum()), ks, w1, psi, unit=unit)
    if blocks is None:
        return replace(drift, reason="the store keeps no blocks of units: add --unit COLUMN")
    if lacking := [name for side in (nights, against) for name in side.lacking(blocks.group, blocks.of)]:
        return replace(
            drift, reason=f"no blocks of units in {few(lacking)}; fold them from their files (add STORE DATA)"
        )
    states = [_blocks(side.merged(engine, blocks)) for side in (nights, against)]
    together = states[0].merge(states[1])
    tables = []
    for state in (one.at_shift(together.shift) for one in states):
        table = np.zeros(together.table.shape[:2], np.int64)
        table[np.searchsorted(together.prefixes, state.prefixes)] = state.table.sum(axis=-1)
        tables.append(table)
    low, high = together.scores
    return with_error(drift, tables[0], tables[1], low / 2 + high / 2, str(unit))


def _counted(side: Nights, engine: Engine, request: MetricRequest) -> tuple[Array, Array]:
    """The distinct scores of nights, ascending, and the rows of each."""
    if lost := side.lacking(request.group, request.of):
        raise DataError(f"drift: no {request.of} in {few(lost)}")
    if why := inexact(side, request):
        raise DataError(f"drift: {why}")
    state = side.merged(engine, request)
    if not isinstance(state, ScoreCounts):
        raise OptionError(f"drift: the store keeps bins of {request.of}, and drift needs its exact scores", "score")
    parts = [(part.scores, part.rows) for part in state.parts(budget=engine.budget)]
    engine.budget.release_spares()
    if not parts:
        raise DataError(f"drift: there are no scores {request.of} in {few(side.names)}")
    scores, rows = (np.concatenate(each)[::-1] for each in zip(*parts, strict=True))
    return scores, rows


def _blocks(state: State) -> BlockCounts:
    if not isinstance(state, BlockCounts):
        raise OptionError("drift: the blocks of the store are not those of scores", "score")
    return state
