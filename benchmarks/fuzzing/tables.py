"""Tables in memory, in files and in arrays against exact fractions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from truth import agrees, is_missing

from fuzzing.cases import Case, Tally, close, drawn, seeded, truths, written
from streameval import evaluate, roc_auc_score
from streameval.errors import StreamevalError

if TYPE_CHECKING:
    from pathlib import Path


def table_case(seed: int, folder: Path, tally: Tally) -> None:
    """One table in memory, in files and in arrays."""
    rng = seeded(seed)
    case = drawn(rng)
    expected = {} if case.refuses else truths(case)
    for data in (case.table, written(case, folder / "data", rng)):
        try:
            found = evaluate(data, **case.options)
        except StreamevalError as error:
            tally.refused(error)
            if not case.refuses:
                wide = case.options.get("weight") and "float64" in str(error)
                if not wide:
                    tally.wrong.append(f"refused without a reason: {error}")
            continue
        if case.refuses:
            tally.wrong.append(f"not refused: {case.options}")
            continue
        for result in found.results:
            if result.metric in expected and not close(result, expected[result.metric]):
                tally.wrong.append(f"{result.metric} {result.value!r} for {expected[result.metric]}")
    _arrays(case, expected, tally)


def _arrays(case: Case, expected: dict[str, Any], tally: Tally) -> None:
    """The same with the functions for arrays, if they accept the rows."""
    rows = [row for row in case.rows if row[1] is not None]
    plain = "score" in case.options and not any(is_missing(row[0]) for row in rows)
    if case.refuses or not plain or len({row[1] for row in rows}) < 2:
        return
    weight = [float(row[2]) for row in rows] if "weight" in case.options else None
    try:
        value = roc_auc_score(
            [row[1] for row in rows],
            np.array([row[0] for row in rows], case.table["score"].type.to_pandas_dtype()),
            sample_weight=weight,
        )
    except StreamevalError as error:
        tally.refused(error)
        return
    if not agrees(value, expected["roc_auc"]) and expected["roc_auc"] is not None:
        tally.wrong.append(f"roc_auc_score {value!r} for {float(expected['roc_auc'])!r}")
