"""Input validation: lists, NumPy arrays, and pandas, Arrow and polars columns become plain NumPy arrays.

Input that cannot be evaluated is refused here, once, with an error that names the argument and the remedy. Functions
that use these arrays never see a NaN, a wrong length or a negative weight, and NumPy has no reason to warn.

*Labels* are read in one of two ways. By value: `pos_label` names the positive label. Without it, numbers above zero are
positive, and there may be at most two values, on either side of zero, such as 0/1, −1/1 and booleans. By predicate: a
function, by default `num2bool`, says which labels are positive, and there may be any number of values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from decimal import Decimal
from fractions import Fraction
from numbers import Number
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from streameval.errors import DataError, LabelError, MissingInputError, NullError, OptionError, SchemaError, WeightError
from streameval.states.labels import is_float
from streameval.states.scores.counts import fold_arrays
from streameval.wording import plural

if TYPE_CHECKING:
    from streameval.states.scores.counts import ScoreCounts
    from streameval.typing import Array, ArrayLike

    Exact = int | float | Decimal | Fraction | None  # a number that Python compares exactly, or a null


_WHOLE = 2.0**53  # all smaller integers are floats
_TEXTS: dict[str, tuple[Any, Any]] = {"U": (str, "\0"), "S": (bytes, b"\0")}
_TINY = float(np.finfo(np.float64).tiny)  # the smallest normal number; smaller ones have fewer digits


def plain(values: ArrayLike, name: str, ndim: int = 1) -> Array:
    """Values as a NumPy array of `ndim` dimensions, with at least one element; values that differ still differ.

    Raises
    ------
    DataError
        If the values are ragged or have another number of dimensions.
    MissingInputError
        If there are no values.
    """
    values = unmask_nulls(values)
    try:
        values = values if hasattr(values, "__array__") or hasattr(values, "__len__") else list(values)
        array = np.asarray(values)
    except Exception as error:  # whatever the container of the values raises
        raise DataError(f"{name} is not an array of {ndim} dimension(s): {error}") from error
    array = _keep_distinct(array, values)
    if array.ndim != ndim:
        hint = f"; pass one column, such as {name}[:, 1]" if ndim == 1 and array.ndim == 2 else ""
        raise DataError(f"{name} has shape {array.shape}; give an array of {ndim} dimension(s){hint}")
    if not array.size:
        raise MissingInputError(f"{name} is empty; give at least one point")
    return array


def unmask_nulls(values: Any) -> Any:
    """Values whose nulls `numpy.asarray` sees: those that NumPy masks become None, and dictionaries have one chunk.

    `numpy.ma.is_masked` takes whatever has a `_mask` for a masked array, as pandas' nullable arrays do.

    Examples
    --------
    >>> unmask_nulls(np.ma.array([0.5, 1.5], mask=[False, True]))
    array([0.5, None], dtype=object)
    """
    if isinstance(values, pa.ChunkedArray) and pa.types.is_dictionary(values.type):
        return values.combine_chunks()  # from chunks, NumPy gets the last value of the dictionary for a null
    masked = isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values)
    return np.where(np.ma.getmaskarray(values), None, values.data) if masked else values


def first(array: Array) -> object:
    """The first element as a Python value, for messages."""
    return array.ravel()[:1].tolist()[0]


def as_arrow(values: Any) -> pa.Array | None:
    """The column of an Arrow array, or of nullable integers of pandas or polars, which NumPy might convert to floats.

    None for all other values; also for floats, because Arrow distinguishes -0.0 from 0.0, and for nested types, which
    Arrow cannot encode.
    """
    values = getattr(values, "array", values)  # a pandas Series has one
    if hasattr(values, "__arrow_array__") and getattr(getattr(values, "dtype", None), "kind", None) in ("i", "u"):
        values = pa.array(values)
    elif hasattr(values, "__arrow_c_stream__") and not isinstance(values, pa.ChunkedArray):
        values = pa.chunked_array(values)
        if not pa.types.is_integer(values.type):
            return None
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if not isinstance(values, pa.Array):
        return None
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    return None if pa.types.is_floating(values.type) or pa.types.is_nested(values.type) else values


def _keep_distinct(array: Array, values: ArrayLike) -> Array:
    """The array that NumPy made of values; one of objects if NumPy may have made values equal that differ.

    Examples
    --------
    >>> mixed, large = [1, "1"], pa.array([2**53 + 1, None])
    >>> _keep_distinct(np.asarray(mixed), mixed), _keep_distinct(np.asarray(large), large)
    (array([1, '1'], dtype=object), array([9007199254740993, None], dtype=object))
    """
    text, zero = _TEXTS.get(array.dtype.kind, (None, None))
    if array is values or (text is None and not (array.dtype == np.float64 and (np.abs(array) >= _WHOLE).any())):
        return array
    if hasattr(values, "__array__"):
        column = as_arrow(values) if array.dtype.kind == "f" else None
        return array if column is None else np.array(column.to_pylist(), object)
    objects = np.asarray(values, object)
    listed = objects.ravel().tolist()
    alike = text is not None and all(issubclass(kind, text) for kind in set(map(type, listed)))
    alike = alike and zero not in text().join(listed)  # NumPy drops zero bytes at the end
    return array if alike or objects.shape != array.shape else objects


def is_null(value: object) -> bool:
    """Whether a value is None, NaN, or pandas' NA, whose comparison with itself is not a boolean."""
    unequal = value.is_nan() if isinstance(value, Decimal) else value != value
    return value is None or not isinstance(unequal, bool | np.bool_) or bool(unequal)


