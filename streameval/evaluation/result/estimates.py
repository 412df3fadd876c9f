"""Sampling intervals of results, and differences between columns."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from streameval.errors import OptionError
from streameval.evaluation.intervals import concluded
from streameval.evaluation.resampling import LEVEL
from streameval.evaluation.result.lookup import LookUp

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streameval.evaluation.intervals import Estimated
    from streameval.metrics.estimates import Estimate
    from streameval.results import Scalar


class Estimates(LookUp):
    """Sampling intervals and differences that an evaluation computes from its replicates."""

    estimates: Sequence[Estimated]
    ci_level: float | None

    def ci(
        self,
        metric: str,
        of: str | None = None,
        slice: Mapping[str, Any] | None = None,
    ) -> tuple[float, float]:
        """The sampling interval of a result, as (lower, upper); see `ci` of `evaluate`.

        Both ends are NaN if there is no interval; the result's `ci_reason` then gives the reason.

        Raises
        ------
        OptionError
            As `value`, and if no intervals were requested.

        Examples
        --------
        >>> import numpy as np, pyarrow as pa
        >>> from streameval import evaluate
        >>> label, noise = np.arange(2000) % 2, np.random.default_rng(0).normal(size=2000)
        >>> result = evaluate(pa.table({"label": label, "score": label + noise}), score="score", ci=0.95)
        >>> [round(end, 2) for end in result.ci("roc_auc")]
        [0.74, 0.78]
        """
        result = self._find(metric, of, slice)
        if result.ci_level is None:
            msg = "no sampling intervals were asked for; evaluate with ci=0.95 (--ci)"
            raise OptionError(msg)
        ends = (math.nan if end is None else end for end in (result.ci_lower, result.ci_upper))
        return next(ends), next(ends)

    def difference(self, metric: str, a: str, b: str, margin: float | None = None) -> Scalar:
        """The difference of a metric between two columns, b − a, paired over the same units.

        Parameters
        ----------
        metric : str
            Name of the metric.
        a, b : str
            Two score columns or two cluster columns; `a` is the baseline.
        margin : float, optional
            Differences within ± `margin` do not matter; the verdict is ``equivalent`` if the difference is shown to be
            within.

        Returns
        -------
        Scalar
            With ``of="b − a"``, `stderr`, `ci_lower`, `ci_upper`, `verdict`, and `p_value` of this comparison alone.

        Raises
        ------
        OptionError
            If the metric was not computed for both columns, or no intervals were requested.

        Examples
        --------
        >>> import numpy as np, pyarrow as pa
        >>> from streameval import evaluate
        >>> label, noise = np.arange(2000) % 2, np.random.default_rng(0).normal(size=(2, 2000))
        >>> table = pa.table({"label": label, "v1": label + noise[0], "v2": 2 * label + noise[1]})
        >>> found = evaluate(table, score=["v1", "v2"], ci=0.95).difference("roc_auc", "v1", "v2")
        >>> found.of, round(found.value, 2), found.verdict
        ('v2 − v1', 0.17, 'better')
        """
        one, other = (self._estimate(metric, of, paired=True) for of in (b, a))
        return concluded(one.minus(other), self.ci_level or LEVEL, margin)

    def _estimate(self, metric: str, of: str | None, *, paired: bool = False) -> Estimate:
        """The estimate of a result; with `paired`, the one for differences."""
        name = self._find(metric, of, None).metric
        found = [e.paired if paired else e.own for e in self.estimates]
        found = [e for e in found if (e.scalar.metric, e.scalar.of) == (name, of)]
        if not found:
            msg = "no sampling intervals were asked for; evaluate with ci=0.95 (--ci)"
            raise OptionError(msg)
        return found[0]
