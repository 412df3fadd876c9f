"""Several curves of several columns, with the states read once."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from streameval.errors import OptionError
from streameval.metrics.bands import band_of, no_band
from streameval.metrics.catalogue import entry_of
from streameval.metrics.curves import curve_kind
from streameval.metrics.finalize import computed
from streameval.metrics.resampling import FEW_BLOCKS, units_beyond
from streameval.options.kinds import of_column

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from streameval.engine import Engine
    from streameval.metrics.curves import CurveKind
    from streameval.metrics.resampled import Resampled
    from streameval.results import Curve

__all__ = ["BANDED", "curves_of", "with_bands"]

BANDED = ("roc", "precision_recall", "gain", "lift")  # curves that lie between 0 and 1 and have replicates


def curves_of(
    engine: Engine, states: Mapping[tuple[str, str], Any], kinds: Sequence[CurveKind], aul_threshold: Any
) -> list[Curve]:
    """The curves of these kinds of all columns, kind by kind; those that are not defined are left out.

    Parameters
    ----------
    engine : what the run shares
    states : by family and column
    kinds : of curves
    aul_threshold : clusters larger than this count as if all positive, as the option has it
    """
    jobs: list[tuple[Any, list[Any]]] = []
    due: list[tuple[CurveKind, str, int, slice]] = []
    for (family, of), state in states.items():
        own = [kind for kind in kinds if kind.family == family]
        if not own:
            continue
        drawn = own[0].drawn(state)
        metrics: list[Any] = []
        places: dict[Any, slice] = {}  # kinds that are made of the same metrics share them
        for kind in own:
            wanted = tuple(kind.metrics(of_column(aul_threshold, of)))
            if wanted not in places:
                places[wanted] = slice(len(metrics), len(metrics) + len(wanted))
                metrics += wanted
            due.append((kind, of, len(jobs), places[wanted]))
        jobs.append((drawn, metrics))
    values = engine.finalize(jobs)
    found = []
    for kind, of, job, place in sorted(due, key=lambda each: kinds.index(each[0])):
        with suppress(OptionError):
            found.append(kind.make(values[job][place], jobs[job][0], of, of_column(aul_threshold, of)))
    return found


def with_bands(
    curves: Sequence[Curve], resampled: Mapping[tuple[str, str], Resampled], aul_threshold: Any, level: float
) -> list[Curve]:
    """The curves, with pointwise sampling intervals where there are replicates: from the curves without each block.

    Parameters
    ----------
    curves : of all rows
    resampled : by family and column, gives the states without each block
    aul_threshold : clusters larger than this count as if all positive, as the option has it
    level : of the intervals
    """
    found, columns = list(curves), dict[tuple[str, str], list[int]]()
    for i, curve in enumerate(curves):
        key = curve_kind(curve.name).family, str(curve.of)
        if curve.name in BANDED and key in resampled:
            columns.setdefault(key, []).append(i)
    for (family, of), at in columns.items():
        banded = _banded([curves[i] for i in at], resampled[family, of], of_column(aul_threshold, of), level)
        for i, curve in zip(at, banded, strict=True):
            found[i] = curve
    return found


def _banded(curves: Sequence[Curve], resampled: Resampled, aul_threshold: float, level: float) -> list[Curve]:
    """Curves of one column with their bands; each state without a block is read once for all."""
    kinds = [curve_kind(curve.name) for curve in curves]
    metrics = list(dict.fromkeys(metric for kind in kinds for metric in kind.metrics(aul_threshold)))
    split = resampled.thresholded.merged(FEW_BLOCKS) if resampled.thresholded else resampled
    made: list[list[Curve | None]] = [[] for _ in curves]
    complete = [True] * len(curves)
    for block, rows in enumerate(split.sizes.counts["rows"].tolist()):
        if not rows:
            for several in made:
                several.append(None)
            continue
        state = kinds[0].drawn(split.without(block))
        values = dict(zip(metrics, computed(state, metrics), strict=True))
        for i, (kind, curve) in enumerate(zip(kinds, curves, strict=True)):
            own = [values[metric] for metric in kind.metrics(aul_threshold)]
            try:
                made[i].append(kind.make(own, state, str(curve.of), aul_threshold))
            except OptionError:
                complete[i] = False  # a replicate of one class
    units, _ = resampled.sizes.governing
    found = []
    for curve, kind, several, whole in zip(curves, kinds, made, complete, strict=True):
        if whole:
            band = band_of(curve, several, split.sizes, level, _beyond(kind, split))
        else:
            band = no_band(split.sizes, level, "a replicate is undefined")
        effective = units if math.isfinite(units) else None
        found.append(replace(curve, band=replace(band, effective_units=effective)))
    return found


def _beyond(kind: CurveKind, split: Resampled) -> Callable[[float], float]:
    """From a threshold of a curve to the effective units beyond it, as of the metric that a point stands for."""
    entry = entry_of(kind.point) if kind.point else None
    return cache(lambda threshold: math.inf if entry is None else units_beyond(threshold, entry, split))
