"""Group columns that have the same metrics, so that they share a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streameval.results import Scalar

__all__ = ["alike"]


def alike(results: Iterable[Scalar]) -> list[dict[str, dict[str, Scalar]]]:
    """Groups of columns with the same metrics: in each, results by metric and then by column."""
    by_column: dict[str, dict[str, Scalar]] = {}
    for result in results:
        by_column.setdefault(result.of or "", {})[result.metric] = result
    groups: dict[tuple[str, ...], list[str]] = {}
    for column, found in by_column.items():
        groups.setdefault(tuple(found), []).append(column)
    return [
        {metric: {column: by_column[column][metric] for column in columns} for metric in metrics}
        for metrics, columns in groups.items()
    ]
