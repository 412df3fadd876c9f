"""A loop over the footer of a Parquet file, as Arrow writes it: the statistics of its column chunks.

Arrow aborts the process when it decodes an end that is shorter than its type. The fields are those of the structs in
`parquet.thrift` (github.com/apache/parquet-format).
"""

from __future__ import annotations

import numpy as np

from streameval.kernels.jit import jit
from streameval.kernels.pages import ABSENT, varint
from streameval.kernels.prefetch import byte_at

# what is read of a column chunk, by the field of its statistics: numbers, or offsets of texts with their sizes behind
OLD_MAX, OLD_MIN, NULLS, MAX, MIN, MAX_EXACT, MIN_EXACT = 1, 2, 3, 5, 6, 7, 8
ENDS = 9  # the sizes of the ends are as many columns behind them
COUNT, FIELDS = 0, 16  # number of values
_STOP, _TRUE, _FALSE, _BYTE, _DOUBLE, _TEXT, _LIST, _SET, _STRUCT = 0, 1, 2, 3, 7, 8, 9, 10, 12
_DEPTH = 24  # of structs and lists in each other
_GROUPS, _COLUMNS, _METADATA, _STATISTICS, _VALUES, _ORDERS, _OF_TYPE = 4, 1, 3, 12, 5, 7, 1


@jit
def parse_footer(data, chunks, ordered):
    """Parse a footer in Thrift's compact protocol.

    Parameters
    ----------
    data : uint8 array
    chunks : int64 array of shape (row groups, columns, FIELDS), receives what is read; a field that a chunk lacks is
        `ABSENT`
    ordered : bool array of shape (columns,), receives whether the ends of a column have the order of its type

    Returns
    -------
    bool
        Whether the footer was understood.
    """
    chunks[:], ordered[:] = ABSENT, False
    address, at, depth = np.uint64(data.ctypes.data), np.int64(0), 0
    path, left, item = np.zeros(_DEPTH, np.int64), np.zeros(_DEPTH, np.int64), np.zeros(_DEPTH, np.int64)
    left[0] = -1  # a struct
    while at < data.size:
        if left[depth] == 0:
            depth -= 1
            continue
        head = np.int64(byte_at(address, at))
        if left[depth] > 0:
            kind = item[depth]
            path[depth] += 1
            left[depth] -= 1
            if kind in (_TRUE, _FALSE):
                kind = _BYTE
        else:
            kind, at = head & 15, at + 1
            if kind == _STOP:
                if depth == 0:
                    return True
                depth -= 1
                continue
            if head >> 4 == 0:
                return False
            path[depth] += head >> 4
        value, size = np.int64(kind == _TRUE), np.int64(0)
        if kind in (_STRUCT, _LIST, _SET):
            if depth == 2 and kind == _STRUCT and path[0] == _ORDERS and path[1] <= ordered.size:
                ordered[path[1] - 1] = path[2] == _OF_TYPE
            depth += 1
            if depth == _DEPTH:
                return False
            path[depth], left[depth] = 0, -1
            if kind != _STRUCT:
                head = np.int64(byte_at(address, at))
                left[depth], item[depth], at = head >> 4, head & 15, at + 1
                if left[depth] == 15:
                    number, at = varint(address, at, data.size)
                    left[depth] = np.int64(number)
            continue
        if kind in (_BYTE, _DOUBLE):
            at += 1 if kind == _BYTE else 8
        elif kind not in (_TRUE, _FALSE):
            number, at = varint(address, at, data.size)
            if at < 0:
                return False
            value = np.int64(number >> np.uint64(1)) ^ -np.int64(number & np.uint64(1))
            if kind == _TEXT:
                value, size = at, np.int64(number)
                at += size
        if not (path[0] == _GROUPS and depth >= 5 and path[2] == _COLUMNS and path[4] == _METADATA):
            continue
        if path[1] > chunks.shape[0] or path[3] > chunks.shape[1]:
            return False
        chunk = chunks[path[1] - 1, path[3] - 1]
        if depth == 5 and path[5] == _VALUES:
            chunk[COUNT] = value
        elif depth == 6 and path[5] == _STATISTICS and 0 < path[6] < ENDS:
            chunk[path[6]] = value
            if kind == _TEXT:
                chunk[path[6] + ENDS] = size
    return False
