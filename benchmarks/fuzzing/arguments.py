"""Arguments that make little sense, given to the public functions: a value, or an error of streameval with one line."""

from __future__ import annotations

import inspect
import math
import os
import warnings
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

import streameval
from fuzzing.cases import Tally, seeded
from fuzzing.command_lines import CONDITIONS, HOSTILE
from streameval import Accumulator, ConfusionMatrix2, ContingencyTable, LiftCurve, QuantileSketch, RocCurve, Store
from streameval.errors import StreamevalError
from streameval.options import verb_options

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

FUNCTIONS = [
    "adjusted_mutual_info_score", "adjusted_rand_score", "agc_approximate", "agc_score", "auc", "auc_by_sampling",
    "aul_score_from_clusters", "aul_score_from_labels", "average_precision_score", "cohen_kappa", "dist_auc",
    "gain_curve", "geometric_mean", "harmonic_mean",
    "homogeneity_completeness_v_measure", "jaccard_similarity", "mutual_info_score", "precision_recall_curve",
    "product_moment", "roc_auc_score", "roc_curve", "quantile_sketch", "ratio2weights",
    "geometric_mean_weighted", "harmonic_mean_weighted", "unitsq_sigmoid",
]  # fmt: skip
LIKELY: dict[str, list[Any]] = {
    "labels": [[0, 1, 0, 1], np.array([0, 1, 1, 0]), [True, False, True, False], ["a", "b", "a", "b"], pd.Series([0,
    1, 1, 0])],
    "scores": [[0.1, 0.4, 0.35, 0.8], np.arange(4), pl.Series([1.0, 2.0, None, 4.0]), [2**53, 2**53 + 1, 2.0, 1.0],
               [1.7e308, -1.7e308, 5e-324, 0.0], [Decimal("0.1"), 1, 2, 3]],
    "groups": [[[1, 0], [1]], [["a", "b"], ["c"]], [{1, 2}, {3}], {"x": [1, 2], "y": [3]}, [[0, 1], [1, 0]]],
    "counts": [1, 0, 2.5, 10**30, Fraction(1, 3), 1e308, 5e-324],
}  # fmt: skip
ODD: list[Any] = [
    None, True, 0, -1, 1, 2.5, math.nan, math.inf, 10**400, 1e308, Decimal("NaN"), Decimal("sNaN"), Decimal("1e999"),
    Fraction(1, 3), 1j, b"x", b"\xff", [], [[]], [1], (1, 2), {}, {"a": 1}, set(), {1, "a"}, range(4), object(), int,
    Ellipsis,
    np.float32("nan"), np.int64(3), np.array(1), np.array([]), np.zeros((2, 2)), np.zeros((2, 2, 2)), np.array("x"),
    np.array([None, 1, "a", 2.0], object), np.ma.array([1, 2, 3, 4], mask=[0, 1, 0, 0]), np.array(["2026", "NaT"],
    "M8[s]"),
    np.array([1, 2, 3, 4], "g"), np.array([(1, 2)], "i4,f8"), np.datetime64("NaT"), pd.NA, pd.NaT, pd.Series([1,
    None, 2, 3]),
    pd.DataFrame({"s": [1, 2]}), pd.Series(["a", None, 1, 2.5]), pd.Series([1, None, 3, 4], dtype="Int64"),
    pl.Series([2**70], dtype=pl.Int128), pl.DataFrame({"s": [1]}), pa.array([1, None, 3, 4]), pa.scalar(1),
    pa.table({}),
    pa.array([[1], [2]]), pa.array(["a", None]).dictionary_encode(), memoryview(b"abcd"), datetime(2026, 1, 1),
    "\udcff",
    [1, "1", None, b"1"], [[1, 2], [3]], ["a\0", "a"], [math.nan, None, math.inf, -0.0], [10**400, 1, 2, 3],
    [object()] * 4,
    [pd.NA, 1, 2, 3], [Decimal("Infinity"), 1, 2, 3], [{1}, {2}], [b"a", "a"], ["\udcff", "a", "b", "c"], [set(), 1],
]  # fmt: skip
NAMED = {
    "labels": ("y_true", "labels_true", "labels_pred", "classes", "clusters_of"),
    "scores": (
        "y_score",
        "scores0",
        "scores1",
        "scores_neg",
        "scores_pos",
        "x",
        "y",
        "sample_weight",
        "values",
        "fprs",
        "tprs",
    ),
    "groups": (
        "clusters",
        "partition1",
        "partition2",
        "partitions1",
        "partitions2",
        "rows",
        "cols",
        "iterable1",
        "iterable2",
    ),
    "counts": ("TP", "FP", "TN", "FN"),
}


def arguments_case(seed: int, folder: Path, tally: Tally) -> None:
    """One call of a public function in a folder of its own."""
    rng = seeded(seed)
    name, call = rng.choice([_function, _function, _constructor, _evaluate])(rng)
    home = Path.cwd()
    os.chdir(folder)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            call()
    except StreamevalError as error:
        tally.refused(error)
        if len(str(error).splitlines()) != 1:
            tally.wrong.append(f"{name}: {len(str(error).splitlines())} lines: {str(error)[:200]!r}")
    except Exception as error:  # any other is a finding
        place = inspect.trace()[-1]
        tally.wrong.append(f"{name}: {type(error).__name__}: {str(error)[:150]} ({place.filename}:{place.lineno})")
    finally:
        os.chdir(home)