def flag(name: str, given: object) -> bool:
    """A truth value; raises `OptionError` for anything but a boolean or a number."""
    if isinstance(given, bool | int | float | np.bool_):
        return bool(given)
    raise OptionError(f"{name}={given!r} must be True or False")


def generator(random_state: int | np.random.Generator | None) -> np.random.Generator:
    """A generator of random numbers from a seed or a generator; raises `OptionError` for anything else."""
    try:
        return np.random.default_rng(random_state)
    except (TypeError, ValueError) as error:
        raise OptionError(
            f"random_state={random_state!r} is not a seed; give a whole number of at least 0 or a numpy Generator"
        ) from error


def numbers(values: ArrayLike, name: str, ndim: int = 1, *, distinct: bool = False) -> Array:
    """Values as an array of booleans, integers or floats of at most 64 bits; nulls become NaN.

    Parameters
    ----------
    values : array-like of `ndim` dimensions
    name : name of the argument, for messages
    ndim : number of dimensions
    distinct : whether numbers that differ must still differ when they become floats, as scores must

    Raises
    ------
    SchemaError
        If the values are not numbers, or are integers of more than 64 bits, or must be distinct and are not.

    Examples
    --------
    >>> numbers([1, None], "x")
    array([ 1., nan])
    """
    array, exact = _read(values, name, ndim)
    if distinct and exact is not None:
        _refuse_merged(exact, array, name)
    return array


def joint(**sides: ArrayLike) -> list[Array]:
    """Scores of several arguments as arrays of one type, with NaN for nulls; scores that differ still differ.

    Raises
    ------
    SchemaError
        If the values are not numbers, or two that differ are equal as float64.

    Examples
    --------
    >>> joint(scores0=[1, 2], scores1=[0.5])
    [array([1., 2.]), array([0.5])]
    """
    read = [_read(values, name) for name, values in sides.items()]
    kind = np.result_type(*(array for array, _ in read))
    arrays = [array.astype(kind, copy=False) for array, _ in read]
    rounded = kind.kind == "f" and any(
        array.dtype.kind in "iu" and max(-int(array.min()), int(array.max())) > _WHOLE for array, _ in read
    )
    if rounded or any(exact is not None for _, exact in read):
        listed = [number for array, exact in read for number in (array.tolist() if exact is None else exact)]
        _refuse_merged(listed, np.concatenate(arrays), " and ".join(sides))
    return arrays


def _refuse_merged(exact: list[Exact], array: Array, name: str) -> None:
    """Raise `SchemaError` if numbers that differ are equal in the array; Python compares numbers of all types exactly.

    Examples
    --------
    >>> _refuse_merged([2**53 + 1, 2.0**53, Decimal(2**53)], np.array([2.0**53] * 3), "y_score")
    Traceback (most recent call last):
    ...
    streameval.errors.SchemaError: y_score: numbers that differ are equal as float64; convert all of them to ranks ...
    """
    if len({number for number in exact if not is_null(number)}) != np.unique(without_nan(array)).size:
        raise SchemaError(f"{name}: numbers that differ are equal as float64; convert all of them to ranks together")


