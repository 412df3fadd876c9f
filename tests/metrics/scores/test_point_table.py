"""The table of operating points: every threshold against counts by definition; nulls with their reason."""

import itertools
import math
import pickle
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refuses
from sklearn.metrics import confusion_matrix, f1_score, matthews_corrcoef

from streameval import evaluate
from streameval.errors import OptionError
from streameval.kernels.ranking import best_counts
from streameval.metrics.finalize import combine, compute_metrics, partials
from streameval.metrics.scores.operating_points import OperatingPoint, operating_points
from streameval.states.protocol import Totals
from streameval.states.scores.counts import fold_arrays
from streameval.states.scores.parts import ScorePart, known

POINTS = ["fpr=0.01", "tpr=0.9", "recall=0.9", "precision=0.9", "k=100", "share=0.01", "threshold=0.4321"]
NAMES = ["f1_max", "fbeta_max@2", "ks", "max_informedness", "cost_min@fp=1,fn=10", "cost_min@fp=2.5,fn=1"]


def drawn(rows: int = 2000, seed: int = 5) -> pa.Table:
    """Scores with ties, and weights."""
    random = np.random.default_rng(seed)
    score = random.beta(0.5, 0.8, rows)
    score[::3] = np.round(score[::3], 2)
    label = random.random(rows) < 0.1 + 0.7 * score
    weight = random.integers(0, 5, rows) / 4
    return pa.table({"label": label, "score": score, "other": np.round(score, 1), "weight": weight})


def rows_of(data: pa.Table, **asked: Any) -> list[dict[str, Any]]:
    """The rows of all points."""
    return evaluate(data, score="score", at=POINTS, metrics=NAMES, **asked).operating_points().to_pylist()


@pytest.mark.parametrize("weight", [None, "weight"])
def test_every_row_is_what_its_threshold_gives(weight: str | None) -> None:
    """Counts by scikit-learn at the threshold shown, and every rate of them."""
    data = drawn()
    label, score = data["label"].to_numpy(), data["score"].to_numpy()
    weights = data["weight"].to_numpy() if weight else np.ones(score.size)
    rows = rows_of(data, weight=weight)
    assert [row["at"] for row in rows] == list(dict.fromkeys([*(row["at"] for row in rows)]))
    assert {row["at"] for row in rows} == {*POINTS, *NAMES}
    for row in rows:
        flagged = score >= row["threshold"]
        tn, fp, fn, tp = confusion_matrix(label, flagged, sample_weight=weights).ravel().tolist()
        size = weights.sum()
        close = pytest.approx
        assert (row["tp"], row["fp"], row["fn"], row["tn"]) == close((tp, fp, fn, tn))
        assert row["flagged"] == flagged.sum()
        assert row["share"] == close(weights[flagged].sum() / size)
        assert row["tpr"] == row["recall"] == close(tp / (tp + fn))
        assert row["fpr"] == close(fp / (fp + tn))
        assert row["precision"] == close(tp / (tp + fp))
        assert row["f1"] == close(f1_score(label, flagged, sample_weight=weights))
        assert row["mcc"] == close(matthews_corrcoef(label, flagged, sample_weight=weights))
        assert row["cost@fp=1,fn=10"] == close((fp + 10 * fn) / size)
        assert row["cost@fp=2.5,fn=1"] == close((2.5 * fp + fn) / size)
        assert row["reason"] is None
        assert row["exact"]
    by_name = {row["at"]: row for row in rows}
    assert by_name["f1_max"]["f1"] == pytest.approx(by_name["f1_max"]["value"])
    assert by_name["share=0.01"]["metric"] == "precision@share=0.01"
    assert isinstance(rows[0]["tp"], float if weight else int)


