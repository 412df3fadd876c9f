"""Plots of curves: labels, overlaps, output files and rejected input."""

import subprocess
import sys
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.transforms import Bbox
from refusals import refuses

from streameval.arrays.curves import (
    RocCurve,
    agc_score,
    plot_gain_curve,
    plot_precision_recall_curve,
    precision_recall_curve,
    roc_curve,
)
from streameval.arrays.lift import LiftCurve
from streameval.errors import DataError, OptionError
from streameval.plots import plot_curve, plot_gain, plot_lift, plot_precision_recall, plot_roc
from streameval.results import Curve

NAMES = ("roc", "precision_recall", "gain", "lift")
X = np.array([0.0, 0.25, 0.5, 1.0])
Y = np.array([0.0, 0.5, 0.75, 1.0])


def curve(name: str, **facts: Any) -> Curve:
    """A small curve of that name, 100 points with 20 positives."""
    y = Y[::-1] if name == "precision_recall" else Y
    known: dict[str, Any] = {"of": "score", "area": 0.65, "positives": 20, "rows": 100} | facts
    return Curve(name, x=X, y=y, thresholds=1 - X, **known)


def entries(ax: Axes) -> list[str]:
    """Texts of the legend."""
    legend = ax.get_legend()
    return [text.get_text() for text in legend.get_texts()]


def ranking(quality: float, size: int = 2000, share: float = 0.2) -> tuple[np.ndarray, np.ndarray]:
    """Labels, and normal scores whose positives lie `quality` deviations higher."""
    random = np.random.default_rng(5)
    labels = (random.random(size) < share).astype(int)
    return labels, labels * quality + random.normal(size=size)


@pytest.mark.parametrize(
    ("name", "area", "random", "best"),
    [
        ("roc", "AUC", "random", [[0, 0], [0, 1], [1, 1]]),
        ("precision_recall", "area", "random (positives: 0.2)", [[0, 1], [1, 1], [1, 0.2]]),
        ("gain", "area", "random", [[0, 0], [0.2, 1], [1, 1]]),
        ("lift", "AUL", "no clustering", [[0, 1], [1, 1]]),
    ],
)
def test_every_curve(name: str, area: str, random: str, best: list[list[float]]) -> None:
    """Curve, random line and the best that these data allow; area with four decimals, labels, limits, square axes."""
    ax = plot_curve(curve(name))
    assert entries(ax)[:3] == [f"score ({area} = 0.6500)", random, "best possible"]
    assert all((ax.get_title(), ax.get_xlabel(), ax.get_ylabel()))
    assert ax.get_xlim() == ax.get_ylim() == (0, 1)
    assert ax.get_aspect() == 1
    drawn, baseline, ideal = ax.get_lines()
    np.testing.assert_array_equal(drawn.get_xdata(), X)
    assert np.column_stack(ideal.get_data()).tolist() == best
    assert name != "precision_recall" or np.asarray(baseline.get_ydata()).tolist() == [0.2, 0.2]


@pytest.mark.parametrize("name", NAMES)
def test_truncation(name: str) -> None:
    """The axis ends where asked, the legend says whose area it prints, and a gain curve is seen close up."""
    ax = plot_curve(curve(name), truncate=0.1)
    assert ax.get_xlim() == (0, 0.1)
    assert "(full " in entries(ax)[0]
    assert ax.get_ylim()[1] == pytest.approx(0.5 if name == "gain" else 1)


def test_curves_share_axes_with_others() -> None:
    """A second curve has another colour and shares the random and the best line; a line without a label stays out."""
    figure = Figure()
    left, right = figure.subplots(1, 2)
    right.axvline(0.1)
    assert plot_curve(curve("roc"), ax=right) is right
    assert plot_curve(curve("roc", of="other", exact=False), ax=right) is right
    assert entries(right) == ["score (AUC = 0.6500)", "other (AUC ≈ 0.6500)", "random", "best possible"]
    assert len({line.get_color() for line in right.get_lines()[1:]}) == 4
    assert not left.get_lines()


def assert_clear(ax: Axes, curves: list[Line2D]) -> None:
    """Legend and thresholds keep clear of each other, and the legend of the curves."""
    legend = ax.get_legend()
    assert legend is not None
    boxes = [Bbox(text.get_window_extent()) for text in (*ax.texts, legend)]
    for one, other in combinations(boxes, 2):
        assert not one.shrunk(0.98, 0.9).overlaps(other)
    for line in curves:
        assert not boxes[-1].shrunk(0.98, 0.98).count_contains(ax.transData.transform(np.column_stack(line.get_data())))


def test_pictures_of_arrays(tmp_path: Path) -> None:
    """Labels and scores are drawn with their normalised area, up to the truncation, also weighted and by points."""
    labels, scores = ranking(1.5)
    ax = plot_gain_curve(labels, scores, save_to=tmp_path / "gain.png", of="score")
    assert entries(ax) == [f"score (AGC = {agc_score(labels, scores):.4f})", "random", "best possible"]
    assert (tmp_path / "gain.png").stat().st_size
    for cut in (0.1, 200):
        ax = plot_gain_curve(labels, scores, truncate=cut)
        assert ax.get_xlim() == (0, pytest.approx(0.1))
        assert entries(ax)[0] == f"AGC = {agc_score(labels, scores, truncate=0.1):.4f}"
    weight = np.where(labels, 4.0, 1.0)
    ax = plot_gain_curve(labels, scores, sample_weight=weight)
    assert np.asarray(ax.get_lines()[2].get_xdata())[1] == pytest.approx((labels * 4).sum() / weight.sum())
    assert entries(plot_gain_curve([0, 0], [1, 2]))[0] == "AGC not defined"
    assert entries(plot_precision_recall_curve(labels, scores))[1] == f"random (positives: {labels.mean():.4g})"