def _read(values: ArrayLike, name: str, ndim: int = 1) -> tuple[Array, list[Exact] | None]:
    """Values as an array of numbers, and as a list of exact numbers; None if the array holds them exactly."""
    array, exact = plain(list(values) if isinstance(values, Iterator) else values, name, ndim), None
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        array = array.astype(object)
    if array.dtype.kind == "O":
        array, exact = _of_objects(array, name)
    if array.dtype.kind not in "biuf":
        raise SchemaError(
            f"{name} has values that are not numbers ({first(array)!r}, …); convert them to integers or floats"
        )
    return array.astype(array.dtype.newbyteorder("="), copy=False), exact


def _of_objects(array: Array, name: str) -> tuple[Array, list[Exact] | None]:
    """As `_read`, for Python numbers and nulls; other objects are unchanged."""
    listed = array.ravel().tolist()
    if not any(issubclass(kind, np.longdouble) for kind in set(map(type, listed))):
        with suppress(TypeError, ValueError, OverflowError):  # also of Arrow, if it would round a number
            return _of_arrow(pa.array(listed, from_pandas=True)).reshape(array.shape), None
    exact = list(map(_exact, listed))
    if any(number is None and not is_null(value) for number, value in zip(exact, listed, strict=True)):
        return array, None
    if any(isinstance(number, int) and not -(2**63) <= number < 2**64 for number in exact):
        raise SchemaError(f"{name} has integers of more than 64 bits; convert them to floats")
    return np.array(list(map(_round_to_float, exact))).reshape(array.shape), exact


def _of_arrow(column: pa.Array) -> Array:
    """A column as NumPy integers or floats; raises `ValueError` if it is not of numbers, or would be rounded."""
    kind = column.type
    if pa.types.is_integer(kind) and not column.null_count:
        whole: Array = column.to_numpy()
        return whole
    types = pa.types
    if not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_null(kind)):
        raise ValueError(kind)
    floats: Array = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
    return floats


def _exact(value: object) -> Exact:
    """A number as one that Python compares exactly with numbers of other types; None for a null or another object."""
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, np.longdouble):  # which has no Python type
        return Fraction(*value.as_integer_ratio()) if np.isfinite(value) else float(value)
    return value if isinstance(value, int | float | Decimal | Fraction) and not is_null(value) else None


def _round_to_float(number: Any) -> float:
    """The float nearest to a number; infinite beyond their range, NaN for None."""
    try:
        return math.nan if number is None else float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def without_nan(array: Array) -> Array:
    """The values that are not NaN."""
    return array[~np.isnan(array)] if array.dtype.kind == "f" else array


def scores(values: ArrayLike, name: str = "y_score", ndim: int = 1) -> Array:
    """Scores: numbers of any type, infinities included.

    Raises
    ------
    SchemaError
        If the scores are not numbers, or two that differ are equal as float64.
    NullError
        If a score is NaN or null.

    Examples
    --------
    >>> scores([0.5, float("inf")])
    array([0.5, inf])
    """
    array = numbers(values, name, ndim, distinct=True)
    refuse_nan(array, name, "drop those points, or let dist_auc count them as one half")
    return array


def refuse_nan(array: Array, name: str, remedy: str) -> None:
    """Raise `NullError`, with the position and a remedy, if an array has a NaN."""
    if array.dtype.kind == "f" and np.isnan(array).any():
        where = tuple(np.argwhere(np.isnan(array))[0].tolist())
        raise NullError(f"{name} has a NaN or null at position {where[0] if len(where) == 1 else where}; {remedy}")


