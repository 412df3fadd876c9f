"""Narrowing: the pieces of a scan that can hold rows of a few ids, by the statistics of their row groups.

Where data are sorted by id, a few row groups hold all rows of the ids that are shown.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streameval import scan
from streameval.evaluation.costs.ids import not_there
from streameval.scan.where import Where

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streameval.scan import Scan
    from streameval.states.values import IdColumn, ValuesSpec

__all__ = ["narrowed"]

_MOST = 256  # ids: each is compared with the statistics of every row group
_DTYPES = {"signed": np.int64, "unsigned": np.uint64}


def narrowed(found: Scan, wanted: Iterable[ValuesSpec]) -> Scan:
    """The scan without row groups that hold no row of the groups wanted.

    Nothing is left out where ids are hashed, belong to their partition, or are many.

    Raises
    ------
    OptionError
        If the type of the column does not hold an id.
    """
    ids: dict[IdColumn, set[int]] = {}
    for spec in wanted:
        first = spec.keys[0]
        if first.type not in _DTYPES or first.scope != "global":
            return found
        ids.setdefault(first, set()).update(spec.wanted[:, 0].view(_DTYPES[first.type]).tolist())
    if not ids or sum(map(len, ids.values())) > _MOST:
        return found
    test = Where.of(reduce(or_, (_equals(found, key, one) for key, several in ids.items() for one in several)))
    return scan.prune(found, test.bound(found.schema))[0]


def _equals(found: Scan, key: IdColumn, one: int) -> Any:
    kind = found.schema.field(key.name).type
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    try:
        return pc.field(key.name) == pa.scalar(one, plain)
    except (pa.ArrowInvalid, OverflowError):  # narrower than the column that was counted
        raise not_there(key.name) from None