def test_under_approx_counts_are_those_at_an_edge() -> None:
    """Exact at the threshold shown for float32 scores; the certain ends hold the value of the best threshold."""
    random = np.random.default_rng(3)
    score = random.beta(0.5, 0.8, 20_000).astype(np.float32)
    label = random.random(score.size) < score
    data = pa.table({"score": score, "label": label})
    for exact, row in zip(rows_of(data), rows_of(data, approx=True), strict=True):
        assert exact["at"] == row["at"]
        assert row["lower"] - 1e-15 <= exact["value"] <= row["upper"] + 1e-15
        flagged = score >= row["threshold"]
        assert (row["tp"], row["fp"]) == (label[flagged].sum(), (~label)[flagged].sum())


def test_a_threshold_within_a_bin_has_no_counts() -> None:
    """Its results have certain ends; its counts are not known."""
    data = pa.table({"label": [0, 1, 1], "score": pa.array([0.3, 0.3000001, 0.9], pa.float32())})
    near = np.nextafter(np.float32(0.3), np.float32(1))
    found = evaluate(data, score="score", at=f"threshold={near!s}", approx=True, metrics="ks").operating_points()
    row = found.to_pylist()[-1]
    assert row["at"] == f"threshold={near!s}"
    assert row["tp"] is None
    assert "within a bin of the histogram" in row["reason"]
    assert row["lower"] < row["upper"]


def test_points_that_cannot_be_reached_say_what_can() -> None:
    """Null with the nearest that is reachable; nothing flagged has no precision; with halves there are none."""
    data = pa.table({"label": [1, 0, 0, 0], "score": [0.5, 0.9, 0.8, 0.1]})
    rows = evaluate(data, score="score", at=["precision=0.5", "fpr=0", "threshold=2"], metrics="ks").operating_points()
    by_name = {row["at"]: row for row in rows.to_pylist()}
    row = by_name["precision=0.5"]
    assert row["threshold"] is row["tp"] is row["value"] is None
    assert row["reason"] == "no threshold has a precision of 0.5; the highest is 0.333333, at threshold 0.5"
    assert math.isinf(by_name["fpr=0"]["threshold"])
    assert by_name["fpr=0"]["precision"] is None
    assert (by_name["fpr=0"]["flagged"], by_name["fpr=0"]["fn"]) == (0, 1)
    assert by_name["threshold=2"]["mcc"] is None
    halves = pa.table({"label": [1, 0, 0, 1], "score": [0.5, 0.9, None, 0.1]})
    [row] = (
        evaluate(halves, score="score", nan="half", at="recall=0.5", metrics="roc_auc").operating_points().to_pylist()
    )
    assert row["threshold"] is None
    assert "NaN" in row["reason"]


def test_whole_numbers_beyond_float64_are_not_guessed() -> None:
    """A threshold that rounds to the next score would count other rows."""
    data = pa.table({"label": [0, 1, 0, 1], "score": [2**62, 2**62 + 1, 2**62 + 2, 2**62 + 3]})
    found = evaluate(data, score="score", at=["recall=0.5", "fpr=0.5"], metrics="roc_auc")
    for row in found.operating_points().to_pylist():
        assert row["tp"] is None
        assert "the same number as the threshold in float64" in row["reason"]


def test_one_score_or_all() -> None:
    """Columns are named; without counts or scores there is no table."""
    found = evaluate(drawn(), score=["score", "other"], at="recall=0.9", metrics="roc_auc")
    assert found.operating_points()["of"].to_pylist() == ["score", "other"]
    assert found.operating_points("other")["of"].to_pylist() == ["other"]
    assert evaluate(drawn(), score="score", metrics="roc_auc").operating_points().num_rows == 0
    refuses(OptionError, "name the score column", found.operating_points, "none")
    refuses(OptionError, "which stay in its process", pickle.loads(pickle.dumps(found)).operating_points)
    refuses(OptionError, "no score column was evaluated", evaluate(drawn(), sketch="score").operating_points)


