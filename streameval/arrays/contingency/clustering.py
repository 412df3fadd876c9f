"""Clustering metrics of label arrays, as functions with scikit-learn's names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streameval.arrays.contingency.table import ConfusionMatrix2, ContingencyTable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streameval.metrics.contingency.measures import EntropyScores


def adjusted_rand_score(labels_true: Any, labels_pred: Any) -> float:
    """Adjusted Rand index of two labellings, exact at any size (Hubert and Arabie 1985).

    Parameters
    ----------
    labels_true, labels_pred : sequences of hashables, or arrays, of shape (n,)

    Returns
    -------
    float in [−1, 1]. Unlike scikit-learn's, it is ½ if both sides are one group or both are all singletons, and NaN for
    fewer than two points.

    Raises
    ------
    DataError
        If the lengths differ, or a label is not hashable.

    Examples
    --------
    >>> round(adjusted_rand_score([1, 1, 2, 2, 2, 2, 3, 3, 3, 3], [1, 2, 1, 2, 2, 3, 3, 3, 3, 3]), 3)
    0.313
    """
    return ContingencyTable.from_labels(labels_true, labels_pred).adjusted_rand_index()


def adjusted_mutual_info_score(labels_true: Any, labels_pred: Any, average_method: str = "max") -> float:
    """Adjusted mutual information of two labellings (Vinh, Epps and Bailey 2010).

    Parameters
    ----------
    labels_true, labels_pred : sequences of hashables, or arrays, of shape (n,)
    average_method : {"max", "min", "arithmetic", "geometric"}
        How the two entropies are averaged; scikit-learn's default is ``arithmetic``.

    Returns
    -------
    float, at most 1, and 0 in expectation for random labellings; 1 without points

    Raises
    ------
    DataError
        If the lengths differ, or a label is not hashable.
    OptionError
        If `average_method` is unknown.

    Examples
    --------
    >>> adjusted_mutual_info_score([0, 0, 1, 1], [1, 1, 0, 0]), adjusted_mutual_info_score([0] * 4, [0, 1, 2, 3])
    (1.0, 0.0)
    """
    return ContingencyTable.from_labels(labels_true, labels_pred).adjusted_mutual_info(average_method)


def mutual_info_score(labels_true: Any, labels_pred: Any) -> float:
    """Mutual information of two labellings.

    Parameters
    ----------
    labels_true, labels_pred : sequences of hashables, or arrays, of shape (n,)

    Returns
    -------
    float, at least 0, in nats; NaN without points

    Raises
    ------
    DataError
        If the lengths differ, or a label is not hashable.

    Examples
    --------
    >>> mutual_info_score(["a", "a", "b", "b"], [0, 0, 1, 1])
    0.6931471805599453
    """
    return ContingencyTable.from_labels(labels_true, labels_pred).mutual_info_score()


def homogeneity_completeness_v_measure(labels_true: Any, labels_pred: Any) -> EntropyScores:
    """Homogeneity, completeness and V-measure of two labellings (Rosenberg and Hirschberg 2007).

    Parameters
    ----------
    labels_true, labels_pred : sequences of hashables, or arrays, of shape (n,)

    Returns
    -------
    homogeneity, completeness, v_measure : float in [0, 1]
        All are 1 without points.

    Raises
    ------
    DataError
        If the lengths differ, or a label is not hashable.

    Examples
    --------
    >>> homogeneity_completeness_v_measure([0, 0, 1, 1], [0, 0, 1, 2]).homogeneity
    1.0
    """
    return ContingencyTable.from_labels(labels_true, labels_pred).entropy_scores()


def jaccard_similarity(iterable1: Iterable[Any], iterable2: Iterable[Any]) -> float:
    """Jaccard similarity of two sets: the size of the intersection over that of the union.

    Parameters
    ----------
    iterable1, iterable2 : iterables of hashables

    Returns
    -------
    float in [0, 1]; NaN if both are empty

    Examples
    --------
    >>> jaccard_similarity("abc", "bcd")
    0.5
    """
    return ConfusionMatrix2.from_sets(iterable1, iterable2).jaccard_coeff()


def product_moment(TP: Any, FP: Any, TN: Any, FN: Any) -> float:
    """Matthews correlation of a 2×2 table, in [−1, 1].

    Parameters
    ----------
    TP, FP, TN, FN : finite numbers of at least 0: the table counter-clockwise

    Returns
    -------
    float; NaN for an empty table

    Raises
    ------
    DataError
        If a count is negative or not finite.

    Examples
    --------
    >>> round(product_moment(22, 4, 11, 2), 2)
    0.67
    """
    return ConfusionMatrix2.from_ccw(TP, FP, TN, FN).matthews_corr()


def cohen_kappa(TP: Any, FP: Any, TN: Any, FN: Any) -> float:
    """Cohen's kappa of a 2×2 table, in [−1, 1].

    Parameters
    ----------
    TP, FP, TN, FN : finite numbers of at least 0: the table counter-clockwise

    Returns
    -------
    float; NaN for an empty table

    Raises
    ------
    DataError
        If a count is negative or not finite.

    Examples
    --------
    >>> round(cohen_kappa(147, 10, 62, 3), 2)
    0.86
    """
    return ConfusionMatrix2.from_ccw(TP, FP, TN, FN).kappa()
