"""Pictures of calibration, thresholds, clusters, slices and differences: what they draw, say, refuse and write."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from refusals import refuses

from streameval import Attribution, Evaluation, Scalar, attribute, evaluate
from streameval.errors import OptionError
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
from streameval.plots.canvas import COLORS
from streameval.results import Band, Curve


def table(rows: int = 600) -> pa.Table:
    """Two scores, clusters, classes and a country."""
    random = np.random.default_rng(5)
    score = random.beta(0.5, 0.8, rows)
    label = random.random(rows) < 0.1 + 0.7 * score
    cluster = random.zipf(1.7, rows).clip(max=200)
    return pa.table(
        {
            "label": label,
            "score": score,
            "other": np.round(score, 1),
            "cluster": cluster,
            "campaign": cluster // 3 + random.integers(0, 2, rows),
            "country": np.array(["DE", "FR", None, "null"])[random.integers(0, 4, rows)],
        }
    )


DATA = table()


@cache
def everything() -> Evaluation:
    """Results of all kinds that pictures show."""
    return evaluate(
        DATA,
        score=["score", "other"],
        cluster="cluster",
        by="country",
        at=["recall=0.9", "precision=0.8"],
        metrics=["roc_auc", "ece", "aul"],
    )


@cache
def costs() -> Attribution:
    """What the clusters cost."""
    return attribute(DATA, cluster="cluster", classes="campaign", label="label", top=5)


DIFFERENCES = [
    Scalar("roc_auc", 0.02, of="b − a", baseline="a", ci_lower=0.01, ci_upper=0.03, ci_level=0.95, p_value=0.001,
           verdict="better"),
    Scalar("roc_auc", -0.02, of="c − a", baseline="a", ci_lower=-0.03, ci_upper=-0.01, ci_level=0.95, p_value=1e-9,
           verdict="worse"),
    Scalar("agc", 0.0, of="b − a", baseline="a", ci_reason="below five effective units"),
]  # fmt: skip

PICTURES: dict[str, Callable[..., Any]] = {
    "reliability": lambda **to: plot_reliability(everything(), **to),
    "corp": lambda **to: plot_corp(everything(), **to),
    "distributions": lambda **to: plot_score_distributions(everything(), "score", **to),
    "thresholds": lambda **to: plot_thresholds(everything(), "score", **to),
    "slices": lambda **to: plot_slices(everything(), "country", "roc_auc", "score", **to),
    "differences": lambda **to: plot_differences(DIFFERENCES, **to),
    "attribution": lambda **to: plot_attribution(costs(), **to),
    "purity": lambda **to: plot_purity_by_size(everything(), **to),
    "worst": lambda **to: plot_worst_clusters(everything(), costs(), **to),
}


def legend(ax: Axes) -> list[str]:
    """Texts of the legend."""
    found = ax.get_legend()
    return [text.get_text() for text in found.get_texts()]


def texts(ax: Axes) -> list[str]:
    """Texts on the axes."""
    return [text.get_text() for text in ax.texts]


def line(ax: Axes, i: int) -> tuple[np.ndarray, np.ndarray]:
    """Coordinates of a line."""
    drawn = ax.get_lines()[i]
    return np.asarray(drawn.get_xdata()), np.asarray(drawn.get_ydata())


@pytest.mark.parametrize("name", PICTURES)
def test_every_picture(name: str, tmp_path: Path) -> None:
    """Titles and names of axes, on given axes or new ones, written to a file; only colours of the palette."""
    ax = PICTURES[name](save_to=tmp_path / "picture.svg")
    assert (tmp_path / "picture.svg").stat().st_size > 1000
    assert ax.get_title()
    assert ax.get_xlabel() or ax.child_axes[0].get_xlabel()
    figure = Figure()
    FigureCanvasAgg(figure)
    own = figure.add_subplot()
    assert PICTURES[name](ax=own) is own
    palette = {color.lower() for color in (*COLORS, "#7F7F7F", "#009E73")}
    assert {to_hex(drawn.get_color()) for drawn in own.get_lines()} <= palette
    refuses(OptionError, "has no known image format", PICTURES[name], save_to=tmp_path / "picture.jpg")
    refuses(OptionError, "there is no folder", PICTURES[name], save_to=tmp_path / "none" / "picture.png")


def test_reliability_draws_the_bins() -> None:
    """Points are means and shares; rows stand below; several scores share the diagonal."""
    curve = everything().curve("reliability", "score")
    ax = plot_reliability(curve)
    x, y = line(ax, 1)
    np.testing.assert_array_equal(x, curve.x)
    np.testing.assert_array_equal(y, curve.y)
    assert legend(ax) == [f"score (ECE = {curve.area:.4f})", "calibrated"]
    [rows] = ax.child_axes
    assert rows.get_ylabel() == "Rows"
    assert line(rows, 0)[1].max() == curve.counts.max()
    assert rows.get_yscale() == "linear"
    both = plot_reliability(everything(), log=True)
    assert len(legend(both)) == 3
    assert both.child_axes[0].get_yscale() == "log"
    few = evaluate(pa.table({"label": [0, 1] * 50, "score": [0.05] * 97 + [0.35, 0.35, 0.95]}), score="score")
    [rows] = plot_reliability(few).child_axes  # logarithmic where a bin would not be seen, and beginning below it
    assert rows.get_yscale() == "log"
    assert 0 < rows.get_ylim()[0] < 1
    assert plot_reliability(few, log=False).child_axes[0].get_yscale() == "linear"


def test_a_curve_is_drawn_by_its_own_function() -> None:
    """Others say which."""
    for name, own in (("reliability", "plot_reliability"), ("corp", "plot_corp"), ("purity", "plot_purity_by_size")):
        with pytest.raises(OptionError, match=f"draw it with {own}"):
            plot_curve(everything().curve(name, None if name == "purity" else "score"))
    with pytest.raises(OptionError, match="a curve named 'corp' is not a reliability curve"):
        plot_reliability(everything().curve("corp", "score"))
    refuses(OptionError, "no curve to draw", plot_corp, [])
    with pytest.raises(OptionError, match=r"of='score' chooses a column of an evaluation"):
        plot_corp(everything().curve("corp", "score"), "score")
    refuses(OptionError, "of='score' chooses", plot_score_distributions, everything().distribution("score"), "score")
    for of in (None, "missing"):
        with pytest.raises(OptionError, match="name the score column of the plot of thresholds with of=; there are: "):
            plot_thresholds(everything(), of)
    with pytest.raises(OptionError, match="no plot of thresholds, since no score column was evaluated"):
        plot_thresholds(evaluate(DATA, cluster="cluster"))
    with pytest.raises(OptionError, match="plot of thresholds of 'score' is not defined: one class only"):
        plot_thresholds(evaluate(pa.table({"label": [0, 0], "score": [0.1, 0.5]}), score="score"))
    given: Any = everything().curve("gain", "score")
    with pytest.raises(OptionError, match=r"not a distribution; give an evaluation, or take evaluation.distribution"):
        plot_score_distributions(given)
    refuses(OptionError, "no purity curve, since no cluster column", plot_purity_by_size, evaluate(DATA, score="score"))


def test_distributions_by_class() -> None:
    """Counts in the legend, a logarithmic axis when asked."""
    ax = plot_score_distributions(everything(), "score", log=True)
    positives = int(np.sum(DATA["label"].to_numpy()))
    assert legend(ax) == [f"negative ({DATA.num_rows - positives:,})", f"positive ({positives:,})"]
    assert ax.get_yscale() == "log"
    one = plot_score_distributions(evaluate(pa.table({"label": [1, 1], "score": [0.5, 0.5]}), score="score"), log=True)
    assert legend(one) == ["negative (0)", "positive (2)"]
    short = evaluate(pa.table({"label": [0, 0, 0, 1], "score": [0.1, 0.5, 0.5, 0.9]}), score="score")
    low, high = (ax := plot_score_distributions(short, log=True)).get_ylim()
    assert sum(low <= tick <= high for tick in ax.get_yticks()) >= 2  # densities within a decade
    odd = evaluate(pa.table({"label": [0, 1, 1, 1], "score": [0.5, 0.7, np.inf, -np.inf]}), score="score")
    assert legend(plot_score_distributions(odd)) == ["negative (1)", "positive (1, 2 more infinite)"]


def test_thresholds_give_what_a_count_gives() -> None:
    """Precision, recall and the share flagged at every threshold drawn; operating points are marked."""
    ax = plot_thresholds(everything(), "other")
    label, score = DATA["label"].to_numpy(), DATA["other"].to_numpy()
    at = line(ax, 0)[0]
    assert at.tolist() == np.unique(score).tolist()
    flagged = [score >= t for t in at]
    np.testing.assert_allclose(line(ax, 0)[1], [label[f].mean() for f in flagged])
    np.testing.assert_allclose(line(ax, 1)[1], [label[f].sum() / label.sum() for f in flagged])
    np.testing.assert_allclose(line(ax, 2)[1], [f.mean() for f in flagged])
    assert ax.get_lines()[0].get_drawstyle() == "steps-pre"
    assert "recall=0.9" in texts(ax)
    assert plot_thresholds(everything().curve("gain", "score"), log=True).get_xscale() == "log"
    negative = evaluate(pa.table({"label": [0, 1], "score": [-2.0, -1.0]}), score="score")
    refuses(OptionError, "above 0: leave out log", plot_thresholds, negative, log=True)


def test_thresholds_that_metrics_choose_are_marked() -> None:
    """After the operating points; long names stand apart, and the legend hides none."""
    costs = [f"cost_min@fp=1,fn={fn}" for fn in (10, 11, 12, 13)]
    found = evaluate(DATA, score="score", at=["recall=0.9", "share=0.2"], metrics=["f1_max", *costs])
    ax = plot_thresholds(found)
    named = {text.get_text(): text.get_window_extent() for text in ax.texts if text.get_text()}
    assert named.keys() == {"recall=0.9", "share=0.2", "f1_max", *costs}
    box = ax.get_legend()
    for one, other in combinations([*named.values(), box.get_window_extent()], 2):
        assert not one.overlaps(other)


def test_slices_have_their_rows() -> None:
    """Sorted by value; null and the text that reads like it are told apart; the line is that of all rows."""
    ax = plot_slices(everything(), "country", "roc_auc", "score")
    rows = everything().slices("country").to_pylist()
    best = max(rows, key=lambda row: row["roc_auc[score]"])
    names = [tick.get_text() for tick in ax.get_yticklabels()]
    assert sorted(names) == ["'null'", "DE", "FR", "null"]
    assert names[-1] == {None: "null", "null": "'null'"}.get(best["country"], best["country"])
    assert sorted(texts(ax)) == sorted(f"{row['rows']:,} rows" for row in rows)
    assert legend(ax) == [f"all rows: {everything().value('roc_auc', 'score'):.4f}"]
    with pytest.raises(OptionError, match=r"computed for score, other; say which with of="):
        plot_slices(everything(), "country", "roc_auc")
    with pytest.raises(OptionError, match=r"no roc_auc by 'night'; there are slices by: country$"):
        plot_slices(everything(), "night", "roc_auc")
    with pytest.raises(OptionError, match=r"no roc_au by 'country'; did you mean 'roc_auc'\? there are: roc_auc, "):
        plot_slices(everything(), "country", "roc_au")
    refuses(OptionError, "by was not given", plot_slices, evaluate(DATA, score="score"), "country", "roc_auc")


def test_curves_of_many_slices_look_different() -> None:
    """Those of one colour are dashed apart; a list of curves is refused with what to do."""
    data = pa.table({"label": [0, 1] * 40, "score": np.arange(80) * 7 % 80 / 80, "c": np.arange(80) // 4})
    found = evaluate(data, score="score", by="c", metrics="roc_auc")
    curves = [found.curve("roc", slice={"c": i}) for i in range(20)]
    ax = Figure().add_subplot()  # without a layout, which is made again for each curve
    for curve in curves:
        plot_curve(curve, ax=ax)
    drawn = [line for line in ax.get_lines() if str(line.get_label()).startswith("score{")]
    looks = {(line.get_color(), str(line.get_linestyle()), str(line._unscaled_dash_pattern)) for line in drawn}
    assert len(looks) == len(drawn) == 20
    refuses(OptionError, "draws one Curve of an evaluation, not list; draw several on one ax", plot_curve, curves)


def test_slices_with_intervals_and_without_values() -> None:
    """Bars are sampling intervals; a slice without a value says why; of many slices the largest are drawn."""
    made = [
        Scalar("roc_auc", 0.9, "s", 0.9, 0.9, rows=50 + i, slice={"c": i}, ci_lower=0.8, ci_upper=0.95)
        for i in range(60)
    ]
    made[59] = replace(Scalar.undefined("roc_auc", "one class only"), of="s", rows=1000, slice={"c": 59})
    ax = plot_slices(replace(everything(), results=tuple(made)), "c", "roc_auc")
    assert "the 40 largest of 60 slices" in ax.get_title()
    assert texts(ax)[0] == "1,000 rows: one class only"
    assert line(ax, 1)[0].tolist() == [0.8, 0.95]


def test_differences_say_their_verdict_and_unit() -> None:
    """In words and by their marker, not by colour alone; a unit once, below the axis, where all have the same."""
    ax = plot_differences(DIFFERENCES)
    assert texts(ax) == ["below five effective units", "worse, p < 0.0001", "better, p = 0.001"]
    assert "95% interval" in ax.get_xlabel()
    markers = [drawn.get_marker() for drawn in ax.get_lines() if drawn.get_marker() not in ("None", None, "")]
    assert markers == ["o", "v", "D"]
    assert (
        len(texts(plot_differences(replace(everything(), results=(*everything().results, *DIFFERENCES)), "agc"))) == 1
    )
    one, other, *_ = (replace(r, unit="campaign") for r in DIFFERENCES if r.ci_lower is not None)
    assert plot_differences([one, other]).get_xlabel() == "Difference, with its 95% interval by campaign"
    ax = plot_differences([one, replace(other, unit="sender")])
    assert ax.get_xlabel() == "Difference, with its 95% interval"
    assert [text.rpartition(", ")[2] for text in texts(ax)] == ["by sender", "by campaign"]
    refuses(OptionError, r"no differences of aul; name a baseline \(--baseline\)", plot_differences, DIFFERENCES, "aul")


def test_attribution_ends_at_the_last_group() -> None:
    """The running share of each table, dotted from the last group found to the last there is."""
    ax = plot_attribution(costs())
    np.testing.assert_array_equal(line(ax, 0)[1], costs().merges["running_share"].to_numpy())
    assert line(ax, 1)[0].tolist() == [5, costs().totals["merged_clusters"]]
    assert ax.get_xscale() == "log"
    assert legend(ax)[0] == f"false pairs (5 of {costs().totals['merged_clusters']:,} clusters of several classes)"
    pure = attribute(pa.table({"c": [1, 1, 2], "k": [1, 1, 2]}), cluster="c", classes="k")
    refuses(OptionError, "nothing was lost", plot_attribution, pure)


def test_purity_is_that_of_the_clusters() -> None:
    """Rows and positives of clusters of similar size add up."""
    curve = everything().curve("purity")
    sizes = DATA.group_by("cluster").aggregate([("label", "count"), ("label", "sum")]).to_pandas()
    for low, high, share, rows in zip(curve.low, curve.high, curve.y, curve.counts, strict=True):
        chosen = sizes[(sizes["label_count"] >= low) & (sizes["label_count"] <= high)]
        assert chosen["label_count"].sum() == rows
        assert chosen["label_sum"].sum() / rows == pytest.approx(share)
    assert curve.counts.sum() == DATA.num_rows
    ax = plot_purity_by_size(curve)
    bars = ax.figure.axes[1].patches
    assert [bar.get_height() for bar in bars] == curve.counts.tolist()


def test_the_worst_clusters_are_marked() -> None:
    """Numbered on the curve, listed with their rows; without impure clusters there are none."""
    ax = plot_worst_clusters(everything(), costs(), most=2)
    worst = costs().impure.to_pylist()[0]
    assert texts(ax)[:2] == ["1", "2"]
    listed = texts(ax)[2].splitlines()
    assert listed[0] == f"1  {worst['cluster']}: {worst['rows']:,} rows, {worst['positives']:,} positive"
    with pytest.raises(OptionError, match=r"attribute with a label \(--label\)"):
        plot_worst_clusters(everything(), attribute(DATA, cluster="cluster", classes="campaign"))


def test_a_band_says_how_few_units_it_rests_on_and_where_it_is_missing() -> None:
    """A reader would take a missing band for certainty."""
    x = np.array([0.0, 1.0])
    few = Band(x, x / 2, x, 0.95, "campaign", effective_units=11.4)
    assert legend(plot_curve(Curve("roc", "s", x, x, x, 0.5, band=few)))[-1] == (
        "95% at each point, by campaign (11 effective units)"
    )
    none = replace(few, lower=x * np.nan, upper=x * np.nan, reason="at most 11.4 effective units")
    ax = plot_curve(Curve("gain", "s", x, x, x, 0.5, band=none))
    assert legend(ax)[-1] == "no 95% intervals by campaign (11 effective units)"
    assert not any(path.vertices.size for band in ax.collections for path in band.get_paths())


def test_one_figure_of_everything(tmp_path: Path) -> None:
    """The first panel of each kind, the names of the others, and the reason where one is not defined."""
    figure = plot(
        replace(everything(), results=(*everything().results, *DIFFERENCES * 5)), save_to=tmp_path / "all.png"
    )
    titles = [ax.get_title() for ax in figure.axes if ax.get_title()]
    assert titles == [
        "ROC curve", "Precision-recall curve", "Reliability", "Lift curve", "Differences, 10 of 15",
        "roc_auc of score by country",
    ]  # fmt: skip
    left = " ".join(figure.get_supxlabel().split())
    assert left.startswith("Not drawn: Gain curve; Distribution of score; Distribution of other; Isotonic fit (CORP)")
    assert left.endswith("roc_auc of other by country; aul of cluster by country")
    low = evaluate(DATA, score="score", at=["fpr=0.005", "fpr=0.2"], metrics="roc_auc")
    [roc] = [ax for ax in plot(low).axes if ax.get_title() == "ROC curve"]
    assert roc.get_xscale() == "log"
    assert [float(np.asarray(one.get_xdata())[0]) for one in roc.get_lines()[-2:]] == [0.005, 0.2]
    perfect = DATA.append_column("perfect", [DATA["label"].cast("float64")])
    plot(evaluate(perfect, score=["perfect", "score"], metrics=["tpr@fpr=0.001", "fpr@tpr=0.9"])).canvas.draw()
    assert (tmp_path / "all.png").stat().st_size > 10_000
    one = evaluate(pa.table({"label": [1, 1], "score": [0.5, 0.7]}), score="score")
    panels = {ax.get_title(): texts(ax) for ax in plot(one).axes}
    assert "one class only" in panels["ROC curve"][0].replace("\n", " ")
    assert not panels["Distribution of score"]
    logits = DATA.append_column("logit", [np.log(DATA["score"].to_numpy())])
    panels_of_two = {ax.get_title(): ax for ax in plot(evaluate(logits, score=["logit", "score"], metrics="ece")).axes}
    for title in ("Reliability", "Isotonic fit (CORP)"):  # of the score that is a probability, in its colour
        [curve] = [drawn for drawn in panels_of_two[title].get_lines() if "score" in str(drawn.get_label())]
        assert to_hex(curve.get_color()) == COLORS[1].lower()
    nothing = evaluate(pa.table({"label": [1, 0], "x": [0.5, 0.7]}), sketch="x")
    refuses(OptionError, "nothing to draw", plot, nothing)
