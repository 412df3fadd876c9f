"""LabelCounts: the number of rows of each class, and the label values that occurred.

Unless a positive label is named, numbers above zero are positive. The *whole* data must then have at most two label
values, of which at most one is above zero and at most one is not. This can be checked only once all states are merged.

Of several classes, each score column has one of its own, against all other rows. The label of a batch is then the
number of its class, from 1 in the order of the specification, and 0 for any other class; a builder whose columns belong
to a class sees 1 for that class and 0 for all others (`rows_of_class`).
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streameval.errors import LabelError, NullError
from streameval.states.protocol import Small, Totals, Traits, mergeable
from streameval.typing import Array, valid_rows, view_numbers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from streameval.budget import Budget
    from streameval.states.protocol import Batch, Header, Spec

    Label = bool | int | float | str

# raised by Arrow for a value that a type cannot hold; their common base would also cover a lack of memory
_NO_VALUE = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, OverflowError, UnicodeError)
_UNLABELLED = (
    "choose unlabelled='drop' (--unlabelled drop) to leave those rows out; for clusters, evaluate also takes 'size', "
    "and of a random sample of labels its design, to estimate all rows (--sampled-by)"
)
_INTEGER = re.compile(r"-?\d{1,99}", re.ASCII)
_REMEDY = "name the positive one with pos_label (--pos-label)"
_SEVERAL = f"{_REMEDY}, the others are then negative; evaluate takes several classes, score='p_{{class}}' (--score)"


def _ascending(labels: Iterable[Label]) -> list[Label]:
    """Numbers, then texts: nights may differ in the type of the label."""
    return sorted(labels, key=lambda label: (isinstance(label, str), label))


def _plain(label: Label | bytes) -> Label:
    """A label as it appears in JSON and messages."""
    if isinstance(label, bytes):
        return label.decode("utf-8", "surrogateescape")
    return label if isinstance(label, bool | int | float) else str(label)


@dataclass(frozen=True)
class LabelSpec:
    """How labels are read.

    Attributes
    ----------
    column : the label column; None if no metric needs a label
    pos_label : the positive label; None if numbers above zero are positive. Bytes are stored as text, so that a stored
        state holds plain JSON values; for a binary column, the text is encoded again
    nulls : treatment of rows without a label: ``error`` refuses them, ``drop`` leaves them out of everything that needs
        a label, ``size`` also counts them in the sizes of clusters
    complete : columns in which every row must have a value; rows with a null or NaN in one are left out of all metrics

    Examples
    --------
    >>> LabelSpec("label").empty().totals().rows
    0
    """

    kind: ClassVar[str] = "label_counts"
    version: ClassVar[int] = 1
    binary: ClassVar[bool] = True  # whether there are two classes for all columns

    column: str | None
    pos_label: bool | int | float | str | bytes | None = None
    nulls: str = "error"
    complete: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "complete", tuple(self.complete))
        if isinstance(self.pos_label, bytes):
            object.__setattr__(self, "pos_label", _plain(self.pos_label))

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns to read."""
        return ((self.column,) if self.column else ()) + self.complete

    @property
    def traits(self) -> Traits:
        """The defaults."""
        return Traits()

    @property
    def schema(self) -> pa.Schema:
        """No columns: the header contains everything."""
        return pa.schema([])

    def empty(self) -> LabelCounts:
        """The empty state."""
        return LabelCounts(self)

    def from_arrow(self, header: Mapping[str, Any], batches: Iterable[pa.RecordBatch], budget: Budget) -> LabelCounts:
        """The state that `LabelCounts.header` describes."""
        for _ in batches:
            pass
        rows = header["neg"], header["pos"], header["null"]
        if self.pos_label is None and any(isinstance(label, str) for label in header["values"]):
            raise ValueError("labels are numbers unless the positive one has a name")
        return LabelCounts(self, *rows, frozenset(header["values"]), header.get("incomplete", 0))


