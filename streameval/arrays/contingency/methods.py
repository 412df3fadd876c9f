"""Measures that tables of every shape have as methods, and the null models they take."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from streameval.metrics.contingency import measures
from streameval.metrics.contingency.catalogue import of_facts, with_model

if TYPE_CHECKING:
    from typing import Self

    from streameval.metrics.contingency.null_models import CountedStatistics

__all__ = ["TableMeasures"]


class TableMeasures(ABC):
    """What sparse tables and 2×2 tables have in common: measures of their facts."""

    @property
    @abstractmethod
    def facts(self) -> CountedStatistics:
        """What the measures read."""

    @abstractmethod
    def expected(
        self, model: str = "m3", discrete: bool = False, redraw: bool = False, random_state: int | None = None
    ) -> Self:
        """Table of expected counts under a null model."""

    def expected_freqs_(self, model: str = "m3") -> Self:
        """Table of expected counts under a null model; the same as ``expected(model)``."""
        return self.expected(model)

    def assignment_score(
        self, normalize: bool = True, model: str | None = "m1", discrete: bool = False, redraw: bool = False
    ) -> int | float:
        """Weight of the best one-to-one matching of classes and clusters, minus that of a null model.

        The matching is exact for whole counts and fractions of any size. Only where some 200 rows and as many columns
        hang together, and the largest count times their number reaches 2^51, is it that of the counts' leading bits,
        with 1,000 rows and columns too low by at most about 10^-9 of itself; see
        `streameval.metrics.contingency.assignment`.

        Parameters
        ----------
        normalize : bool, default True
            Divide by the score of a perfect match, so that it is at most 1.
        model : {None, "m1", "m2r", "m2c", "m3"}
            Null model to subtract: none, only N fixed, row totals, column totals, both. The null of ``m3`` is a sum of
            products of sorted margins, so no expected table is built.
        discrete : bool, default False
            Subtract the matching of a randomly rounded expected table instead.
        redraw : bool, default False
            Draw that table anew.

        References
        ----------
        Gusfield, D. (2002), Partition-distance. Information Processing Letters 82(3), 159-164.
        """
        if not discrete or model is None:
            return measures.assignment_score(self.facts, normalize, model)
        null = self.expected(model, discrete=True, redraw=redraw).facts.matching
        return measures.above(self.facts, self.facts.matching, null, self.facts.total, normalize, model)

    adjusted_mutual_info = of_facts(measures.adjusted_mutual_info)
    bc_metrics = of_facts(measures.bc_metrics)
    entropy_scores = of_facts(measures.entropy_scores)
    g_score = of_facts(measures.g_score)
    muc_scores = of_facts(measures.muc_scores)
    mutual_info_score = of_facts(measures.mutual_info_score)
    split_join_distance = of_facts(measures.split_join_distance)
    split_join_similarity = of_facts(measures.split_join_similarity)
    talburt_wang_index = of_facts(measures.talburt_wang_index)
    vi_distance = of_facts(measures.vi_distance)
    vi_similarity = of_facts(measures.vi_similarity)

    assignment_score_m1 = with_model(assignment_score, "m1")
    assignment_score_m2r = with_model(assignment_score, "m2r")
    assignment_score_m2c = with_model(assignment_score, "m2c")
    assignment_score_m3 = with_model(assignment_score, "m3")
    split_join_similarity_m1 = with_model(split_join_similarity, "m1")
    split_join_similarity_m2r = with_model(split_join_similarity, "m2r")
    split_join_similarity_m2c = with_model(split_join_similarity, "m2c")
    split_join_similarity_m3 = with_model(split_join_similarity, "m3")
    vi_similarity_m1 = with_model(vi_similarity, "m1")
    vi_similarity_m2r = with_model(vi_similarity, "m2r")
    vi_similarity_m2c = with_model(vi_similarity, "m2c")
    vi_similarity_m3 = with_model(vi_similarity, "m3")
