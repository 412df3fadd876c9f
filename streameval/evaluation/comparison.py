"""Comparisons of two evaluations over the same units."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from streameval.errors import OptionError
from streameval.evaluation.intervals import better_end
from streameval.evaluation.resampling import LEVEL
from streameval.metrics.estimates import compared
from streameval.wording import few

if TYPE_CHECKING:
    from streameval.evaluation.result import Evaluation
    from streameval.metrics.estimates import Estimate
    from streameval.results import Scalar

__all__ = ["compare", "compare_named"]


def compare(a: Evaluation, b: Evaluation) -> tuple[Scalar, ...]:
    """How much more every metric is of evaluation `b` than of `a`: b − a, paired over the same units.

    Two nights, two stores or two filters, say. Metrics and columns that only one of them has are left out.

    Parameters
    ----------
    a, b : evaluations with sampling intervals over the same unit; `a` is the baseline

    Returns
    -------
    tuple of Scalar
        With ``of="column (b) − column (a)"``, `stderr`, `ci_lower`, `ci_upper`, `verdict`, and `p_value` adjusted for
        all of them (Holm). The level is that of `b`.

    Raises
    ------
    OptionError
        If one has no sampling intervals, they have other units, or nothing in common.

    Examples
    --------
    >>> import numpy as np, pyarrow as pa
    >>> from streameval import compare, evaluate
    >>> label, noise = np.arange(4000) % 2, np.random.default_rng(0).normal(size=4000)
    >>> night = pa.table({"label": label, "score": label + noise, "unit": np.arange(4000)})
    >>> one, two = (evaluate(night.slice(start, 2000), score="score", unit="unit") for start in (0, 2000))
    >>> found = compare(one, two)[0]
    >>> found.metric, found.of, found.verdict
    ('roc_auc', 'score (b) − score (a)', 'not shown')
    """
    return compare_named(a, b, ("a", "b"))


def compare_named(a: Evaluation, b: Evaluation, names: tuple[str, str]) -> tuple[Scalar, ...]:
    """The same, with names for both evaluations."""
    sides = [{(e.paired.scalar.metric, e.paired.scalar.of): e.paired for e in side._estimates} for side in (a, b)]  # noqa: SLF001 - replicates are shared within this room
    for name, side in zip(names, sides, strict=True):
        if not side:
            msg = f"evaluation {name} has no sampling intervals; evaluate both with ci=0.95 and the same unit (--unit)"
            raise OptionError(msg)
    common = [key for key in sides[1] if key in sides[0]]
    if not common:
        have = " and ".join(few([f"{metric} of {of}" for metric, of in side]) for side in sides)
        msg = f"there is nothing to compare: the evaluations have {have}"
        raise OptionError(msg)
    named = [[_named(side[key], name) for key in common] for side, name in zip(sides, names, strict=True)]
    pairs = [(new.minus(old), better_end(new.scalar.metric)) for old, new in zip(*named, strict=True)]
    return tuple(compared(pairs, b._level or LEVEL))  # noqa: SLF001 - as above


def _named(estimate: Estimate, side: str) -> Estimate:
    return replace(estimate, scalar=replace(estimate.scalar, of=f"{estimate.scalar.of} ({side})"))
