"""Inputs of plots: results, or an evaluation that provides them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from streameval.errors import OptionError
from streameval.results import Curve, Distribution

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.results import Scalar


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
    def merges(self) -> Any:
        """Clusters of several classes."""

    @property
    def splits(self) -> Any:
        """Classes in several clusters."""

    @property
    def impure(self) -> Any:
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
        msg = f"there is no curve to draw; give {name} curves, or an evaluation"
        raise OptionError(msg)
    for curve in curves:
        if not isinstance(curve, Curve) or curve.name != name:
            given = f"a curve named {curve.name!r}" if isinstance(curve, Curve) else type(curve).__name__
            msg = f"{given} is not a {name} curve; take evaluation.curve({name!r})"
            raise OptionError(msg)
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
        msg = str(error).replace(f"{name} curve", picture or f"{name} curve")
        raise OptionError(msg, *error.arguments) from error


def distribution_of(found: object, of: str | None) -> Distribution:
    """The distribution given, or that of an evaluation."""
    if isinstance(found, Distribution):
        _no_column(of)
        return found
    if not isinstance(found, Evaluated):
        msg = "that is not a distribution; give an evaluation, or take evaluation.distribution()"
        raise OptionError(msg)
    return found.distribution(of)


def _no_column(of: str | None) -> None:
    if of is not None:
        msg = f"of={of!r} chooses a column of an evaluation; leave it out where curves are given"
        raise OptionError(msg)
