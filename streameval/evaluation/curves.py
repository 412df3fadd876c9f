"""Several curves of several columns, with the states read once."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from streameval.errors import OptionError
from streameval.metrics.bands import band_of
from streameval.metrics.finalize import computed
from streameval.options.kinds import of_column

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streameval.engine import Engine
    from streameval.metrics.curves import CurveKind
    from streameval.metrics.resampling import Resampled
    from streameval.results import Curve

__all__ = ["BANDED", "curves_of", "with_band"]

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


def with_band(curve: Curve, kind: CurveKind, resampled: Resampled, aul_threshold: float, level: float) -> Curve:
    """The curve with its pointwise sampling intervals, from the curves without each block.

    Parameters
    ----------
    curve : of all rows
    kind : of the curve, one of `BANDED`
    resampled : gives the state without each block
    aul_threshold : clusters larger than this count as if all positive
    level : of the intervals
    """
    replicates: list[Curve | None] = []
    for block, rows in enumerate(resampled.sizes.counts["rows"].tolist()):
        made = None
        if rows:
            state = kind.drawn(resampled.without(block))
            with suppress(OptionError):
                made = kind.make(computed(state, kind.metrics(aul_threshold)), state, str(curve.of), aul_threshold)
            if made is None:
                return curve  # a replicate of one class
        replicates.append(made)
    return replace(curve, band=band_of(curve, replicates, resampled.sizes, level))