def _value(rng: random.Random, name: str) -> Any:
    """A value for a parameter: a likely one, or an odd one."""
    kind = next((kind for kind, names in NAMED.items() if name in names), "")
    if rng.random() < 0.25:
        return rng.choice([*ODD, *HOSTILE])
    if kind:
        return rng.choice(LIKELY[kind])
    return rng.choice([0.5, 1, 2, "macro", None, True, "a", 0])


def _arguments(rng: random.Random, function: Callable[..., Any]) -> dict[str, Any]:
    """Values of all required parameters, and of some others."""
    made = {}
    for name, parameter in inspect.signature(function).parameters.items():
        required = parameter.default is parameter.empty
        if parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL) and (required or rng.random() < 0.3):
            made[name] = _value(rng, name)
    if "n" in made:
        made["n"] = rng.choice([1, 5, 0, "x", None, 2.5])
    return {name: value for name, value in made.items() if name not in _ELSEWHERE}


_ELSEWHERE = {"is_class_pos", "client", "threads", "scheduler_timeout", "progress", "spec", "save_to", "ax"}


def _shown(name: str, given: Any) -> str:
    text = repr(given)
    return f"{name}({text if len(text) < 200 else text[:200] + '…'})"


def _function(rng: random.Random) -> tuple[str, Callable[[], Any]]:
    name = rng.choice(FUNCTIONS)
    function = getattr(streameval, name)
    given = _arguments(rng, function)
    if name == "quantile_sketch":
        given |= {"data": rng.choice([_table(), given["data"]]), "column": rng.choice(["s", "k", given["column"]])}
    return _shown(name, given), lambda: function(**given)


def _constructor(rng: random.Random) -> tuple[str, Callable[[], Any]]:
    """A table, matrix, curve or sketch, and one of its measures."""
    made, method = rng.choice([
        (RocCurve, "from_scores"), (RocCurve, "from_labels"), (RocCurve, "from_clusters"), (RocCurve, "__call__"),
        (LiftCurve, "from_counts"), (LiftCurve, "from_clusters"), (LiftCurve, "from_labels"),
        (ContingencyTable, "from_labels"), (ContingencyTable, "from_clusters"), (ContingencyTable, "from_partitions"),
        (ContingencyTable, "from_counts"), (ContingencyTable, "__call__"), (ConfusionMatrix2, "from_labels"),
        (ConfusionMatrix2, "from_clusters"), (ConfusionMatrix2, "from_sets"), (ConfusionMatrix2,
        "from_random_counts"),
        (ConfusionMatrix2, "__call__"), (ConfusionMatrix2, "from_ccw"), (QuantileSketch, "from_values"),
        (QuantileSketch, "from_dict"),
    ])  # fmt: skip
    build: Any = made if method == "__call__" else getattr(made, method)
    given = _arguments(rng, build)
    then = rng.choice(_MEASURES.get(made, [""]))
    extra = [rng.choice(ODD)] if then in ("quantile", "cdf", "merge", "get_score") else []

    def call() -> None:
        found = build(**given)
        if then:
            measure = getattr(found, then)
            _ = measure(*extra) if callable(measure) else measure

    return _shown(f"{made.__name__}.{method}…{then}", (given, extra)), call


_MEASURES: dict[Any, list[str]] = {
    RocCurve: ["auc_score", "max_informedness"],
    LiftCurve: ["aul_score"],
    ContingencyTable: ["adjusted_rand_index", "mutual_info_score", "adjusted_mutual_info", "pairwise", "muc_scores",
                       "assignment_score", "entropy_scores", "chisq_score", "g_score", "bc_metrics", "expected",
                       "get_score"],
    ConfusionMatrix2: ["ACC", "cole_coeff", "covar", "dice_coeff", "DOR", "bias_index", "NLL", "lform", "expected"],
    QuantileSketch: ["quantile", "cdf", "merge", "to_dict"],
}  # fmt: skip


def _table() -> pa.Table:
    return pa.table({
        "label": [0, 1, 0, 1], "s": [0.1, 0.4, 0.35, 0.8], "k": ["a", "b", None, "a"], "id": [1, 1, 2, 3],
        "t": pa.array([0, 1, 2, 3], pa.timestamp("us", "UTC")), "d": pa.array([Decimal("0.1")] * 4), "w": [1.0, 0.0,
        1e300, 5e-324],
    })  # fmt: skip


def _evaluate(rng: random.Random) -> tuple[str, Callable[[], Any]]:
    """An evaluation, an attribution, a store or an accumulator, with some odd options."""
    verb = rng.choice(["evaluate", "attribute", "accumulator", "store"])
    columns = {"label", "score", "cluster", "sketch", "classes", "weight", "unit", "by", "mean_over"}
    known = verb_options("attribute" if verb == "attribute" else "evaluate")
    given: dict[str, Any] = (
        {"cluster": "id", "classes": "k", "nulls": "drop"} if verb == "attribute" else {"score": "s"}
    )
    for name in rng.sample([name for name in known if name not in _ELSEWHERE], k=rng.choice([1, 1, 2, 3])):
        likely = [*"skidtw", "id", "label"] if name in columns else [1, 0.5, 2, True, *known[name].kind.choices]
        odd = [*ODD, *HOSTILE, *(CONDITIONS if name == "where" else [])]
        given[name] = rng.choice(likely if rng.random() < 0.5 else odd)
    data = _table() if rng.random() < 0.85 else rng.choice([*ODD, *HOSTILE, [_table(), _table()], [_table(), 1]])

    def call() -> None:
        if verb in ("evaluate", "attribute"):
            getattr(streameval, verb)(data, **given)
        elif verb == "accumulator":
            Accumulator(**given).update(data)
        else:
            Store("store").update(data if isinstance(data, str) else [], **given)

    return _shown(verb, (given, data)), call
