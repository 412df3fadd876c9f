"""Exact evaluation of scores and clusters on partitioned Parquet too large for memory.

`evaluate` reads data of any size once and gives exact ROC AUC, average precision and AUL, or intervals that are certain
to hold them. The other names are the same metrics for arrays in memory.

Names are imported when they are first used, so that ``import streameval`` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from streameval._version import __version__

if TYPE_CHECKING:
    from streameval.accumulator import Accumulator
    from streameval.arrays.contingency.clustering import (
        adjusted_mutual_info_score,
        adjusted_rand_score,
        cohen_kappa,
        homogeneity_completeness_v_measure,
        jaccard_similarity,
        mutual_info_score,
        product_moment,
    )
    from streameval.arrays.contingency.confusion import confmat2_type
    from streameval.arrays.contingency.table import ClusteringMetrics, ConfusionMatrix2, ContingencyTable
    from streameval.arrays.curves import RocCurve, auc, plot_precision_recall_curve, precision_recall_curve, roc_curve
    from streameval.arrays.gain import (
        agc_approximate,
        agc_score,
        gain_agc_approximate,
        gain_agc_score,
        gain_curve,
        plot_gain_curve,
    )
    from streameval.arrays.lift import LiftCurve, aul_score_from_clusters, aul_score_from_labels
    from streameval.arrays.ranking import auc_by_sampling, average_precision_score, dist_auc, num2bool, roc_auc_score
    from streameval.evaluation import evaluate
    from streameval.evaluation.attribution import attribute
    from streameval.evaluation.comparison import compare
    from streameval.evaluation.costs.attributed import Attribution
    from streameval.evaluation.quantile_sketch import quantile_sketch
    from streameval.evaluation.result import Evaluation
    from streameval.metrics.contingency.arithmetic import (
        geometric_mean,
        geometric_mean_weighted,
        harmonic_mean,
        harmonic_mean_weighted,
        ratio2weights,
        unitsq_sigmoid,
    )
    from streameval.plots import (
        plot,
        plot_attribution,
        plot_corp,
        plot_curve,
        plot_differences,
        plot_purity_by_size,
        plot_reliability,
        plot_score_distributions,
        plot_slices,
        plot_thresholds,
        plot_worst_clusters,
    )
    from streameval.results import Bins, Curve, Distribution, Reliability, Scalar
    from streameval.simulation import Simulation, simulate
    from streameval.states.scores.quantile_sketch import QuantileSketch
    from streameval.store import Store

_WHERE = {
    "accumulator": ("Accumulator",),
    "arrays.curves": ("RocCurve", "auc", "plot_precision_recall_curve", "precision_recall_curve", "roc_curve"),
    "arrays.gain": (
        "agc_approximate",
        "agc_score",
        "gain_agc_approximate",
        "gain_agc_score",
        "gain_curve",
        "plot_gain_curve",
    ),
    "arrays.lift": ("LiftCurve", "aul_score_from_clusters", "aul_score_from_labels"),
    "arrays.ranking": ("auc_by_sampling", "average_precision_score", "dist_auc", "num2bool", "roc_auc_score"),
    "evaluation": ("evaluate",),
    "evaluation.costs.attributed": ("Attribution",),
    "evaluation.attribution": ("attribute",),
    "evaluation.comparison": ("compare",),
    "arrays.contingency.clustering": (
        "adjusted_mutual_info_score",
        "adjusted_rand_score",
        "cohen_kappa",
        "homogeneity_completeness_v_measure",
        "jaccard_similarity",
        "mutual_info_score",
        "product_moment",
    ),
    "arrays.contingency.confusion": ("confmat2_type",),
    "metrics.contingency.arithmetic": (
        "geometric_mean",
        "geometric_mean_weighted",
        "harmonic_mean",
        "harmonic_mean_weighted",
        "ratio2weights",
        "unitsq_sigmoid",
    ),
    "arrays.contingency.table": ("ClusteringMetrics", "ConfusionMatrix2", "ContingencyTable"),
    "evaluation.result": ("Evaluation",),
    "plots": (
        "plot",
        "plot_attribution",
        "plot_corp",
        "plot_curve",
        "plot_differences",
        "plot_purity_by_size",
        "plot_reliability",
        "plot_score_distributions",
        "plot_slices",
        "plot_thresholds",
        "plot_worst_clusters",
    ),
    "results": ("Bins", "Curve", "Distribution", "Reliability", "Scalar"),
    "simulation": ("Simulation", "simulate"),
    "evaluation.quantile_sketch": ("quantile_sketch",),
    "states.scores.quantile_sketch": ("QuantileSketch",),
    "store": ("Store",),
}
_HOME = {name: module for module, names in _WHERE.items() for name in names}

__all__ = [
    "Accumulator",
    "Attribution",
    "Bins",
    "ClusteringMetrics",
    "ConfusionMatrix2",
    "ContingencyTable",
    "Curve",
    "Distribution",
    "Evaluation",
    "LiftCurve",
    "QuantileSketch",
    "Reliability",
    "RocCurve",
    "Scalar",
    "Simulation",
    "Store",
    "__version__",
    "adjusted_mutual_info_score",
    "adjusted_rand_score",
    "agc_approximate",
    "agc_score",
    "attribute",
    "auc",
    "auc_by_sampling",
    "aul_score_from_clusters",
    "aul_score_from_labels",
    "average_precision_score",
    "cohen_kappa",
    "compare",
    "confmat2_type",
    "dist_auc",
    "evaluate",
    "gain_agc_approximate",
    "gain_agc_score",
    "gain_curve",
    "geometric_mean",
    "geometric_mean_weighted",
    "harmonic_mean",
    "harmonic_mean_weighted",
    "homogeneity_completeness_v_measure",
    "jaccard_similarity",
    "mutual_info_score",
    "num2bool",
    "plot",
    "plot_attribution",
    "plot_corp",
    "plot_curve",
    "plot_differences",
    "plot_gain_curve",
    "plot_precision_recall_curve",
    "plot_purity_by_size",
    "plot_reliability",
    "plot_score_distributions",
    "plot_slices",
    "plot_thresholds",
    "plot_worst_clusters",
    "precision_recall_curve",
    "product_moment",
    "quantile_sketch",
    "ratio2weights",
    "roc_auc_score",
    "roc_curve",
    "simulate",
    "unitsq_sigmoid",
]


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name not in _HOME:
        msg = f"module 'streameval' has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(importlib.import_module(f"streameval.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    """Public names."""
    return sorted(__all__)