def weights(values: ArrayLike | None, size: int) -> Array | None:
    """Weights as a float64 array of shape (size,), scaled by a power of two to at most 1; None stays None.

    Metrics depend only on ratios of weights, so scaling changes no bit of a result. It keeps products of sums of
    weights within the range of float64.

    Raises
    ------
    WeightError
        If a weight is negative, NaN or infinite, if all are zero, or if their sum or the ratio of two leaves float64.

    Examples
    --------
    >>> weights([1, 0, 4], 3)
    array([0.125, 0.   , 0.5  ])
    """
    if values is None:
        return None
    array = numbers(values, "sample_weight").astype(np.float64)
    same_length(size, sample_weight=array)
    wrong = np.flatnonzero(~(array >= 0) | (array == np.inf))
    if wrong.size:
        raise WeightError(
            f"sample_weight has {array[wrong[0]]} at position {wrong[0]}; weights must be finite and at least 0"
        )
    if not array.any():
        raise WeightError("sample_weight is zero for every point; give at least one point a positive weight")
    least, most = float(array[array > 0].min()), float(array.max())
    if least / most < _TINY or not math.isfinite(float(np.sum(array / size)) * size):
        problem = "their ratio or their sum leaves float64; scale the weights, or set negligible ones to 0"
        raise WeightError(f"sample_weight has weights from {least:g} to {most:g}; {problem}")
    scaled: Array = np.ldexp(array, -math.frexp(most)[1])
    return scaled


def same_length(size: int, of: str = "y_true", **arrays: Array) -> None:
    """Raise `DataError` unless all arrays have `size` elements, the length of the argument named `of`."""
    for name, array in arrays.items():
        if len(array) != size:
            raise DataError(
                f"{of} has {plural(size, 'point')} and {name} has {len(array)}; give one of each for every point"
            )


def fold(label: Array, score: Array, weight: Array | None = None) -> ScoreCounts:
    """The state of validated arrays, without points of weight 0.

    Examples
    --------
    >>> fold(np.array([0, 1], dtype=np.uint8), np.array([0.2, 0.4]), np.array([0.0, 1.0])).totals().rows
    1
    """
    if weight is not None and not weight.all():
        weighted = weight > 0
        label, score, weight = label[weighted], score[weighted], weight[weighted]
    return fold_arrays(label, score, weight)


Predicate = Callable[[Any], Any]

_LISTED = 5  # largest number of labels in a message


def num2bool(num: Any) -> Any:
    """Whether a number is above zero, the default rule for labels such as 0/1, −1/1 and booleans.

    Parameters
    ----------
    num : number, or array of any shape

    Returns
    -------
    bool, or bool array of the same shape; False for NaN

    Raises
    ------
    TypeError
        If the label is not a number.

    Examples
    --------
    >>> num2bool(1), num2bool(0), num2bool(-1)
    (True, False, False)
    """
    return num > 0


def labels_by_value(values: ArrayLike, pos_label: object = None, name: str = "y_true", ndim: int = 1) -> Array:
    """Labels as a uint8 array of the same shape, 1 where they equal `pos_label`, or are above zero if it is None.

    Raises
    ------
    LabelError
        If it is not clear which label is positive, or `pos_label` does not occur.
    NullError
        If a label is NaN or null.

    Examples
    --------
    >>> labels_by_value([-1, 1, 1]), labels_by_value(["ham", "spam"], pos_label="spam")
    (array([0, 1, 1], dtype=uint8), array([0, 1], dtype=uint8))
    """
    array = plain(values, name, ndim)
    refuse_nan(array, name, "drop those points")
    if array.dtype.kind not in "biufUS":
        column = _python(array, name)
        if any(map(is_null, column)):
            raise NullError(f"{name} has a null among its labels; drop those points")
        array = _by_sign(array, column, name) if pos_label is None else _objects(column).reshape(array.shape)
    return _above_zero(array, name) if pos_label is None else _equal(array, pos_label, name)


def _by_sign(array: Array, column: list[Any], name: str) -> Array:
    """Labels that are Python numbers as an array of numbers, which tells all of them apart."""
    other = next((label for label in column if not isinstance(label, Number)), None)
    if other is not None:
        raise _not_numbers(other, name)
    unlike = next((label for label in column if not is_float(label)), None)
    if unlike is not None:
        raise LabelError(
            f"{name} has the label {unlike}, which float64 cannot hold; name the positive one with pos_label"
        )
    return numbers(array, name, array.ndim, distinct=True)


