"""Columns that could be evaluated: a list with types, nulls and ranges, and a suggested command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streameval.scan import shown
from streameval.scan.survey import survey
from streameval.wording import shell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.scan.survey import ColumnFacts

__all__ = ["candidates", "suggestion", "survey"]


def candidates(found: Sequence[ColumnFacts]) -> list[dict[str, Any]]:
    """The columns of files as plain values: ``column, type, rows, nulls, low, high``."""
    return [
        {
            "column": one.name,
            "type": one.kind,
            "rows": one.rows,
            "nulls": one.nulls,
            "low": _text(one.low),
            "high": _text(one.high),
        }
        for one in found
    ]


def suggestion(data: Sequence[str], found: Sequence[ColumnFacts]) -> str:
    """A command that evaluates the columns of the data that look like scores and clusters.

    A label is a boolean column, or a column with the range 0 to 1 that is named like a label. A score is a column of
    numbers that is named like a score; if there is none, every floating-point column except weights counts. A cluster
    is a column that is named like one and is not floating-point. If footers report nulls, the command drops those rows,
    column by column.
    """
    data = [shown(text) for text in data]  # without credentials
    label = next((one.name for one in found if _is_label(one)), "LABEL")
    scores = [one.name for one in found if one.name != label and _named(one, "score", "prob") and _is_number(one)]
    scores = scores or [one.name for one in found if _is_float(one) and not _named(one, "weight")]
    clusters = [one.name for one in found if _named(one, "cluster") and not _is_float(one)]
    words = ["streameval", "evaluate", *data, "--label", label]
    words += [word for name in scores for word in ("--score", name)]
    words += [word for name in clusters for word in ("--cluster", name)]
    words += ["--score", "SCORE"] if not scores and not clusters else []
    null = {one.name for one in found if one.nulls}
    words += ["--unlabelled", "drop"] if label in null else []
    for option, names in (("--nan", scores), ("--nulls", clusters)):
        words += [word for name in names if name in null for word in (option, f"{name}=drop")]
    return shell(words)


def _named(one: ColumnFacts, *parts: str) -> bool:
    return any(part in one.name.lower() for part in parts)


def _is_float(one: ColumnFacts) -> bool:
    return one.kind in ("halffloat", "float", "double")


def _is_number(one: ColumnFacts) -> bool:
    return _is_float(one) or one.kind.startswith(("int", "uint", "decimal"))


def _is_label(one: ColumnFacts) -> bool:
    """Whether a column looks like labels."""
    return one.kind == "bool" or (_named(one, "label", "target", "class", "spam") and (one.low, one.high) == (0, 1))


def _text(end: Any) -> Any:
    return (
        end
        if end is None or isinstance(end, bool | int | str)
        else f"{end + 0.0:.6g}"
        if isinstance(end, float)
        else str(end)
    )
