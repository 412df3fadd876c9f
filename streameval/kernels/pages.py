"""Loops over the bytes of Parquet pages: their headers, and hybrids of run lengths and bit-packed numbers.

No byte is trusted: every length, width, count and code is checked before it is used. The sections that are named are
those of the Parquet format (github.com/apache/parquet-format).
"""

from __future__ import annotations

import numpy as np

from streameval.kernels.jit import inlined, jit, step
from streameval.kernels.prefetch import byte_at, eight_at

ABSENT = -(1 << 62)  # a field that a header does not have
# columns of a table of pages: offset in the data, fields of the header, then what `unpack_pages` reads and writes
PLACE, KIND, NBYTES, STORED, CHECKSUM, COUNT, ENCODING, LEVELS, LENGTH, NESTED, COMPRESSED = range(11)
STATED, ADDRESS, SIZE, START, VALUES, COLUMNS = range(11, 17)
DATA_PAGE, INDEX_PAGE, DICTIONARY_PAGE, DATA_PAGE_V2 = range(4)  # kinds of pages
PLAIN, PLAIN_DICTIONARY, RLE, RLE_DICTIONARY = 0, 2, 3, 8  # encodings
_SHORT = 64  # numbers, or groups of eight, that runs of one byte are shorter than
_OF_BITS = np.unpackbits(np.arange(256, dtype=np.uint8), bitorder="little").reshape(256, 8)
WIDEST = 32  # bits of a code
_LONGEST = (1 << 31) - 1  # numbers, or groups of numbers, of a run

# the fields of the structs of a header (0: the header itself), by the column that holds them
_HEADER = ((0, 1, KIND), (0, 2, NBYTES), (0, 3, STORED), (0, 4, CHECKSUM), (7, 1, COUNT), (7, 2, ENCODING))
_FIRST, _SECOND = (
    ((5, 1, COUNT), (5, 2, ENCODING), (5, 3, LEVELS)),
    ((8, 1, COUNT), (8, 4, ENCODING), (8, 5, LENGTH), (8, 6, NESTED), (8, 7, COMPRESSED)),
)
_FIELDS = np.array([*_HEADER, *_FIRST, *_SECOND])
_STOP, _TRUE, _FALSE, _BYTE, _TEXT, _STRUCT = 0, 1, 2, 3, 8, 12  # types of Thrift's compact protocol
_NUMBER, _LONG = 5, 6  # types of integers of 32 bits, and of 64 bits, which only statistics have
_DEPTH = 2  # structs in a header: of the kind of page, and of its statistics
_ONE, _EIGHT = np.uint64(1), np.uint64(8)


@step
def varint(address, at, stop):
    """An unsigned number in groups of seven bits, and the offset behind it; this is −1 if the number does not end."""
    value, shift = np.uint64(0), np.uint64(0)
    while at < stop and shift < np.uint64(64):
        byte = byte_at(address, at)
        value |= (byte & np.uint64(127)) << shift
        at += 1
        if byte < np.uint64(128):
            return value, at
        shift += np.uint64(7)
    return value, np.int64(-1)


@step
def _parse_header(address, at, stop, page):
    """Parse a `PageHeader` in Thrift's compact protocol; returns the offset behind it, −1 if it does not end."""
    page[:] = ABSENT
    path, depth = np.zeros(_DEPTH + 1, np.int64), 0
    while at < stop:
        head = byte_at(address, at)
        kind, delta = np.int64(head & np.uint64(15)), np.int64(head >> np.uint64(4))
        path[depth] += delta
        at += 1
        value = np.int64(0)
        if kind == _STOP:
            if depth == 0:
                return at
            depth -= 1
            continue
        if delta == 0:
            return -1
        if kind == _STRUCT:
            depth += 1
            if depth > _DEPTH:
                return -1
            path[depth] = 0
            continue
        if kind in (_TEXT, _NUMBER, _LONG):
            number, at = varint(address, at, stop)
            if at < 0 or (kind == _TEXT and number > np.uint64(stop - at)) or (kind == _LONG and depth < _DEPTH):
                return -1
            value = np.int64(number >> np.uint64(1)) ^ -np.int64(number & np.uint64(1))
            at += np.int64(number) if kind == _TEXT else 0
        elif kind in (_TRUE, _FALSE, _BYTE):
            value = np.int64(kind == _TRUE)
            at += np.int64(kind == _BYTE)
        else:
            return -1
        for i in range(_FIELDS.shape[0] if kind != _TEXT else 0):
            struct, field = _FIELDS[i, 0], _FIELDS[i, 1]
            if path[depth] == field and (path[0] == struct if depth == 1 else struct == 0 and depth == 0):
                page[_FIELDS[i, 2]] = value
    return -1