@dataclass(frozen=True)
class LabelCounts(Small):
    """Rows of each class.

    Attributes
    ----------
    spec : LabelSpec
    neg, pos : rows of each class
    null : rows whose label is null or NaN, or all rows if no label is read
    values : up to three of the label values seen; with `pos_label`, empty once a row has it
    incomplete : rows left out because a column of `LabelSpec.complete` is null or NaN
    """

    spec: LabelSpec
    neg: int = 0
    pos: int = 0
    null: int = 0
    values: frozenset[Any] = frozenset()
    incomplete: int = 0

    @property
    def rows(self) -> int:
        """Number of rows to evaluate."""
        return self.neg + self.pos + (self.null if self.spec.column is None or self.spec.nulls == "size" else 0)

    @property
    def positives(self) -> int | None:
        """Number of rows known to be positive; None if no label is read, or there are several classes."""
        return self.pos if self.spec.column is not None and self.spec.binary else None

    @property
    def seen(self) -> int:
        """Number of all rows read, including those left out."""
        return self.neg + self.pos + self.null + self.incomplete

    def merge(self, *others: LabelCounts) -> LabelCounts:
        """Counts of all inputs."""
        for other in others:
            mergeable(self, other)
        parts = (self, *others)
        neg, pos, null, incomplete = (
            sum(getattr(part, name) for part in parts) for name in ("neg", "pos", "null", "incomplete")
        )
        values = self.values.union(*(other.values for other in others))
        has_positive = pos and self.spec.pos_label is not None
        samples = frozenset() if has_positive else frozenset(_ascending(values)[:3])
        return LabelCounts(self.spec, neg, pos, null, samples, incomplete)

    def totals(self) -> Totals:
        """Rows of both classes."""
        return Totals(self.neg, self.pos, float(self.neg), float(self.pos))

    def check(self) -> None:
        """Raise `LabelError` if the values seen over the whole data do not form two classes."""
        if self.spec.pos_label is not None:
            return
        values = sorted(self.values)
        column = f"label column {self.spec.column!r}"
        if len(values) > 2:
            listed = ", ".join(map(str, values))
            raise LabelError(f"{column} has more than two values ({listed}, …); {_SEVERAL}")
        if len(values) == 2 and (values[0] > 0) == (values[1] > 0):
            raise LabelError(f"{column} has the values {values[0]} and {values[1]}; {_REMEDY}")

    def check_found(self, where: str) -> None:
        """Raise `LabelError`, naming the input `where`, if there are several labels and none is `pos_label`."""
        if self.spec.pos_label is not None and len(self.values) > 1:
            listed = ", ".join(map(repr, _ascending(self.values))) + ", …" * (len(self.values) > 2)
            column = f"{where}: label column {self.spec.column!r}"
            raise LabelError(f"{column} has no label {self.spec.pos_label!r}; it has {listed}; {_REMEDY}")

    def header(self) -> Header:
        """The complete state, since it has no table."""
        spec: dict[str, object] = json.loads(json.dumps(asdict(self.spec)))  # tuples become lists
        return {**asdict(self), "spec": spec, "values": _ascending(self.values)}

    def to_arrow(self, budget: Budget | None = None) -> Iterator[pa.RecordBatch]:
        """No batches."""
        return iter(())


