"""Arguments that carry a sign of another kind of array, such as the `_mask` of pandas' nullable arrays."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from streameval import (
    LiftCurve,
    adjusted_rand_score,
    agc_score,
    auc_by_sampling,
    aul_score_from_labels,
    average_precision_score,
    gain_curve,
    mutual_info_score,
    precision_recall_curve,
    roc_auc_score,
    roc_curve,
)
from streameval.errors import NullError, WeightError

if TYPE_CHECKING:
    from collections.abc import Callable

LABELS, SCORES, WEIGHTS, CLUSTERS = [0, 1, 0, 1], [0.1, 0.8, 0.35, 0.4], [1.0, 2.0, 0.5, 1.0], [0, 0, 1, 1]
ON_SCORES = [roc_auc_score, average_precision_score, agc_score, gain_curve, roc_curve, precision_recall_curve]
ON_LABELS = [adjusted_rand_score, mutual_info_score, aul_score_from_labels, LiftCurve.from_labels]
WRAPS: list[Callable[[Any], Any]] = [lambda s: s, lambda s: s.array, lambda s: s.values, pd.Index]


class Marked(list):  # type: ignore[type-arg] - like an array that has no types
    """A list with attributes by which other arrays might be recognised."""

    _mask = True
    data = array = dtype = "not what it seems"

    def __arrow_array__(self, type: Any = None) -> pa.Array:  # noqa: A002 - the name is Arrow's
        """The elements."""
        return pa.array(list(self), type)


class Bare:
    """An object that is an array, and has no length."""

    def __init__(self, values: list[Any]) -> None:
        self.values = values

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        """The elements."""
        return np.array(self.values, dtype)


def text(found: Any) -> str:
    """A result as text, to be compared."""
    return repr(found if not hasattr(found, "__dict__") else vars(found))


@pytest.mark.parametrize("wrap", WRAPS)
@pytest.mark.parametrize("kind", ["Int64", "boolean", "Float64", "int64[pyarrow]", "double[pyarrow]"])
def test_nullable_arrays_of_pandas(wrap: Callable[[Any], Any], kind: str) -> None:
    """The value of a list; with an NA, the error that names the argument."""
    whole, holed = (wrap(pd.Series(values, dtype=kind)) for values in (LABELS, [0, 1, None, 1]))
    for function in ON_SCORES:
        assert text(function(whole, SCORES)) == text(function(LABELS, SCORES))
        for given, name in (((holed, SCORES), "y_true"), ((LABELS, holed), "y_score")):
            with pytest.raises(NullError, match=f"{name} has a"):
                function(*given)
        with pytest.raises(WeightError, match="sample_weight has nan at position 2"):
            function(LABELS, SCORES, sample_weight=holed)
    for function in ON_LABELS:
        assert text(function(whole, CLUSTERS)) == text(function(LABELS, CLUSTERS))
    assert math.isfinite(adjusted_rand_score(LABELS, holed))  # a null is a cluster
    with pytest.raises(NullError, match="y_score has a"):
        auc_by_sampling(LABELS, holed, 10)


@pytest.mark.parametrize("wrap", [Marked, Bare])
def test_signs_of_other_arrays(wrap: Callable[[Any], Any]) -> None:
    """Attributes that others have do not make an argument one of theirs."""
    for function in ON_SCORES:
        given = wrap(LABELS), wrap(SCORES)
        assert text(function(*given, sample_weight=wrap(WEIGHTS))) == text(
            function(LABELS, SCORES, sample_weight=WEIGHTS)
        )
    for function in (adjusted_rand_score, mutual_info_score):
        assert function(wrap(LABELS), wrap(CLUSTERS)) == function(LABELS, CLUSTERS)


def test_masked_arrays_still_have_nulls() -> None:
    """Those of NumPy."""
    with pytest.raises(NullError, match="y_score has a"):
        roc_auc_score(LABELS, np.ma.array(SCORES, mask=[0, 1, 0, 0]))