@jit
def parse_headers(data, rows, pages):
    """Parse the headers of data pages that follow each other in some bytes, or of one other page ("Data Pages").

    Parameters
    ----------
    data : uint8 array, whose first byte begins a header
    rows : number of rows after which no further page is needed
    pages : int64 array of shape (n, COLUMNS), receives the header of each page; a field that it lacks is `ABSENT`. A
        page that is compressed by Snappy begins with its uncompressed size: `STATED`

    Returns
    -------
    int
        Number of pages that lie in the data as a whole, at most n - 1. If it is smaller, the next row has the header of
        a page that is cut off, with a `STORED` size of `ABSENT` if the header itself is cut off, or damaged.

    Examples
    --------
    >>> data = np.frombuffer(bytes.fromhex("1504150815084c150215040000 01020304 1504"), np.uint8)
    >>> pages = np.empty((3, COLUMNS), np.int64)
    >>> parse_headers(data, 1, pages), pages[0, [PLACE, KIND, NBYTES, STORED, COUNT]].tolist()
    (1, [13, 2, 4, 4, 1])
    """
    address, at = np.uint64(data.ctypes.data), np.int64(0)
    for n in range(pages.shape[0] - 1):
        page = pages[n]
        place = _parse_header(address, at, data.size, page)
        counted = page[COUNT] >= 0 or page[KIND] == INDEX_PAGE
        if place < 0 or page[NBYTES] < 0 or page[STORED] < 0 or not counted:
            page[STORED] = ABSENT
            return n
        page[PLACE] = place
        if page[STORED] > data.size - place:
            return n
        at = place + page[STORED]
        stated, _ = varint(address, place + min(max(page[LENGTH], 0), page[STORED]), at)
        page[STATED] = np.int64(stated)
        if page[KIND] != DATA_PAGE and page[KIND] != DATA_PAGE_V2:
            return max(n, 1)
        rows -= page[COUNT]
        if rows <= 0:
            return n + 1
    return pages.shape[0] - 1


@inlined
def _number(address, start, stop, bit, mask):
    """The bit-packed number whose first bit is `bit` of byte `start`; no byte at `stop` or behind it is read."""
    start, shift = start + (bit >> 3), np.uint64(bit & 7)
    if start + 8 <= stop:
        return (eight_at(address, start) >> shift) & mask
    word = np.uint64(0)
    for i in range(stop - start):
        word |= byte_at(address, start + i) << (_EIGHT * np.uint64(i))
    return (word >> shift) & mask


@inlined
def _unpack_narrow(address, at, groups, bits, codes):
    """Unpack groups of eight numbers of up to 8 bits, each from eight bytes; returns the largest number."""
    most, mask = np.uint32(0), (np.uint64(1) << bits) - np.uint64(1)
    for j in range(np.uint64(0), np.uint64(groups)):
        word, i = eight_at(address, at + np.int64(j * bits)), j << np.uint64(3)
        for k in range(8):
            code = np.uint32((word >> (np.uint64(k) * bits)) & mask)
            most = max(most, code)
            codes[i + np.uint64(k)] = code
    return most


@inlined
def _unpack_wide(address, at, groups, bits, codes):
    """Unpack groups of eight numbers of 9 to 16 bits, each from twice eight bytes; returns the largest number."""
    most, mask = np.uint32(0), (np.uint64(1) << bits) - np.uint64(1)
    half, shift = np.int64(bits >> np.uint64(1)), (np.uint64(4) * bits) & np.uint64(7)
    for j in range(np.uint64(0), np.uint64(groups)):
        place, i = at + np.int64(j * bits), j << np.uint64(3)
        one, two = eight_at(address, place), eight_at(address, place + half) >> shift
        for k in range(4):
            here = np.uint64(k) * bits
            code, other = np.uint32((one >> here) & mask), np.uint32((two >> here) & mask)
            most = max(most, code, other)
            codes[i + np.uint64(k)], codes[i + np.uint64(k + 4)] = code, other
    return most


