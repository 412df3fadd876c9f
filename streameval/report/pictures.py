"""Figures on a page other than curves: calibration, distributions, thresholds, slices, differences.

`streameval.plots` draws each; a key and a text alternative describe it in words. A figure that cannot be drawn is left
out, for instance the calibration of scores that are not probabilities.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streameval.errors import OptionError
from streameval.plots import (
    plot_attribution,
    plot_differences,
    plot_purity_by_size,
    plot_score_distributions,
    plot_slices,
    plot_thresholds,
)
from streameval.plots.calibration import draw_corp, draw_reliability
from streameval.plots.series import plot_series
from streameval.report.elements import Figure, Key
from streameval.report.figures import Canvas, look
from streameval.report.sentences import joined
from streameval.report.values import NONE, number
from streameval.wording import plural, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from matplotlib.axes import Axes

    from streameval.plots.sources import Attributed
    from streameval.results import Curve, Distribution, Scalar

_LINES = 40  # slices or differences in a picture
_TEXT = 5.2  # points per letter of a name


@dataclass(frozen=True)
class Drawn:
    """Results and curves in the form that plots read; see `streameval.plots.sources.Evaluated`."""

    results: tuple[Scalar, ...]
    curves: tuple[Curve, ...] = ()

    def curve(self, name: str, of: str | None = None) -> Curve:
        """A curve of a column."""
        for curve in self.curves:
            if curve.name == name and of in (None, curve.of):
                return curve
        msg = f"there is no {name} curve of {of}"
        raise OptionError(msg)

    def distribution(self, of: str | None = None) -> Distribution:
        """Raise, because distributions are drawn directly."""
        msg = f"there is no distribution of {of}"
        raise OptionError(msg)

    def columns(self, family: str) -> tuple[str, ...]:
        """Columns that have a gain curve."""
        return tuple(curve.of or "" for curve in self.curves if curve.name == "gain" and family == "score")


def _figure(
    prefix: str,
    title: str,
    description: str,
    draw: Callable[..., object],
    key: Sequence[Key] = (),
    *shown: object,
    wide: bool = False,
    **size: float,
) -> Iterator[Figure]:
    """The figure, if it can be drawn; `draw` is called with the axes and `shown`."""
    with suppress(OptionError):
        canvas = Canvas(prefix, **size)
        with canvas.drawing() as axes:
            draw(axes, *shown)
            canvas.fit()
        yield Figure(title, description, canvas.svg(title, description), tuple(key), wide)


def _without_texts(ax: Axes) -> None:
    """Remove texts on the axes, which the key repeats."""
    for text in list(ax.texts):
        text.remove()


def calibration(curves: Sequence[Curve], colours: Mapping[str, int]) -> Iterator[Figure]:
    """Reliability and CORP diagrams of all scores, each score in its colour."""
    for name, title, area, draw in (
        ("reliability", "Reliability", "ECE", draw_reliability),
        ("corp", "Isotonic fit (CORP)", "miscalibration", draw_corp),
    ):
        found = [curve for curve in curves if curve.name == name]
        if found:
            places = [colours[curve.of or ""] for curve in found]
            key = [Key(c.of or "", f"{area} {number(c.area)}", look(i)) for i, c in zip(places, found, strict=True)]
            told = f"{title}: {'; '.join(f'{k.name}, {k.value}' for k in key)}. Dashed: calibrated."
            bottom = 92 if name == "reliability" else 36
            yield from _figure(
                name,
                title,
                told,
                draw,
                [*key, Key("calibrated", "", "ref")],
                found,
                places,
                height=236 + bottom,
                bottom=bottom,
            )


def distributions(found: Sequence[Distribution]) -> Iterator[Figure]:
    """The distribution of the scores of each class."""
    for i, one in enumerate(found):
        sizes = [f"{side.sum():,.6g}" for side in (one.negatives, one.positives)]
        key = [Key("negative", sizes[0], "s1"), Key("positive", sizes[1], "s2")]
        told = f"Densities of {one.of} within each class: {sizes[0]} negative, {sizes[1]} positive."
        yield from _figure(
            f"scores-{i}",
            one.of,
            told,
            lambda ax, one: plot_score_distributions(one, ax=ax).set(xlabel="Score"),
            key,
            one,
            height=200,
        )


def thresholds(drawn: Drawn, columns: Sequence[str]) -> Iterator[Figure]:
    """Values at each threshold of a score, with the operating points."""
    for i, of in enumerate(columns):
        key = [Key(name, "", look(j)) for j, name in enumerate(("precision", "recall", "share flagged"))]
        told = f"Precision, recall and the share of rows flagged, by the threshold of {of}. Dotted: operating points."
        yield from _figure(
            f"thresholds-{i}",
            of,
            told,
            lambda ax, of: plot_thresholds(drawn, of, ax=ax).set(xlabel="Threshold"),
            key,
            of,
            height=220,
        )


def purity(curves: Sequence[Curve]) -> Iterator[Figure]:
    """Share of positives by the size of clusters."""
    for i, curve in enumerate(curve for curve in curves if curve.name == "purity"):
        told = f"Share of positives by the rows of the cluster, of {curve.of}; {number(curve.area)} of all rows."
        yield from _figure(
            f"purity-{i}",
            f"Purity by size of {curve.of}",
            told,
            lambda ax, curve: _without_texts(plot_purity_by_size(curve, ax=ax)),
            [Key("share of positives", "", "s1"), Key("all rows", number(curve.area), "ref")],
            curve,
            right=52,
            bottom=62,
        )


def slices(drawn: Drawn, by: str, leading: Scalar, names: Sequence[str], prefix: str) -> Iterator[Figure]:
    """The slices with the most rows, by one metric."""
    lines = min(len(names), _LINES)
    title = f"{leading.metric} of {leading.of} by {by}" if leading.of else f"{leading.metric} by {by}"
    told = f"{title}: the {plural(lines, 'slice')} with the most rows, and the value of all rows."
    yield from _figure(
        prefix,
        title,
        told,
        lambda ax: plot_slices(drawn, by, leading.metric, leading.of, ax=ax),
        [Key("slice", "", "s1"), Key("all rows", "", "ref")],
        wide=True,
        width=620,
        height=52 + 15 * lines,
        left=_margin(names),
    )


def differences(found: Sequence[Scalar]) -> Iterator[Figure]:
    """Differences that have an interval: better, worse, or not shown."""
    shown = [one for one in found if one.ci_lower is not None and math.isfinite(one.value)][:_LINES]
    if not shown:
        return
    told = joined([f"{one.metric}, {one.of}: {number(one.value, signed=True)}, {one.verdict or NONE}" for one in shown])
    yield from _figure(
        "differences",
        "Differences and their intervals",
        f"{told}. Dashed: no difference.",
        lambda ax: plot_differences(shown, ax=ax),
        [Key("better", "", "s1"), Key("worse", "", "s2"), Key("not shown", "", "grey")],
        wide=True,
        width=620,
        height=52 + 30 * len(shown),
        left=_margin([name for one in shown for name in (one.metric, one.of or "")]),
    )


def concentration(found: Attributed) -> Iterator[Figure]:
    """The concentration of the loss in a few groups."""
    there = [
        (name, said)
        for name, said in (("merges", "false pairs"), ("splits", "missed pairs"), ("impure", "lost area"))
        if (table := getattr(found, name)) is not None and table.num_rows
    ]
    key = [Key(said, "", look(i)) for i, (_, said) in enumerate(there)]
    losses = joined([said for _, said in there] or [""])
    told = f"Share of the loss against the number of groups, the worst first: {losses}."
    yield from _figure(
        "concentration", "Share of the loss in the worst groups", told, lambda ax: plot_attribution(found, ax=ax), key,
        wide=True, width=460, height=240,
    )  # fmt: skip


def nights(
    title: str,
    names: Sequence[str],
    lines: Mapping[str, Sequence[Scalar | None]],
    failed: Sequence[str],
    prefix: str,
) -> Iterator[Figure]:
    """Values night by night; nights that fail are marked."""
    points = {
        name: [(one.value, *one.ends) if one is not None else (float("nan"),) * 3 for one in line]
        for name, line in lines.items()
    }
    key = [Key(name, _range(line), look(i, dashed=True)) for i, (name, line) in enumerate(lines.items())]
    marked = [Key("failed", plural(len(failed), "night"), "bad")] if failed else []
    told = f"{title} of {plural(len(names), 'night')}: {'; '.join(f'{k.name}, {k.value}' for k in key)}."
    told += f" Failed: {joined(list(failed))}." if failed else ""
    yield from _figure(
        prefix,
        title,
        told,
        lambda ax: plot_series(names, points, title, marked=[names.index(each) for each in failed], ax=ax),
        [*key, *marked],
        wide=True,
        width=620,
        height=220,
        bottom=56,
    )


def _range(line: Sequence[Scalar | None]) -> str:
    """The lowest and the highest value."""
    values = [one.value for one in line if one is not None and one.value == one.value]
    return f"{number(min(values))} to {number(max(values))}" if values else "not defined"


def _margin(names: Sequence[str]) -> float:
    """The left margin that names need, in points; plots shorten them to this."""
    return 16 + _TEXT * min(max((len(visible(name)) for name in names), default=0), 40)
