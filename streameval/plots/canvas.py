"""Common parts of all plots: their inputs, figures outside pyplot, colours, frames, and files.

Inputs are results, or an evaluation that provides them. Colours are those of Okabe and Ito, which most colour-blind
readers can distinguish. Plots do not rely on colour alone: lines have names, and verdicts are written out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from streameval.errors import OptionError
from streameval.results import Curve, Distribution, Scalar
from streameval.wording import visible_lines

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure


COLORS = ("#0072B2", "#D55E00", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES = ("solid", (0, (5, 2)), (0, (2, 2)), (0, (7, 2, 2, 2)))  # offset; points drawn and left out, as in page.css
BLUE, RED = COLORS[:2]  # negatives and positives, better and worse
GREY, GREEN = "#7F7F7F", "#009E73"
REFERENCE: dict[str, Any] = {"color": GREY, "linestyle": (0, (5, 3)), "linewidth": 1.2}  # as .ref in page.css
_FORMATS = (".png", ".svg", ".pdf")


def color(i: int) -> str:
    """The colour of the i-th line; colours repeat after the sixth."""
    return COLORS[i % len(COLORS)]


def dash(i: int) -> str | tuple[int, tuple[int, ...]]:
    """The dashes of the i-th line: lines of one colour differ.

    >>> dash(0) == dash(5) != dash(6) != dash(12)
    True
    """
    return DASHES[i // len(COLORS) % len(DASHES)]


def check_path(save_to: str | Path | None) -> Path | None:
    """The path of an image file, checked; None if there is none.

    Raises
    ------
    OptionError
        If the suffix is not a known format, or the folder does not exist.
    """
    if save_to is None:
        return None
    path = Path(save_to)
    if path.suffix.lower() not in _FORMATS:
        raise OptionError(f"save_to={str(save_to)!r} has no known image format; end it in .png, .svg or .pdf")
    if not path.parent.is_dir():
        raise OptionError(f"save_to={str(save_to)!r}: there is no folder {str(path.parent)!r}; make it first")
    return path


def save(figure: Figure, path: Path | None) -> None:
    """Write a figure to a checked path, if there is one; raises `OptionError` if it cannot be written."""
    if path is None:
        return
    _show_visibly(figure)
    try:
        figure.savefig(path)
    except OSError as error:
        raise OptionError(
            f"save_to={str(path)!r} cannot be written ({error.strerror or error}); give another path"
        ) from error


def _show_visibly(figure: Figure) -> None:
    """Spell out characters of names that no font has, and that would make an SVG file malformed."""
    from matplotlib.text import Text
    from matplotlib.ticker import FixedFormatter

    for text in figure.findobj(Text):
        text.set_text(visible_lines(text.get_text()))
    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        formatter = axis.get_major_formatter()
        if isinstance(formatter, FixedFormatter):
            formatter.seq = list(map(visible_lines, formatter.seq))


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of a size in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=160, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def new_axes(width: float = 5.0, height: float = 5.0) -> Axes:
    """The only axes of a new figure."""
    return new_figure(width, height).add_subplot()


def figure_of(ax: Axes) -> Figure:
    """The figure that holds the axes."""
    figure = ax.get_figure(root=True)
    if figure is None:
        raise OptionError("ax has no figure; give axes of a figure")
    return figure


def plain_frame(ax: Axes) -> None:
    """A light frame and grid, behind everything."""
    ax.grid(visible=True, color="#E6E6E6", linewidth=0.6)
    ax.set_axisbelow(True)
    for spine in ax.spines.values():
        spine.set_color("#C0C0C0")


def plain_log(axis: Axis) -> None:
    """Plain numbers along a logarithmic axis: 0.01, 10, 1,000; also 2 and 5 if it spans less than two decades."""
    from matplotlib.ticker import LogLocator, NullFormatter

    low, high = axis.get_view_interval()
    if high < 100 * low:
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    plain_numbers(axis)
    axis.set_minor_formatter(NullFormatter())


def plain_numbers(axis: Axis) -> None:
    """Plain numbers along an axis, with thousands separators: 0.5, 1,000."""
    from matplotlib.ticker import FuncFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.12g}"))


def finish(ax: Axes, path: Path | None) -> Axes:
    """Save the figure of finished axes if there is a path."""
    save(figure_of(ax), path)
    return ax


@runtime_checkable
class Evaluated(Protocol):
    """The part of `streameval.Evaluation` that plots use."""

    @property
    def results(self) -> tuple[Scalar, ...]:
        """Values of metrics."""

    def curve(self, name: str, of: str | None = None) -> Curve:
        """A curve of a column."""

    def distribution(self, of: str | None = None) -> Distribution:
        """Distribution of the scores of a column."""

    def columns(self, family: str) -> tuple[str, ...]:
        """Columns that have curves."""


class Attributed(Protocol):
    """The part of `streameval.Attribution` that plots use; tables are Arrow tables or None."""

    @property
    def merges(self) -> pa.Table | None:
        """Clusters of several classes."""

    @property
    def splits(self) -> pa.Table | None:
        """Classes in several clusters."""

    @property
    def impure(self) -> pa.Table | None:
        """Clusters with negatives."""

    @property
    def totals(self) -> dict[str, float]:
        """Losses of all groups, and numbers of groups."""


_FAMILIES = {"lift": "cluster", "purity": "cluster"}


def curves_of(found: Evaluated | Curve | Sequence[Curve], name: str, of: str | None) -> list[Curve]:
    """Curves with a name: the given ones, or those of an evaluation for one column or for all.

    Raises
    ------
    OptionError
        If a curve has another name, there is none, or `of` is given with curves.
    """
    if isinstance(found, Evaluated):
        columns = [of] if of is not None else found.columns(_FAMILIES.get(name, "score"))
        return [found.curve(name, column) for column in columns] or [found.curve(name)]
    curves = list(found) if isinstance(found, Iterable) else [found]
    _no_column(of)
    if not curves:
        raise OptionError(f"there is no curve to draw; give {name} curves, or an evaluation")
    for curve in curves:
        if not isinstance(curve, Curve) or curve.name != name:
            given = f"a curve named {curve.name!r}" if isinstance(curve, Curve) else type(curve).__name__
            raise OptionError(f"{given} is not a {name} curve; take evaluation.curve({name!r})")
    return curves


def one_curve(found: Evaluated | Curve, name: str, of: str | None, picture: str | None = None) -> Curve:
    """The single curve with a name; `picture` replaces its name in messages, if the plot has another one.

    Raises
    ------
    OptionError
        As `curves_of`, and if an evaluation has several columns.
    """
    if not isinstance(found, Evaluated):
        return curves_of(found, name, of)[0]
    try:
        return found.curve(name, of)
    except OptionError as error:
        raise OptionError(str(error).replace(f"{name} curve", picture or f"{name} curve"), *error.arguments) from error


def distribution_of(found: object, of: str | None) -> Distribution:
    """The distribution given, or that of an evaluation."""
    if isinstance(found, Distribution):
        _no_column(of)
        return found
    if not isinstance(found, Evaluated):
        raise OptionError("that is not a distribution; give an evaluation, or take evaluation.distribution()")
    return found.distribution(of)


def _no_column(of: str | None) -> None:
    if of is not None:
        raise OptionError(f"of={of!r} chooses a column of an evaluation; leave it out where curves are given")
