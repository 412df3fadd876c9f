"""The real data set: 7,531 messages in fourteen nightly partitions, from the command line to the numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.dataset as ds
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score

from streameval import aul_score_from_labels, evaluate

DATA = Path(__file__).parents[1] / "data" / "spam_messages"
SCORES = ["score_lr", "score_nb", "score_q"]
CLUSTERS = ["cluster_loose", "cluster_tight"]


@pytest.fixture(scope="module")
def table():
    """All messages in memory."""
    return ds.dataset(DATA, partitioning="hive", exclude_invalid_files=True).to_table()


@pytest.mark.parametrize("weight", [None, "weight"])
@pytest.mark.parametrize("score", SCORES)
def test_scores_agree_with_scikit_learn(table, score, weight):
    """ROC AUC and average precision are scikit-learn's, ties and weights included."""
    found = evaluate(DATA, score=score, weight=weight)
    given = table["label"].to_numpy(), table[score].to_numpy()
    weights = None if weight is None else table[weight].to_numpy()
    assert found.value("roc_auc") == pytest.approx(roc_auc_score(*given, sample_weight=weights), rel=1e-12)
    assert found.value("average_precision") == pytest.approx(
        average_precision_score(*given, sample_weight=weights), rel=1e-12
    )


@pytest.mark.parametrize("over", ["source", "length", "cluster_loose"])
def test_means_over_groups_agree_with_scikit_learn(table, over):
    """GAUC and mean average precision are the weighted means of scikit-learn's values over groups with both classes."""
    label, score = table["label"].to_numpy(), table["score_q"].to_numpy()
    groups = np.unique(table[over].to_numpy(zero_copy_only=False), return_inverse=True)[1]
    parts = [(label[groups == g], score[groups == g]) for g in range(groups.max() + 1)]
    parts = [(y, s) for y, s in parts if 0 < y.sum() < y.size]
    peers = {"roc_auc": roc_auc_score, "average_precision": average_precision_score}
    values = {name: [peer(*part) for part in parts] for name, peer in peers.items()}
    sizes = {"rows": [y.size for y, _ in parts], "positives": [y.sum() for y, _ in parts], "equal": None}
    for weight, weights in sizes.items():
        found = evaluate(DATA, score="score_q", mean_over=over, mean_weight=weight)
        for name, of_groups in values.items():
            assert found.value(name) == pytest.approx(np.average(of_groups, weights=weights), rel=1e-12)


def test_clusters_agree_with_the_function_in_memory(table):
    """AUL out of core is AUL in memory, bit for bit."""
    found = evaluate(DATA, cluster=CLUSTERS, metrics="aul")
    for cluster in CLUSTERS:
        expected = aul_score_from_labels(table["label"].to_numpy(), table[cluster].to_numpy())
        assert found.value("aul", of=cluster) == expected


def test_approximate_intervals_hold_the_exact_values():
    """Every certain interval holds the exact value."""
    exact, bounded = evaluate(DATA, score=SCORES), evaluate(DATA, score=SCORES, approx=True)
    for one, other in zip(exact.results, bounded.results, strict=True):
        assert other.lower <= one.value <= other.upper or np.isnan(other.value)
