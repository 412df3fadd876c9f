"""Narrow a scan to the row groups that can hold rows of a few ids, by their statistics.

If data are sorted by id, only a few row groups hold the ids that are shown.
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
from streameval.scan import Where

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streameval.scan import Scan
    from streameval.states.values import IdColumn, ValuesSpec

_MOST = 256  # most ids to test; each is compared with the statistics of every row group
_DTYPES = {"signed": np.int64, "unsigned": np.uint64}


def narrowed(found: Scan, wanted: Iterable[ValuesSpec]) -> Scan:
    """Prune row groups that hold no row of the wanted ids.

    The scan is unchanged if ids are hashed, are scoped to partitions, or are more than 256.

    Raises
    ------
    OptionError
        If the column's type cannot represent an id.
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
    except (pa.ArrowInvalid, OverflowError):  # the type is narrower than that of the column that was counted
        raise not_there(key.name) from None