@step
def _unpack_bits(address, at, stop, codes):
    """Unpack short runs of numbers of one bit, as labels mostly are; returns the next byte and the next number.

    A length that is unpredictable costs as much as thirty numbers. So more numbers are written than a run has, which
    the next run overwrites.
    """
    done, end, last = np.uint64(0), np.int64(codes.size) - 8 * (_SHORT + 4), stop - _SHORT - 4
    while np.int64(done) < end and at < last:
        head = byte_at(address, at)
        count = head >> _ONE
        if count == np.uint64(0) or count >= np.uint64(_SHORT):
            break
        at += 1
        if head & _ONE:
            for j in range(np.uint64(0), count, np.uint64(4)):
                for n in range(4):
                    byte, i = byte_at(address, at + np.int64(j) + n), done + ((j + np.uint64(n)) << np.uint64(3))
                    for k in range(8):
                        codes[i + np.uint64(k)] = _OF_BITS[byte, k]
            at, done = at + np.int64(count), done + (count << np.uint64(3))
        else:
            code = byte_at(address, at)
            if code > _ONE:
                at -= 1
                break
            for j in range(np.uint64(0), count, np.uint64(16)):
                for k in range(16):
                    codes[done + j + np.uint64(k)] = code
            at, done = at + 1, done + count
    return at, np.int64(done)