def _python(array: Array, name: str) -> list[object]:
    """Labels as Python objects; dates and times have at most microseconds.

    Raises
    ------
    LabelError
        If times have shares of microseconds, or are too long ago, and so cannot be told apart.
    """
    if array.dtype.kind in "mM":
        given, array = array, array.astype(f"{array.dtype.kind}8[us]")
        changed = given[~np.isnat(given) & (array.astype(given.dtype) != given)]
        if changed.size:
            raise LabelError(
                f"{name} has the time {changed[0]}, which is not a whole number of microseconds; round the times"
            )
    return array.ravel().tolist()


def _objects(column: list[object]) -> Array:
    """An object array of shape (n,), also for elements that are sequences."""
    array = np.empty(len(column), dtype=object)
    array[:] = column
    return array


def _not_numbers(label: object, name: str) -> LabelError:
    return LabelError(f"{name} has labels that are not numbers ({label!r}, …); name the positive one with pos_label")


def _above_zero(array: Array, name: str) -> Array:
    """Which labels are above zero, as uint8; raises `LabelError` unless there are at most two, on either side of it."""
    if array.dtype.kind not in "biuf":
        raise _not_numbers(first(array), name)
    low, high = array.min(), array.max()
    others = array[(array != low) & (array != high)]
    if others.size:
        raise LabelError(
            f"{name} has more than two labels ({low}, {others[0]}, {high}, …); name the positive one with pos_label"
        )
    if low != high and (low > 0) == (high > 0):
        raise LabelError(f"{name} has the labels {low} and {high}; name the positive one with pos_label")
    return (array > 0).astype(np.uint8)


def _equal(array: Array, pos_label: object, name: str) -> Array:
    """Which labels equal `pos_label`, as uint8; it must occur unless all labels are equal and of its type."""
    if hasattr(pos_label, "__array__") and not isinstance(pos_label, np.generic):
        raise LabelError(f"pos_label is {type(pos_label).__name__}; name one label of {name}")
    wanted = _as_in(array, pos_label.item() if isinstance(pos_label, np.generic) else pos_label)
    kinds = "U" if isinstance(wanted, str) else "S" if isinstance(wanted, bytes) else "biuf"
    single = wanted is None or isinstance(wanted, str | bytes | Number)  # NumPy compares sequences element by element
    same_kind = array.dtype.kind == "O" or (array.dtype.kind in kinds and single)
    positive = np.zeros(array.shape, np.uint8)
    if same_kind:
        positive = np.asarray(array == (_objects([wanted]) if array.dtype.kind == "O" else wanted)).astype(np.uint8)
    if not positive.any() and not (same_kind and np.asarray(array == array.ravel()[:1]).all()):
        seen = list(dict.fromkeys(map(repr, array.ravel().tolist())))
        listed = ", ".join(seen[:_LISTED]) + (", …" if len(seen) > _LISTED else "")
        raise LabelError(f"{name} has no label {pos_label!r}; it has {listed}; name one of them with pos_label")
    return positive


def _as_in(array: Array, wanted: object) -> object:
    """A number as one that NumPy compares exactly with an array of numbers; a float32 array gets the nearest one.

    Examples
    --------
    >>> _as_in(np.array([2**53 + 1]), 2.0**53), _as_in(np.array([2.0**53]), 2**53 + 1)
    (9007199254740992, None)
    """
    if array.dtype.kind in "iu" and isinstance(wanted, float):
        return int(wanted) if wanted.is_integer() else None
    if array.dtype.kind == "f" and isinstance(wanted, int):
        with np.errstate(over="ignore"), suppress(OverflowError):
            nearest = array.dtype.type(wanted)
            return nearest if int(nearest) == wanted else None
        return None
    return wanted


def labels_by_predicate(values: ArrayLike, is_class_pos: Predicate = num2bool, name: str = "labels_true") -> Array:
    """Labels as a uint8 array of shape (n,), 1 where the predicate holds.

    Raises
    ------
    LabelError
        If the labels are not numbers and no predicate is given.
    NullError
        If a label is NaN and no predicate is given.

    Examples
    --------
    >>> labels_by_predicate([0, 1, 3]), labels_by_predicate("ab", lambda label: label == "b")
    (array([0, 1, 1], dtype=uint8), array([0, 1], dtype=uint8))
    """
    if is_class_pos is not num2bool:
        listed = list(values)
        if not listed:
            plain(listed, name)
        return np.array([bool(is_class_pos(label)) for label in listed], dtype=np.uint8)
    try:
        array = numbers(values, name)
    except SchemaError:
        raise LabelError(
            f"{name} has labels that are not numbers; give is_class_pos, a function from a label to True or False"
        ) from None
    refuse_nan(array, name, "drop those points")
    return (array > 0).astype(np.uint8)


