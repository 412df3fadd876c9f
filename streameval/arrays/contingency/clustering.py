"""Clustering metrics of label arrays, as functions with scikit-learn's names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streameval.arrays.contingency.table import ConfusionMatrix2, ContingencyTable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streameval.metrics.contingency.measures import EntropyScores

__all__ = [
    "adjusted_mutual_info_score",
    "adjusted_rand_score",
    "cohen_kappa",
    "homogeneity_completeness_v_measure",
    "jaccard_similarity",
    "mutual_info_score",
    "product_moment",
]


def adjusted_rand_score(labels_true: Any, labels_pred: Any) -> float:
    """Adjusted Rand index of two labellings, in [−1, 1], exact at any size.

    Unlike scikit-learn's, it is ½ if both sides are one group or both are all singletons, and NaN for a single point.

    Examples
    --------
    >>> round(adjusted_rand_score([1, 1, 2, 2, 2, 2, 3, 3, 3, 3], [1, 2, 1, 2, 2, 3, 3, 3, 3, 3]), 3)
    0.313
    """
    return ContingencyTable.from_labels(labels_true, labels_pred).adjusted_rand_index()


def adjusted_mutual_info_score(labels_true: Any, labels_pred: Any, average_method: str = "max") -> float:
    """Adjusted mutual information of two labellings: at most 1, and 0 in expectation for random labellings.

    Parameters
    ----------
    labels_true, labels_pred : sequences of hashables, or arrays
    average_method : {"max", "min", "arithmetic", "geometric"}
        How the two entropies are averaged; scikit-learn's default is ``arithmetic``.

    Examples
    --------
    >>> adjusted_mutual_info_score([0, 0, 1, 1], [1, 1, 0, 0]), adjusted_mutual_info_score([0] * 4, [0, 1, 2, 3])
    (1.0, 0.0)
    """
    return ContingencyTable.from_labels(labels_true, labels_pred).adjusted_mutual_info(average_method)


def mutual_info_score(labels_true: Any, labels_pred: Any) -> float:
    """Mutual information of two labellings, in nats.

    Examples
    --------
    >>> mutual_info_score(["a", "a", "b", "b"], [0, 0, 1, 1])
    0.6931471805599453
    """
    return ContingencyTable.from_labels(labels_true, labels_pred).mutual_info_score()


def homogeneity_completeness_v_measure(labels_true: Any, labels_pred: Any) -> EntropyScores:
    """Homogeneity, completeness and V-measure of two labellings, each in [0, 1].

    Examples
    --------
    >>> homogeneity_completeness_v_measure([0, 0, 1, 1], [0, 0, 1, 2]).homogeneity
    1.0
    """
    return ContingencyTable.from_labels(labels_true, labels_pred).entropy_scores()


def jaccard_similarity(iterable1: Iterable[Any], iterable2: Iterable[Any]) -> float:
    """Jaccard similarity of two sets, in [0, 1]; NaN if both are empty.

    Examples
    --------
    >>> jaccard_similarity("abc", "bcd")
    0.5
    """
    return ConfusionMatrix2.from_sets(iterable1, iterable2).jaccard_coeff()


def product_moment(TP: Any, FP: Any, TN: Any, FN: Any) -> float:
    """Matthews correlation of a 2×2 table, in [−1, 1].

    Examples
    --------
    >>> round(product_moment(22, 4, 11, 2), 2)
    0.67
    """
    return ConfusionMatrix2.from_ccw(TP, FP, TN, FN).matthews_corr()


def cohen_kappa(TP: Any, FP: Any, TN: Any, FN: Any) -> float:
    """Cohen's kappa of a 2×2 table, in [−1, 1].

    Examples
    --------
    >>> round(cohen_kappa(147, 10, 62, 3), 2)
    0.86
    """
    return ConfusionMatrix2.from_ccw(TP, FP, TN, FN).kappa()