def test_weights_far_from_one_keep_their_unit() -> None:
    """Sums of weights are in units of 1, in the table and in the 2×2 table at a threshold."""
    data = pa.table({"label": [0, 0, 1, 1], "score": [0.1, 0.4, 0.35, 0.8], "w": [1e60, 2e60, 1e60, 3e60]})
    found = evaluate(data, score="score", weight="w", at="threshold=0.35", metrics="roc_auc")
    table = found.confusion(0.35)
    assert (table.TP, table.FN, table.FP, table.TN) == (4e60, 0, 2e60, 1e60)
    [row] = found.operating_points().to_pylist()
    assert (row["tp"], row["fn"], row["fp"], row["tn"]) == (4e60, 0, 2e60, 1e60)


class Cut:
    """A state whose parts hold a few of its groups each, in any order of the parts."""

    def __init__(self, state: Any, cuts: list[int]) -> None:
        [part] = state.parts()
        self.spec, self.totals, self._parts = state.spec, state.totals, []
        total = part.total
        for start, stop in itertools.pairwise([0, *cuts, part.n.size]):
            n, p = (side[:start].sum().item() for side in (part.n, part.p))
            before = Totals(n, p, float(n), float(p))
            if total.weighted:
                before = Totals(int(part.counts[:start].sum()), 0, n, p, weighted=True, unit=total.unit)
            groups, scores = slice(start, stop), part.scores[start:stop]
            counts = None if part.counts is None else part.counts[groups]
            n, p = part.n[groups], part.p[groups]
            self._parts.append(ScorePart(n, p, before, total, known(scores), counts=counts, type=part.type))

    def parts(self, shard: Any = None, budget: Any = None) -> list[ScorePart]:
        """The parts, the last first."""
        return self._parts[::-1]


@given(
    st.lists(st.tuples(st.integers(0, 8), st.booleans(), st.integers(0, 4)), min_size=2, max_size=25).filter(
        lambda rows: len({label for _, label, weight in rows if weight}) == 2
    ),
    st.lists(st.integers(0, 9), max_size=6),
    st.booleans(),
)
def test_groups_may_be_cut_anywhere(rows: list[tuple[int, bool, int]], cuts: list[int], weighted: bool) -> None:
    """Groups without weight and empty parts included, every point is that of one part, and that by definition."""
    score, label, weight = (np.array(side) for side in zip(*rows, strict=True))
    weight = weight if weighted else np.full(weight.size, 4)
    state = fold_arrays(label.astype(np.uint8), score / 8, weight / 4 if weighted else None)
    [part] = state.parts()
    points = operating_points(WEIGHED)
    split = Cut(state, sorted(min(cut, part.n.size) for cut in cuts))
    found = combine(split, points, [partials(split, (0, 0), points)])
    assert found == compute_metrics(state, points)
    vertices = []
    for s in np.unique(score)[::-1].tolist():
        above = score >= s
        t, f = int(weight[above & label].sum()), int(weight[above & ~label].sum())
        vertices.append((int(above.sum()), t, f, s / 8))
    for point, value in zip(points, found, strict=True):
        assert value.value == pytest.approx(best_vertex(point, vertices, state.totals()), rel=1e-12, nan_ok=True), point


WEIGHED = [f"{kind}={x}" for kind in ("fpr", "tpr", "recall", "precision") for x in (0.125, 0.5, 0.75, 1)]
WEIGHED += ["fpr=0", "k=1", "k=4", "k=1000", "share=0.25", "threshold=0.5", "threshold=2", "threshold=0"]


