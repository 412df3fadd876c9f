"""Sampling intervals of results, and differences from baselines."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from streameval.errors import OptionError
from streameval.evaluation.resampling import LEVEL
from streameval.metrics.catalogue import entry_of
from streameval.metrics.estimates import compared
from streameval.metrics.resampling import estimates, without_replicates

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streameval.engine import Engine
    from streameval.evaluation.families import MetricRequest
    from streameval.evaluation.resampling import Resampling
    from streameval.metrics.estimates import Estimate
    from streameval.metrics.protocol import Metric
    from streameval.metrics.resampling import Resampled
    from streameval.results import Scalar

__all__ = ["Estimated", "better_end", "block_specs", "concluded", "differences", "estimated", "resampled_states"]

_NOT_KEPT = "blocks of its units are not kept for all of these rows; let the unit join (add --unit COLUMN)"


class Estimated(NamedTuple):
    """A result with its replicates.

    Attributes
    ----------
    own : gives its interval
    paired : gives differences from other columns; the same but where the unit of an interval does not pair columns
    """

    own: Estimate
    paired: Estimate


def block_specs(wanted: Sequence[MetricRequest], resampling: Resampling) -> tuple[Any, ...]:
    """States to fold for sampling intervals, beside those of the metrics."""
    return tuple(made.spec for w in wanted if (made := w.blocks(resampling)) is not None)


def estimated(
    engine: Engine,
    answered: Sequence[tuple[MetricRequest, Any]],
    states: Mapping[Any, Any],
    results: Sequence[Scalar],
    resampling: Resampling,
) -> list[Estimated]:
    """The results of all states, in the order given, with their replicates.

    Parameters
    ----------
    engine : finalizes replicates
    answered : states with their requests
    states : the folded states, those of blocks among them
    results : the values of all metrics of all states
    resampling : what is asked for
    """
    found: list[Estimated] = []
    for wanted, state in answered:
        if not wanted.metrics:
            continue  # folded for its rows alone
        values = results[len(found) : len(found) + len(wanted.metrics)]
        due = wanted.blocks(resampling)
        blocks = None if due is None else states.get(due.spec)
        made: list[list[Estimate]] = []
        family, absent = wanted.family, due is not None and blocks is None
        for split in (family.resampled, partial(family.paired, engine)):
            lacking = absent and family.own_blocks == (split == family.resampled)
            resampled = _NOT_KEPT if lacking else split(wanted, state, blocks, resampling)
            if resampled is None:
                made.append(made[0])
            elif isinstance(resampled, str):
                made.append(without_replicates(values, resampling.named_unit, resampled))
            else:
                finalize, exact = partial(wanted.family.replicates, engine), partial(_exact, engine, wanted, state)
                made.append(estimates(values, wanted.metrics, state.totals().rows, resampled, finalize, exact))
        found += map(Estimated, *made)
    return found


def _exact(engine: Engine, wanted: MetricRequest, state: Any, metrics: Sequence[Metric]) -> list[Scalar]:
    """Further metrics of the exact state."""
    return wanted.family.finalize(engine, [(state, metrics)])[0]


def resampled_states(
    answered: Sequence[tuple[MetricRequest, Any]], states: Mapping[Any, Any], resampling: Resampling
) -> dict[tuple[str, str], Resampled]:
    """What gives the replicates of intervals, by family and column, for curves."""
    found: dict[tuple[str, str], Resampled] = {}
    for wanted, state in answered if resampling.level is not None else ():
        due = wanted.blocks(resampling)
        blocks = None if due is None else states.get(due.spec)
        absent = due is not None and blocks is None and wanted.family.own_blocks
        made = _NOT_KEPT if absent else wanted.family.resampled(wanted, state, blocks, resampling)
        if not isinstance(made, str):
            found[wanted.group, wanted.of] = made
    return found


def differences(found: Sequence[Estimated], wanted: Sequence[MetricRequest], resampling: Resampling) -> list[Scalar]:
    """Differences of all metrics from the baselines, adjusted together.

    Parameters
    ----------
    found : results, in the order of the requests
    wanted : the requests
    resampling : what is asked for
    """
    by_group: dict[str, dict[str, dict[str, Estimate]]] = {}
    for group, one in zip((w.group for w in wanted for _ in w.metrics), found, strict=True):
        scalar = one.own.scalar
        by_group.setdefault(group, {}).setdefault(str(scalar.of), {})[scalar.metric] = one.paired
    pairs = [
        (columns[other][metric].minus(columns[base][metric]), better_end(metric))
        for columns in by_group.values()
        for other, base in resampling.pairs(list(columns))
        for metric in columns[other]
        if metric in columns[base]
    ]
    return compared(pairs, resampling.level or LEVEL)


def concluded(difference: Estimate, level: float, margin: float | None = None) -> Scalar:
    """One difference as a result, its p alone, and ``equivalent`` where it is shown to lie within ± `margin`.

    Raises
    ------
    OptionError
        If the margin is not a number above 0.
    """
    if margin is not None and not 0 < margin < math.inf:
        msg = f"margin={margin!r} is not a number above 0"
        raise OptionError(msg)
    scalar = compared([(difference, better_end(difference.scalar.metric))], level)[0]
    same = margin is not None and difference.equivalent(margin, level)
    return replace(scalar, verdict="equivalent") if same else scalar


def better_end(metric: str) -> str | None:
    """Which end of a metric is better: ``higher``, ``lower``, or None."""
    entry = entry_of(metric)
    return entry.better if entry else None
