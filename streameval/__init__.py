"""Exact evaluation of scores and clusters on partitioned Parquet too large for memory.

`evaluate` reads data of any size once and gives exact ROC AUC, average precision and AUL, or intervals that are certain
to hold them. The other names are the same metrics for arrays in memory.

Names are imported when they are first used, so that ``import streameval`` costs nothing; type checkers and editors
read ``__init__.pyi``.
"""

from __future__ import annotations

import importlib
from typing import Any

from streameval._submodules import import_submodule

__version__ = "0.1.0"

_NAMES = {
    "streameval.accumulator": "Accumulator",
    "streameval.arrays.contingency": (
        "ClusteringMetrics ConfusionMatrix2 ContingencyTable adjusted_mutual_info_score adjusted_rand_score "
        "cohen_kappa confmat2_type homogeneity_completeness_v_measure jaccard_similarity mutual_info_score "
        "product_moment"
    ),
    "streameval.arrays.curves": (
        "RocCurve agc_approximate agc_score auc gain_agc_approximate gain_agc_score gain_curve plot_gain_curve "
        "plot_precision_recall_curve precision_recall_curve roc_curve"
    ),
    "streameval.arrays.lift": "LiftCurve aul_score_from_clusters aul_score_from_labels",
    "streameval.arrays.ranking": "auc_by_sampling average_precision_score dist_auc num2bool roc_auc_score",
    "streameval.evaluation": "evaluate",
    "streameval.evaluation.churn": "Churn churn",
    "streameval.evaluation.labels.plan": "LabelPlan",
    "streameval.evaluation.attribution": "attribute",
    "streameval.evaluation.comparison": "compare",
    "streameval.evaluation.cost_tables": "Attribution",
    "streameval.evaluation.quantile_sketch": "quantile_sketch",
    "streameval.evaluation.result": "Evaluation",
    "streameval.metrics.contingency.arithmetic": (
        "geometric_mean geometric_mean_weighted harmonic_mean harmonic_mean_weighted ratio2weights unitsq_sigmoid"
    ),
    "streameval.plots": (
        "plot plot_attribution plot_corp plot_curve plot_differences plot_purity_by_size plot_reliability "
        "plot_score_distributions plot_slices plot_thresholds plot_worst_clusters"
    ),
    "streameval.results": "Bins Curve Distribution Reliability Scalar",
    "streameval.simulation": "Simulation simulate",
    "streameval.states.scores.quantile_sketch": "QuantileSketch",
    "streameval.evaluation.alarms": "Drift",
    "streameval.store": "Store",
    "streameval.store.label_plan": "plan_labels",
    "streameval.store.store": "drift",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = ["__version__"]
__all__ += _HOMES


def __getattr__(name: str) -> Any:
    """Import a public name, or a module, on first use."""
    home = _HOMES.get(name)
    return import_submodule(__name__, name) if home is None else getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    """Public names."""
    return sorted(__all__)
