"""Sampling intervals of results and of counts, and differences from baselines.

The intervals of the number of rows, of the positives, and of their share come from the rows of each block: a total T
has the replicates B/(B − 1)·(T − T_b) and an interval that is symmetric on the log scale, the prevalence is a ratio of
totals with an interval that is symmetric on the logit scale. They describe other samples with the same number of units,
which differ in size (such as campaigns).
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from streameval.errors import OptionError
from streameval.evaluation.request import LEVEL
from streameval.evaluation.slices import whole_results
from streameval.evaluation.slicing import WHOLE, Slicing
from streameval.metrics.catalogue import entry_of
from streameval.metrics.differences import compared
from streameval.metrics.estimates import Estimate
from streameval.metrics.finalize import in_rounds
from streameval.metrics.resampling import by_row, estimates, without_replicates
from streameval.metrics.selection import of_all_rows
from streameval.metrics.units import Sizes
from streameval.results import Scalar
from streameval.states.grouped.state import GroupedSpec
from streameval.states.scores.blocks import BlockSpec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streameval.engine import Engine
    from streameval.evaluation.family import Family, MetricRequest
    from streameval.evaluation.request import Resampling
    from streameval.evaluation.slices import Swept
    from streameval.metrics.protocol import Metric
    from streameval.metrics.resampling import Resampled
    from streameval.states.grouped.keys import By
    from streameval.typing import Array


_NOT_KEPT = "blocks of its units are not kept for all of these rows; add the unit to the store (add --unit COLUMN)"
_NO_UNIT = "the store keeps no blocks of units; add the column of units to it (add --unit COLUMN)"
_NO_CELLS = (
    "a difference of two clusterings needs the rows of each unit in each cluster, which neither stores nor slices "
    "keep: evaluate the files with --unit and --baseline, without slices (--by)"
)


class Estimated(NamedTuple):
    """A result with its replicates.

    Attributes
    ----------
    own : gives its interval
    paired : gives differences from other columns; the same but where the unit of an interval does not pair columns
    """

    own: Estimate
    paired: Estimate


def block_requests(wanted: Sequence[MetricRequest], resampling: Resampling) -> list[MetricRequest]:
    """States of blocks, folded in addition to those of the metrics."""
    return [made for w in wanted if (made := w.blocks(resampling)) is not None]


def block_specs(wanted: Sequence[MetricRequest], resampling: Resampling, slicing: Slicing = WHOLE) -> tuple[Any, ...]:
    """States to fold for sampling intervals, in addition to those of the metrics.

    Those that only differences over all rows need are not sliced.
    """
    made = block_requests(wanted, resampling)
    split = [w for w in made if w.family.own_blocks] if slicing.keys else []
    return (
        *(GroupedSpec(w.spec, key) for key in slicing.keys for w in split),
        *(w.spec for w in made if w not in split),
    )


def derived_requests(
    wanted: Sequence[MetricRequest], resampling: Resampling, slicing: Slicing = WHOLE
) -> dict[Any, MetricRequest]:
    """By the spec of a metric's state, the request whose state holds its rows, so that it is not folded."""
    made = block_requests(wanted, resampling) if not slicing.keys else []
    return {w.spec.derived: w for w in (*made, *wanted) if w.spec.derived is not None}


def folded_specs(wanted: Sequence[MetricRequest], resampling: Resampling, slicing: Slicing = WHOLE) -> tuple[Any, ...]:
    """The states to fold, each once: those of metrics, of slices and of blocks."""
    derived = derived_requests(wanted, resampling, slicing)
    specs = slicing.specs([spec for spec in dict.fromkeys(w.spec for w in wanted) if spec not in derived])
    return tuple(dict.fromkeys((*specs, *block_specs(wanted, resampling, slicing))))