def best_vertex(point: OperatingPoint, vertices: list[tuple[int, int, int, float]], total: Totals) -> float:
    """The value by definition, from (rows, T, F, threshold) of every threshold, weights in quarters; NaN for none."""
    N, P, at = int(4 * total.neg_weight), int(4 * total.pos_weight), Fraction(str(point.at))
    if point.kind == "fpr":
        return max((t / P for _, t, f, _ in vertices if f <= at * N), default=0.0)
    if point.kind == "tpr":
        return min(f / N for _, t, f, _ in vertices if t >= at * P)
    if point.kind == "recall":
        return max(t / (t + f) for _, t, f, _ in vertices if t and t >= at * P)
    if point.kind == "precision":
        return max((t / P for _, t, f, _ in vertices if t and t >= at * (t + f)), default=math.nan)
    if point.kind == "threshold":
        held = [vertex for vertex in vertices if vertex[3] >= point.at]
        _, t, f, _ = max(held, default=(0, 0, 0, 0))
    else:
        due = min(at, total.rows) if point.kind == "k" else at * total.rows
        _, t, f, _ = min(vertex for vertex in vertices if vertex[0] >= due)
    value = {"precision": (t, t + f), "recall": (t, P), "fpr": (f, N), "flagged": (t + f, N + P)}
    value["lift"] = t * (N + P), (t + f) * P
    top, bottom = value[point.measure]
    return top / bottom if bottom else math.nan


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("size", [1, 64, 65, 700])
@pytest.mark.parametrize("most", [2, 1 << 40])
def test_the_best_of_many_groups(size: int, most: int, later: bool) -> None:
    """In fractions, whether the share of positives rises or falls, with ties, whatever lies above the groups."""
    random = np.random.default_rng(size)
    for trend in (-1, 0, 1):
        chance = np.linspace(0.5 - 0.4 * trend, 0.5 + 0.4 * trend, size)
        rows = random.integers(0, most, size)
        pos = (rows * chance).astype(np.int64) if most > 2 else rows * (random.random(size) < chance)
        neg = rows - pos
        for neg_before, pos_before in ((0, 0), (7 * most, 3 * most)):
            true, false = pos_before + np.cumsum(pos), neg_before + np.cumsum(neg)
            cells = list(zip(true.tolist(), false.tolist(), strict=True))
            for share in (0.0, 0.5, 0.99, 2.0):
                for fixed, scale in ((0, 1), (3 * size * most, 4)):
                    least = max(1, int(share * int(true[-1])))
                    found = best_counts(neg, pos, neg_before, pos_before, least, fixed, scale, later)
                    values = [Fraction(t, fixed + scale * (t + f)) if t >= least else Fraction(-1) for t, f in cells]
                    best = max(values)
                    at = size - 1 - values[::-1].index(best) if later else values.index(best)
                    assert found == ((at, *cells[at]) if best > 0 else (-1, 0, 0))


@pytest.mark.parametrize("approx", [False, True])
def test_a_threshold_that_no_score_reaches_has_a_row(approx: bool) -> None:
    """Nothing is flagged, which is known: all positives are missed, and the precision is not defined."""
    [row] = [
        row
        for row in evaluate(drawn(), score="score", at="threshold=2", approx=approx).operating_points().to_pylist()
        if row["at"] == "threshold=2"
    ]
    label = drawn()["label"].to_numpy()
    assert (row["threshold"], row["flagged"], row["tp"], row["fp"], row["recall"]) == (2, 0, 0, 0, 0)
    assert (row["fn"], row["tn"]) == (label.sum(), (~label).sum())
    assert row["precision"] is None
    assert row["reason"] == "no score reaches the threshold"


@pytest.mark.parametrize("approx", [False, True])
def test_float32_scores_are_compared_as_numpy_does(approx: bool) -> None:
    """0.9 as float32 is less than 0.9; still it reaches a threshold of 0.9, in every table, metric and interval."""
    random = np.random.default_rng(3)
    score = np.round(random.random(4000), 1).astype(np.float32)
    data = pa.table({"label": random.random(4000) < score, "score": score, "user": random.integers(0, 800, 4000)})
    where = evaluate(data, score="score", where="score >= 0.9").rows
    found = evaluate(data, score="score", at="threshold=0.9", approx=approx, unit="user")
    assert found.value("flagged@threshold=0.9") * 4000 == where == int((score >= 0.9).sum())
    assert found.operating_points()["flagged"].to_pylist()[-1] == where
    table = found.confusion(0.9)
    assert where == table.TP + table.FP
    double = evaluate(
        data.set_column(1, "score", pa.array(np.round(score.astype(float), 1))),
        score="score",
        at="threshold=0.9",
        unit="user",
    )
    same = found.ci("recall@threshold=0.9"), double.ci("recall@threshold=0.9")
    assert same[0] == pytest.approx(same[1], rel=1e-9)
