"""Labels of several classes: each score column has a class of its own, against all other rows.

The label of a batch is the number of its class, from 1 in the order of the specification, and 0 for any other class; a
builder whose columns belong to a class sees 1 for that class and 0 for all others (`rows_of_class`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from streameval.errors import LabelError
from streameval.states.labels import LabelReader, LabelSpec

if TYPE_CHECKING:
    import pyarrow as pa

    from streameval.states.labels import Label
    from streameval.states.protocol import Batch, Spec
    from streameval.typing import Array

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