def sliced_blocks(
    wanted: Sequence[MetricRequest], states: Mapping[Any, Any], resampling: Resampling, key: By
) -> dict[Any, Any]:
    """The block counts of the slices of a slicing, by the specs of the counts of all rows."""
    found = block_specs(wanted, resampling)
    specs = {spec: GroupedSpec(spec, key) for spec in found if isinstance(spec, BlockSpec)}
    return {spec: states[split] for spec, split in specs.items() if split in states}


def finalized(
    engine: Engine,
    answered: Sequence[tuple[MetricRequest, Any]],
    states: Mapping[Any, Any],
    swept: Swept,
    resampling: Resampling,
) -> tuple[tuple[Scalar, ...], list[dict[Metric, Scalar]]]:
    """The values of all metrics of all states, in the order given, and for each state what else its intervals need.

    States are read once for both; those that `sweep` has finalized give only values. `states` are the folded states,
    those of blocks among them.
    """
    some = [resampling.level is not None and w not in swept for w, _ in answered]
    more = [
        (*w.behind, *w.family.certificates(w, state, _blocks(w, states, resampling), resampling)) * due
        for (w, state), due in zip(answered, some, strict=True)
    ]
    asked = [(w.remade(w.spec, w.metrics + further), state) for (w, state), further in zip(answered, more, strict=True)]
    values = whole_results(engine, asked, swept)
    results: list[Scalar] = []
    certain: list[dict[Metric, Scalar]] = []
    for (w, _), further in zip(answered, more, strict=True):
        results += islice(values, len(w.metrics))
        certain.append(dict(zip(further, islice(values, len(further)), strict=True)))
    return tuple(results), certain


def estimated(
    engine: Engine,
    answered: Sequence[tuple[MetricRequest, Any]],
    states: Mapping[Any, Any],
    results: Sequence[Scalar],
    resampling: Resampling,
    certain: Sequence[Mapping[Metric, Scalar]] = (),
) -> list[Estimated]:
    """The results of all states, in the order given, with their replicates.

    Parameters
    ----------
    engine : finalizes replicates
    answered : states with their requests
    states : the folded states, those of blocks among them
    results : the values of all metrics of all states
    resampling : the options of sampling intervals
    certain : for each state, the additional values from `finalized`; others are finalized on demand
    """
    found: list[Estimated] = []
    whole: dict[tuple[str, str], Estimated] = {}  # of all rows, by column and metric
    for (wanted, state), known in zip(answered, certain or [{}] * len(answered), strict=True):
        metrics = wanted.computed
        if not metrics:
            continue  # folded for its rows alone
        exact = partial(_exact, engine, state, known)
        values = [*results[len(found) : len(found) + len(wanted.metrics)], *exact(wanted.behind)]
        due, blocks = wanted.blocks(resampling), _blocks(wanted, states, resampling)
        made: list[list[Estimate]] = []
        family, without = wanted.family, due is not None and blocks is None
        for split in (family.resampled, partial(family.paired, engine)):
            lacking = without and family.own_blocks == (split == family.resampled)
            resampled = _lacking(family, resampling) if lacking else split(wanted, state, blocks, resampling)
            if resampled is None:
                made.append(made[0])
            elif isinstance(resampled, str):
                made.append(without_replicates(values, resampling.named_unit, resampled))
            elif all(math.isnan(value.value) for value in values):
                made.append(without_replicates(values, resampling.named_unit, "the value is undefined"))
            else:
                replicates = partial(family.replicates, engine)
                made.append(estimates(values, metrics, state.totals().rows, resampled, replicates, exact))
        if without and family.own_blocks and resampling.unit is None and not wanted.spec.weighted:
            made[0] = by_row(made[0], metrics, state.totals(), exact)  # differences need blocks
        made_of = [Estimated(*pair) for pair in zip(*made, strict=True)]
        whole |= {(wanted.of, metric.name): one for metric, one in zip(metrics, made_of, strict=True)}
        found += made_of[: len(wanted.metrics)]
    return _of_samples(found, [metric for w, _ in answered for metric in w.metrics], whole)