@pytest.mark.parametrize("quality", [-3.0, 0.0, 1.0, 2.5, 9.0])
def test_nothing_overlaps(quality: float) -> None:
    """Bad, fair, good and perfect rankings: labels lie within the frame, and most pictures have several."""
    counts = []
    for share, truncate in product((0.02, 0.5), (None, 0.3) if quality == 1.0 else (None,)):
        labels, scores = ranking(quality, share=share)
        precision, recall, thresholds = precision_recall_curve(labels, scores)
        facts: dict[str, Any] = {"balance": share, "of": "score_lr", "truncate": truncate}
        ax = plot_precision_recall(recall, precision, thresholds, 0.5, **facts)
        assert_clear(ax, [])
        frame = ax.get_window_extent().padded(3)
        boxes = [text.get_window_extent() for text in ax.texts]
        assert all(frame.containsx(box.x0) and frame.containsx(box.x1) for box in boxes)
        counts.append(len(ax.texts))
    assert max(counts) <= 10
    assert max(counts) >= 3


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf", "PNG"])
def test_saved(suffix: str, tmp_path: Path) -> None:
    """Each format is written by its suffix."""
    path = tmp_path / f"roc.{suffix}"
    plot_curve(curve("roc"), save_to=path)
    start = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[suffix.lower()]
    assert path.read_bytes().startswith(start)
    plot_curve(curve("roc"), save_to=str(path))
    path.unlink()
    path.mkdir()
    with pytest.raises(OptionError, match=rf"roc\.{suffix}' cannot be written \(Is a directory\)"):
        plot_curve(curve("roc"), save_to=path)


def test_no_pyplot(tmp_path: Path) -> None:
    """A picture needs neither pyplot nor a display, and matplotlib is imported only when one is drawn."""
    code = (
        "import sys, streameval.plots, streameval.arrays.curves as r, streameval.arrays.lift as l\n"
        "assert not any(name.startswith('matplotlib') for name in sys.modules)\n"
        f"r.RocCurve.from_labels([0, 1], [1, 2]).plot(save_to={str(tmp_path / 'a.png')!r})\n"
        f"l.LiftCurve.from_clusters([[1], [0]]).plot(save_to={str(tmp_path / 'b.svg')!r})\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert {path.name for path in tmp_path.iterdir()} == {"a.png", "b.svg"}


def test_methods(tmp_path: Path) -> None:
    """`RocCurve.plot` and `LiftCurve.plot` shade by default, mark points if asked, and say their area."""
    roc = RocCurve.from_labels(*ranking(1.0))
    ax = roc.plot(marker="o", save_to=tmp_path / "roc.png")
    assert entries(ax)[0] == f"AUC = {roc.auc_score():.4f}"
    assert ax.get_lines()[0].get_marker() == "o"
    assert len(ax.collections) == 1
    assert not roc.plot(False).collections
    lift = LiftCurve.from_clusters([[1, 1, 0], [1], [0]])
    assert entries(lift.plot(3, False))[0] == f"AUL = {lift.aul_score(3):.4f}"
    assert lift.plot(ax=ax, of="tight") is ax
    assert entries(ax)[1] == f"tight (AUL = {lift.aul_score():.4f})"
    assert roc.plot(of="score", truncate=0.1).get_xlim() == (0, 0.1)


def test_undefined_curves() -> None:
    """One class, no positives, no points: an empty frame that says so, without a warning."""
    assert entries(RocCurve.from_labels([0, 0], [1, 2]).plot())[0] == "AUC not defined"
    LiftCurve.from_clusters([[0], [0]]).plot()
    plot_roc([], [])
    plot_gain([], [], balance=0.0, truncate=0.5)
    plot_precision_recall([1, 1, 0], [0, 0, 1], [0.1, 0.2], balance=0.0)
    plot_precision_recall([1], [1], [np.inf])


def test_long_curves_are_thinned() -> None:
    """A million points become a few thousand that no eye can tell from the whole, its steep start included."""
    random = np.random.default_rng(2)
    labels, scores = ranking(2.0, size=1_000_000, share=0.001)
    scores += random.random(scores.size) * 1e-9
    fpr, tpr, _ = roc_curve(labels, scores, drop_intermediate=False)
    line = plot_roc(fpr, tpr).get_lines()[0]
    x, y = np.asarray(line.get_xdata()), np.asarray(line.get_ydata())
    assert x.size <= 5000
    assert (x[0], y[0], x[-1], y[-1]) == (0, 0, 1, 1)
    assert np.abs(np.interp(fpr[::97], x, y) - tpr[::97])[fpr[::97] > 1e-3].max() < 0.003
    close = plot_roc(fpr, tpr, truncate=1e-3).get_lines()[0]
    assert 500 < np.asarray(close.get_xdata()).size <= 5000


def test_refusals() -> None:
    """One line that names the argument and the remedy."""
    for options, message in (
        ({"truncate": 0}, "truncate=0"),
        ({"truncate": -1.0}, "truncate=-1"),
        ({"truncate": float("nan")}, "truncate=nan"),
    ):
        refuses(OptionError, message, plot_curve, curve("roc"), **options)
    refuses(OptionError, "there are roc, precision_recall, gain and lift", plot_curve, curve("cost"))
    refuses(DataError, r"x and y have shapes \(2,\) and \(3,\)", plot_lift, [0, 1], [0, 1, 1])
    refuses(DataError, "fpr and tpr", plot_roc, "ab", [0, 1])
    refuses(OptionError, "balance=2", plot_gain, [0, 1], [0, 1], balance=2)
    refuses(DataError, "thresholds has 1 value for 3 points", plot_precision_recall, [1, 1, 0], [0, 0, 1], [0.1])