@step
def _unpack(address, at, stop, width, limit, codes):
    """Unpack as many numbers as `codes` has items from a hybrid of run lengths and bit-packed numbers ("RLE").

    Returns whether the bytes from `at` to `stop` hold as many numbers, all of them smaller than `limit`.
    """
    done, most, bits = 0, np.uint32(0), np.uint64(width)
    mask, octet = (np.uint64(1) << bits) - np.uint64(1), (width + 7) >> 3
    while done < codes.size:
        if width == 1 and limit > 1:
            at, rows = _unpack_bits(address, at, stop, codes[done:])
            done += rows
        head, at = varint(address, at, stop)
        count = np.int64(min(head >> np.uint64(1), np.uint64(_LONGEST + 1)))
        if at < 0 or not 0 < count <= _LONGEST:
            return False
        if head & np.uint64(1):  # groups of eight bit-packed numbers
            rows, beyond = min(8 * count, codes.size - done), count * width - (stop - at)
            # old writers cut the last group of the last run behind its last number
            if (rows * width + 7) >> 3 > stop - at or beyond >= max(width, 1):
                return False
            groups = rows >> 3 if width <= 16 else 0  # that are unpacked as a whole
            if count * width + 8 > stop - at:  # only here is a division, which takes long, needed
                groups = min(groups, max(0, (stop - at - 16) // max(width, 1)))
            if width <= 8:
                most = max(most, _unpack_narrow(address, at, groups, bits, codes[done:]))
            else:
                most = max(most, _unpack_wide(address, at, groups, bits, codes[done:]))
            for i in range(8 * groups, rows):
                code = np.uint32(_number(address, at, stop, i * width, mask))
                most = max(most, code)
                codes[done + i] = code
            at = min(at + count * width, stop)
        else:
            rows = min(count, codes.size - done)
            if octet > stop - at:
                return False
            word = np.uint64(0)
            for i in range(octet):
                word |= byte_at(address, at + i) << (_EIGHT * np.uint64(i))
            if word > mask:
                return False
            code = np.uint32(word)
            most = max(most, code)
            codes[done : done + rows] = code
            at += octet
        done += rows
    return codes.size == 0 or np.int64(most) < limit


@step
def _read_levels(address, size, codes, present):
    """Find which values are not null; `codes` is scratch.

    Returns the offset of the values, −1 if it is damaged, and their number; if no value is null, `present` may not have
    been written.
    """
    if size < 4:
        return np.int64(-1), np.int64(0)
    length = np.int64(0)
    for i in range(4):
        length |= np.int64(byte_at(address, i)) << (8 * i)
    if length > size - 4:
        return np.int64(-1), np.int64(0)
    head, at = varint(address, np.int64(4), 4 + length)
    if 0 < at < 4 + length and head == np.uint64(codes.size) << _ONE and byte_at(address, at) == _ONE:
        return 4 + length, np.int64(codes.size)  # a run of ones, as writers store a page without nulls
    if not _unpack(address, np.int64(4), 4 + length, np.int64(1), np.int64(2), codes):
        return np.int64(-1), np.int64(0)
    values = np.int64(0)
    for i in range(codes.size):
        present[i] = codes[i]
        values += np.int64(codes[i])
    return 4 + length, values


@step
def _spread(codes, present, values):
    """Move the first `values` codes to the rows that are not null."""
    at = values
    for i in range(codes.size - 1, -1, -1):
        at -= np.int64(present[i])
        codes[i] = codes[at] if present[i] else 0


@step
def _unpack_booleans(address, at, stop, encoding, codes):
    """Unpack booleans, either plain bits or a hybrid behind its length in four bytes; returns whether all are there."""
    if encoding == PLAIN:
        if (codes.size + 7) >> 3 > stop - at:
            return False
        for i in range(codes.size >> 3):
            byte = byte_at(address, at + i)
            for k in range(8):
                codes[8 * i + k] = _OF_BITS[byte, k]
        for i in range(8 * (codes.size >> 3), codes.size):
            codes[i] = _OF_BITS[byte_at(address, at + (i >> 3)), i & 7]
        return True
    if encoding != RLE or stop - at < 4:
        return codes.size == 0
    length = np.int64(0)
    for i in range(4):
        length |= np.int64(byte_at(address, at + i)) << (8 * i)
    at += 4
    return length <= stop - at and _unpack(address, at, at + length, np.int64(1), np.int64(2), codes)


@jit
def unpack_pages(pages, nullable, boolean, limit, codes, present):
    """Unpack the codes of dictionary pages, and find the values of others.

    Parameters
    ----------
    pages : int64 array of shape (n, COLUMNS): `ADDRESS`, `SIZE` and `COUNT` are read, `START` and `VALUES` receive the
        offset and the number of the values that are not null
    nullable : whether pages begin with definition levels of 0 and 1, and their length in four bytes
    boolean : whether values are booleans, which are codes of themselves
    limit : number of entries of the dictionary
    codes : uint8 or int32 array with an item for each row of all pages, which holds `limit`; 0 where a value is null or
        not a code
    present : uint8 array of the same size, receives 0 where a value is null, else 1; undefined if none is

    Returns
    -------
    int
        Number of values that are not null; −1 if a page is damaged.
    """
    row, total, has_nulls = np.int64(0), np.int64(0), False
    for n in range(pages.shape[0]):
        page = pages[n]
        address, size, rows = np.uint64(page[ADDRESS]), page[SIZE], page[COUNT]
        here, there, start, values = codes[row : row + rows], present[row : row + rows], np.int64(0), rows
        if nullable:
            start, values = _read_levels(address, size, here, there)
            if start < 0:
                return np.int64(-1)
            if values < rows and not has_nulls:
                present[:row], has_nulls = 1, True
            elif has_nulls and values == rows:
                there[:] = 1
        page[START], page[VALUES] = start, values
        if boolean:
            if not _unpack_booleans(address, start, size, page[ENCODING], here[:values]):
                return np.int64(-1)
            if values < rows:
                _spread(here, there, values)
        elif page[ENCODING] == PLAIN_DICTIONARY or page[ENCODING] == RLE_DICTIONARY:
            width = np.int64(byte_at(address, start)) if start < size else np.int64(WIDEST + 1)
            if values and (width > WIDEST or not _unpack(address, start + 1, size, width, limit, here[:values])):
                return np.int64(-1)
            if values < rows:
                _spread(here, there, values)
        row += rows
        total += values
    return total


@jit
def gather(dictionary, codes, values):
    """Write the value of each code, all of which are in the dictionary; its last value is that of no code."""
    if dictionary.size == 3:  # this loop is vectorized
        one, two = dictionary[0], dictionary[1]
        for i in range(codes.size):
            values[i] = two if codes[i] else one
    else:
        for i in range(codes.size):
            values[i] = dictionary[np.uint64(codes[i])]


@jit
def unframe(data, offsets, texts):
    r"""Write texts that are each preceded by their length in four bytes one behind the other ("Plain").

    Parameters
    ----------
    data : uint8 array
    offsets : int32 array with an item more than there are texts, the first one 0; receives the ends of the texts
    texts : uint8 array of the size of `data`

    Returns
    -------
    bool
        Whether the data hold as many texts.

    Examples
    --------
    >>> offsets, texts = np.zeros(3, np.int32), np.zeros(12, np.uint8)
    >>> unframe(np.frombuffer(b"\x01\0\0\0a\x03\0\0\0bcd", np.uint8), offsets, texts)
    True
    >>> offsets.tolist(), bytes(texts[:4])
    ([0, 1, 4], b'abcd')
    """
    address, at, done = np.uint64(data.ctypes.data), np.int64(0), np.int64(0)
    for n in range(offsets.size - 1):
        if data.size - at < 4:
            return False
        length = np.int64(0)
        for i in range(4):
            length |= np.int64(byte_at(address, at + i)) << (8 * i)
        at += 4
        if length > data.size - at:
            return False
        texts[done : done + length] = data[at : at + length]
        at, done = at + length, done + length
        offsets[n + 1] = done
    return True