def _of_samples(
    found: Sequence[Estimated], metrics: Sequence[Metric], whole: Mapping[tuple[str, str], Estimated]
) -> list[Estimated]:
    """The estimates, in which values of a sample take the replicates of the metric of all rows, from `whole`."""
    made: list[Estimated] = []
    for one, metric in zip(found, metrics, strict=True):
        value, source = one.own.scalar, of_all_rows(metric)
        of_all = None if source is None else whole.get((str(value.of), source.name))
        sampled = of_all is not None and not math.isnan(value.value)
        made.append(Estimated(*(each.sampled(value) for each in of_all)) if of_all and sampled else one)
    return made


def _blocks(wanted: MetricRequest, states: Mapping[Any, Any], resampling: Resampling) -> Any:
    """The state of blocks that the intervals of a state need; None if there is none."""
    due = wanted.blocks(resampling)
    return None if due is None else states.get(due.spec)


def _lacking(family: Family, resampling: Resampling) -> str:
    """Why there is no state of blocks; clusters by unit are folded only for differences."""
    if not family.own_blocks:
        return _NO_CELLS
    return _NO_UNIT if resampling.unit is None else _NOT_KEPT


def _exact(engine: Engine, state: Any, known: Mapping[Metric, Any], metrics: Sequence[Metric]) -> list[Any]:
    """Further metrics of the exact state."""
    lacking = [metric for metric in metrics if metric not in known]
    found = dict(zip(lacking, in_rounds(engine.finalize, [(state, lacking)])[0], strict=True)) if lacking else {}
    return [found[metric] if metric in found else known[metric] for metric in metrics]


def resampled_states(
    answered: Sequence[tuple[MetricRequest, Any]], states: Mapping[Any, Any], resampling: Resampling
) -> dict[tuple[str, str], Resampled]:
    """The sources of replicates, by family and column, for the intervals of curves."""
    found: dict[tuple[str, str], Resampled] = {}
    for wanted, state in answered if resampling.level is not None else ():
        if not wanted.computed:
            continue  # folded for its rows alone
        due, blocks = wanted.blocks(resampling), _blocks(wanted, states, resampling)
        absent = due is not None and blocks is None and wanted.family.own_blocks
        family = wanted.family
        made = _lacking(family, resampling) if absent else family.resampled(wanted, state, blocks, resampling)
        if not isinstance(made, str):
            found[wanted.group, wanted.of] = made
    return found


def differences(
    found: Sequence[Sequence[Estimated]], wanted: Sequence[MetricRequest], resampling: Resampling
) -> list[list[Scalar]]:
    """Differences of all metrics from the baselines, of all rows or of each slice, adjusted together.

    Parameters
    ----------
    found : results of each set of rows, in the order of the requests
    wanted : the requests
    resampling : the options of sampling intervals
    """
    pairs = [_pairs(each, wanted, resampling) for each in found]
    results = iter(compared([pair for each in pairs for pair in each], resampling.level or LEVEL))
    return [list(islice(results, len(each))) for each in pairs]


def _pairs(
    found: Sequence[Estimated], wanted: Sequence[MetricRequest], resampling: Resampling
) -> list[tuple[Estimate, str | None]]:
    """Differences of one set of rows, each with the better end of its metric."""
    by_group: dict[str, dict[str, dict[str, Estimate]]] = {}
    for group, one in zip((w.group for w in wanted for _ in w.metrics), found, strict=True):
        scalar = one.own.scalar
        by_group.setdefault(group, {}).setdefault(str(scalar.of), {})[scalar.metric] = one.paired
    return [
        (columns[other][metric].minus(columns[base][metric]), better_end(metric))
        for columns in by_group.values()
        for other, base in resampling.pairs(list(columns))
        for metric in columns[other]
        if metric in columns[base]
    ]


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