def cluster_counts(clusters: ArrayLike, is_class_pos: Predicate = num2bool) -> tuple[Array, Array]:
    """Sizes of clusters that are given as lists of the labels of their points, and all labels, cluster by cluster.

    Empty clusters are skipped. Sizes are int64, labels uint8 of 0 or 1.

    Raises
    ------
    DataError
        If `clusters` is not a collection of collections, or labels are not usable.

    Examples
    --------
    >>> cluster_counts([[1, 1, 0], [], [1]])
    (array([3, 1]), array([1, 1, 0, 1], dtype=uint8))
    """
    try:
        listed = [list(cluster) for cluster in clusters]
    except TypeError as error:
        raise DataError(f"clusters must be a collection of collections of labels: {error}") from error
    sizes = np.array([len(cluster) for cluster in listed if cluster], dtype=np.int64)
    return sizes, labels_by_predicate([label for cluster in listed for label in cluster], is_class_pos, "clusters")


def check_arguments(
    y_true: ArrayLike, y_score: ArrayLike, pos_label: object, sample_weight: ArrayLike | None, ndim: int = 1
) -> tuple[Array, Array, Array | None]:
    """Validate the arguments of a metric: labels as 0 and 1, scores, and weights.

    Raises
    ------
    DataError
        If shapes differ, or values are not usable.
    """
    label, score = labels_by_value(y_true, pos_label, ndim=ndim), scores(y_score, ndim=ndim)
    same_length(len(label), y_score=score)
    if label.shape != score.shape:
        raise DataError(
            f"y_true has shape {label.shape} and y_score {score.shape}; give one score for every label of every point"
        )
    return label, score, weights(sample_weight, len(label))


def indicators(y_true: ArrayLike, count: int, classes: ArrayLike | None) -> Array:
    """Labels of several classes as a uint8 matrix of shape (n, count): column i is 1 where the label is class i.

    Parameters
    ----------
    y_true : array-like of shape (n,), labels of one type
    count : number of classes
    classes : the classes in the order of the columns; by default the labels that occur, in ascending order

    Raises
    ------
    LabelError
        If there are more or fewer classes than columns, or a label is none of them.
    NullError
        If a label is NaN or null.

    Examples
    --------
    >>> indicators(["b", "a", "b"], 2, None).tolist()
    [[0, 1], [1, 0], [0, 1]]
    """
    columns = []
    for name, values in (("y_true", y_true), ("labels", classes)):
        array = np.empty(0) if values is None else plain(values, name)
        refuse_nan(array, name, "drop those points")
        columns.append(_python(array, name))
        if any(map(is_null, columns[-1])):
            raise NullError(f"{name} has a null among its labels; drop those points")
    label, listed = columns
    try:
        named = listed or sorted(set(label))  # type: ignore[type-var]  # labels of types that differ have no order
        places = {one: i for i, one in enumerate(named)}
    except TypeError as error:
        raise LabelError(f"y_true has labels that have no order ({error}); name the classes in labels") from error
    if len(places) != count:
        raise LabelError(
            f"there are {plural(len(places), 'class') if len(places) == 1 else f'{len(places)} classes'} and "
            f"{plural(count, 'column')} of scores; name the classes of the columns, in their order, in labels"
        )
    unknown = next((one for one in label if one not in places), None)
    if unknown is not None:
        raise LabelError(f"y_true has the label {unknown!r}, which is not in labels; add it, or drop those points")
    matrix = np.zeros((len(label), count), np.uint8)
    matrix[np.arange(len(label)), [places[one] for one in label]] = 1
    return matrix


def points(y_true: ArrayLike, y_score: ArrayLike, pos_label: object, sample_weight: ArrayLike | None) -> ScoreCounts:
    """The state of the labels, scores and weights that are the arguments of a metric.

    Examples
    --------
    >>> points([0, 1], [0.2, 0.4], None, None).totals().pos
    1
    """
    return fold(*check_arguments(y_true, y_score, pos_label, sample_weight))
