"""Format values for tables of the terminal."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streameval.wording import visible, visible_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    from streameval.results import Scalar

_WHOLE = 1e15  # larger floats are always whole, so they are not recognised as counts


def cell(result: Scalar | None) -> str:
    """Format a value: six decimals (none for counts), then its interval, half-width, or sampling error.

    Examples
    --------
    >>> from streameval.results import Scalar
    >>> cell(Scalar.certain("roc_auc", 2 / 3)), cell(Scalar.between("roc_auc", 0.5, 0.499, 0.501))
    ('0.666667', '0.500000 ± 1.0e-03')
    >>> cell(Scalar.certain("pairwise.TN", 28205266.0))
    '28,205,266'
    >>> cell(Scalar("agc_approx", 0.5, exact=False, stderr=0.002, bound=0.001))
    '0.500000, sampled: bound 1.0e-03, standard error 2.0e-03'
    """
    if result is None:
        return ""
    if result.value != result.value:
        return f"– ({result.reason})" if result.reason else "–"
    count = 1 < abs(result.value) < _WHOLE and float(result.value).is_integer()
    text = f"{result.value:,.0f}" if count else f"{result.value:.{'6f' if abs(result.value) < 1e6 else '6g'}}"
    if result.threshold is not None:
        text += f" @ {result.threshold:.5g}"  # points with at least this score are flagged
    if result.ci_lower is not None and result.ci_upper is not None and result.exact:
        return with_interval(result)
    if result.exact:
        return text
    width = max(result.upper - result.value, result.value - result.lower)
    if width == width and result.ci_lower is not None:
        return f"{with_interval(result)} ± {width:.1e}"
    if width == width:
        return f"{text} ± {width:.1e}"
    known = (("bound", result.bound), ("standard error", result.stderr))
    said = ", ".join(f"{name} {size:.1e}" for name, size in known if size is not None)
    text = text if result.ci_lower is None else with_interval(result)
    return f"{text}, sampled: {said}" if said else f"{text} (estimate)"


def short(result: Scalar | None) -> str:
    """Format a value; a missing one has no reason here, because a line below the table gives it."""
    return cell(result) if result is None or result.value == result.value else "–"


def with_interval(result: Scalar, *, signed: bool = False) -> str:
    """A value with its sampling interval, rounded to two digits of its width (4 to 6 decimals); then the threshold.

    >>> from streameval.results import Scalar
    >>> with_interval(Scalar("roc_auc", 0.99213, ci_lower=0.98742, ci_upper=0.99511))
    '0.9921 [0.9874, 0.9951]'
    """
    low, high = result.ci_lower or 0.0, result.ci_upper or 0.0
    places = min(6, max(4, 1 - math.floor(math.log10(high - low)))) if high > low else 6
    form = f"{'+' * signed}.{places}f" if abs(result.value) < 1e4 else f"{'+' * signed}.6g"
    value, *ends = (f"{x:{form}}".replace("-", "−") for x in (result.value, low, high))
    at = f" @ {result.threshold:.5g}" if result.threshold is not None else ""
    return f"{value} [{', '.join(ends)}]{at}"


def escaped(text: str) -> str:
    r"""A text from data for `rich`, which neither takes it for markup nor passes control characters on.

    >>> print(escaped("[red]\x1b[2J"))
    \[red]\x1b[2J
    """
    from rich.markup import escape

    return escape(visible(text))


@dataclass(frozen=True)
class Visible:
    """Anything that `rich` can show, with invisible characters spelled out: the last step before the terminal."""

    shown: RenderableType

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        from rich.segment import Segment

        for segment in console.render(self.shown, options):
            text = segment.text if segment.control else visible_lines(segment.text)
            yield Segment(text, segment.style, segment.control)