class LabelReader:
    """Builder of `LabelCounts`, which reads the labels for all other builders.

    Parameters
    ----------
    spec : LabelSpec
    dtype : type of the label column

    If the type needs a positive label and none is named, or cannot hold the named one, labels that are not null are
    refused. A night without labels may have a column of any type.
    """

    def __init__(self, spec: LabelSpec, dtype: pa.DataType) -> None:
        self.spec = spec
        self._refused: LabelError | None = None
        try:
            self._positive = self._scalar(dtype)
        except LabelError as error:
            self._positive, self._refused = pa.scalar(None), error
        self._counts = spec.empty()

    def check(self) -> None:
        """Raise `LabelError` if labels that are not null would be refused for their type."""
        if self._refused is not None:
            raise self._refused

    def _scalar(self, dtype: pa.DataType) -> pa.Scalar | None:
        """The positive label in the column's type."""
        if pa.types.is_dictionary(dtype):
            dtype = dtype.value_type
        number = (
            pa.types.is_boolean(dtype)
            or pa.types.is_integer(dtype)
            or pa.types.is_floating(dtype)
            or pa.types.is_decimal(dtype)
        )
        if self.spec.pos_label is None:
            if number or pa.types.is_null(dtype):
                return None
            raise LabelError(f"label column {self.spec.column!r} has type {dtype}; {_SEVERAL}")
        given = self.spec.pos_label
        if pa.types.is_boolean(dtype) and isinstance(given, int | float) and given not in (0, 1):
            raise LabelError(self._type_message(dtype))
        if dtype == pa.float16():  # `read` widens it
            dtype = pa.float32()
        if isinstance(given, bool) and not pa.types.is_boolean(dtype) and number:
            given = int(given)
        try:
            if isinstance(given, str) and pa.types.is_binary(dtype):
                return pa.scalar(given.encode("utf-8", "surrogateescape"), dtype)
            if isinstance(given, str) or not number or pa.types.is_decimal(dtype):
                scalar = pa.scalar(str(given)).cast(dtype)
                if _INTEGER.fullmatch(str(given)) and pa.types.is_floating(dtype) and scalar.as_py() != int(given):
                    raise OverflowError  # Arrow has rounded it
                return scalar
            large = isinstance(given, int) and given >= 1 << 63
            return pa.scalar(given, pa.uint64() if large else None).cast(dtype, safe=True)
        except _NO_VALUE as error:
            raise LabelError(self._type_message(dtype)) from error

    def _type_message(self, dtype: pa.DataType) -> str:
        column, given = self.spec.column, self.spec.pos_label
        return f"pos_label={given!r} is not a value of label column {column!r}, whose type is {dtype}; name one that is"

    def complete(self, batch: pa.RecordBatch) -> Array | None:
        """Which rows have a value in every column of `LabelSpec.complete`, as a bool array; None if all have."""
        complete = None
        for name in self.spec.complete:
            present = _present(batch.column(name))
            if present is not None:
                complete = present if complete is None else complete & present
        if complete is not None:
            left_out = int(complete.size - np.count_nonzero(complete))
            self._counts = self._counts.merge(LabelCounts(self.spec, incomplete=left_out))
        return complete

    def rows(self, batch: pa.RecordBatch, name: str) -> tuple[Array, Array | None]:
        """Labels of all rows as uint8 (0 if null), and which rows have one as a bool array (None if all have one)."""
        if self.spec.column is None:
            self._counts = self._counts.merge(LabelCounts(self.spec, null=batch.num_rows))
            return np.zeros(batch.num_rows, np.uint8), None
        label, labelled = self.read(batch.column(self.spec.column), name)
        if labelled is not None:
            every = np.zeros(batch.num_rows, np.uint8)
            every[labelled] = label
            label = every
        return label, labelled

    def read(self, array: pa.Array, name: str) -> tuple[Array, Array | None]:
        """Labels that are not null as uint8, and which rows have one as a bool array (None if all have one).

        Raises
        ------
        NullError
            If a label is null or NaN and the policy refuses it; `name` names the input.
        LabelError
            If there are more than two label values and none is named as positive, or their type needs another name.
        """
        array, codes = _values(array)
        if self._refused is not None and array.null_count < len(array):
            raise LabelError(f"{name}: {self._refused}") from self._refused
        keep = None
        if array.null_count:
            if self.spec.nulls == "error":
                raise NullError(f"{name}: label column {self.spec.column!r} has nulls; {_UNLABELLED}")
            keep = valid_rows(array)
            if codes is not None:
                keep, codes = keep[codes], (np.cumsum(keep) - 1)[codes[keep[codes]]]
            array = array.drop_null()
        label, values = self._labels(array)
        label = label if codes is None else label[codes]
        positive = int(np.count_nonzero(label))
        null = 0 if keep is None else len(keep) - len(label)
        self._counts = self._counts.merge(
            LabelCounts(self.spec, len(label) - positive, positive, null, frozenset(values))
        )
        if len(values) > 2 and self._positive is None:
            try:
                self._counts.check()
            except LabelError as error:
                raise LabelError(f"{name}: {error}") from None
        return label, keep

    def _labels(self, array: pa.Array) -> tuple[Array, set[Label]]:
        """Labels, and the label values that occurred (none once the named positive label has been seen)."""
        if not len(array):
            return np.empty(0, np.uint8), set()
        if self._positive is not None:
            label = pc.equal(array, self._positive).cast(pa.uint8()).to_numpy(zero_copy_only=False)
            if self._counts.pos or label.any():
                return label, set()
            seen = pc.unique(array)
            if pa.types.is_string(seen.type) or pa.types.is_large_string(seen.type):
                seen = seen.cast(pa.large_binary())  # Arrow does not convert strings that are not UTF-8
            return label, set(map(_plain, seen.to_pylist()))
        if pa.types.is_boolean(array.type):
            array = array.cast(pa.uint8())
        if pa.types.is_decimal(array.type):
            return self._of_decimals(array)
        values = view_numbers(array)
        low, high = values.min(), values.max()
        if values.dtype.kind in "iu" and low >= 0 and high <= 1:
            return values.astype(np.uint8, copy=False) if values.itemsize > 1 else values.view(np.uint8), {
                int(low),
                int(high),
            }
        seen = {low.item(), high.item()}
        others = values[(values != low) & (values != high)]
        if others.size:
            seen.add(others[0].item())
        return (values > 0).view(np.uint8), seen

    def _of_decimals(self, array: pa.Array) -> tuple[Array, set[Label]]:
        """As `_labels`; labels are shortest decimal forms of floats, so that distinct labels are distinct floats."""
        if array.type.bit_width < 128:  # Arrow does not encode shorter ones
            array = array.cast(pa.decimal128(array.type.precision, array.type.scale))
        coded = array.dictionary_encode()
        exact = coded.dictionary.slice(0, 3).to_pylist()  # more are refused, whatever they are
        for label in exact:
            if not is_float(label):
                raise LabelError(
                    f"label column {self.spec.column!r} has the label {label}, which float64 cannot hold; {_REMEDY}"
                )
        positive = np.array([label > 0 for label in exact] or [False], np.uint8)
        return positive[np.minimum(coded.indices.to_numpy(), positive.size - 1)], set(map(float, exact))

    def state(self) -> LabelCounts:
        """Counts of everything read."""
        return self._counts


def is_float(label: Label | Decimal) -> bool:
    """Whether a label is not a decimal, or one that is the shortest form of a float, so that the float identifies it.

    >>> is_float(Decimal("0.3")), is_float(Decimal("0.30000000000000001"))
    (True, False)
    """
    return not isinstance(label, Decimal) or Decimal(repr(float(label))) == label


def _present(array: pa.Array) -> Array | None:
    """Which values are neither null nor NaN, as a bool array; None if all are."""
    array, codes = _values(array)
    if not array.null_count:
        return None
    present = valid_rows(array)
    return present if codes is None else present[codes]


def _values(array: pa.Array) -> tuple[pa.Array, Array | None]:
    """Values with null for NaN; of a dictionary those that occur, and the index of each row's value, else None.

    Unused dictionary entries are dropped, because there may be many. Half floats, which Arrow does not compare, are
    widened.
    """
    codes = None
    if pa.types.is_dictionary(array.type):
        coded = array.indices.dictionary_encode(null_encoding="encode")
        array, codes = array.dictionary.take(coded.dictionary), coded.indices.to_numpy()
    if array.type == pa.float16():
        array = array.cast(pa.float32())
    return (pc.if_else(pc.is_nan(array), None, array) if pa.types.is_floating(array.type) else array), codes


AVERAGES = MACRO, WEIGHTED, MICRO = "macro", "weighted", "micro"  # over classes


@dataclass(frozen=True)
class ClassSpec(LabelSpec):
    """How labels of several classes are read.

    Attributes
    ----------
    classes : pairs (score column, class), the class as text

    Examples
    --------
    >>> spec = ClassSpec("category", classes=(("p_spam", "spam"), ("p_ham", "ham")))
    >>> spec.number_of(("p_ham",)), spec.number_of(("size",))
    (2, 0)
    """

    kind: ClassVar[str] = "class_label_counts"
    binary: ClassVar[bool] = False

    classes: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "classes", tuple((column, name) for column, name in self.classes))

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {column: i for i, (column, _) in enumerate(self.classes, 1)}

    def number_of(self, columns: tuple[str, ...]) -> int:
        """The number of the class to which columns belong; 0 if to none."""
        return next((self._numbers[column] for column in columns if column in self._numbers), 0)


class ClassReader(LabelReader):
    """Reads the number of the class of each row."""

    def __init__(self, spec: ClassSpec, dtype: pa.DataType) -> None:
        self._numbers = {name: i for i, (_, name) in enumerate(spec.classes, 1)}
        super().__init__(spec, dtype)

    def _scalar(self, dtype: pa.DataType) -> None:
        return None

    def _labels(self, array: pa.Array) -> tuple[Array, set[Label]]:
        """The numbers of classes; no values, since any number of classes may occur."""
        coded = array.dictionary_encode()
        names = list(map(class_name, coded.dictionary.to_pylist()))
        if len(names) > _MOST:
            raise LabelError(
                f"label column {self.spec.column!r} has more than {_MOST:,} values; name one of classes (--label)"
            )
        numbers = np.array([self._numbers.get(name, 0) for name in names] or [0], np.uint16)
        return numbers[coded.indices.to_numpy()], set()


_MOST = 60_000  # classes of a batch


def class_name(label: object) -> str:
    """A label as the name of its class; whole numbers have no decimals.

    >>> class_name(1.0), class_name("spam"), class_name(b"ham")
    ('1', 'spam', 'ham')
    """
    if isinstance(label, bytes):
        return label.decode("utf-8", "surrogateescape")
    return str(int(label)) if isinstance(label, float) and label.is_integer() else str(label)


def rows_of_class(batch: Batch, label: LabelSpec | None, spec: Spec) -> Batch:
    """The batch with the label that a state sees: whether a row belongs to the class of its columns."""
    if not isinstance(label, ClassSpec) or not (number := label.number_of(spec.columns)):
        return batch
    return replace(batch, label=(batch.label == number).view(np.uint8))
