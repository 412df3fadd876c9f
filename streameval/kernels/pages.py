"""Loops over the bytes of Parquet pages: headers, Snappy, and hybrids of run lengths and bit-packed numbers.

No byte is trusted: every length, width, count and code is checked before it is used. The sections that are named are
those of the Parquet format (github.com/apache/parquet-format).
"""

from __future__ import annotations

import numpy as np

from streameval.kernels.jit import inline, jit, step
from streameval.kernels.prefetch import byte_at, eight_at, write_eight, write_group

ABSENT = -(1 << 62)  # a field that a header does not have
# columns of a table of pages: fields of the header, and what `parse_headers` and `find_values` find
KIND, NBYTES, COUNT, ROWS, ENCODING, LEVELS, LENGTH, NESTED = range(8)
PLACE, STORED, LEVELS_SIZE, SIZE, CHECKSUM, ADDRESS, COMPRESSED = range(8, 15)  # of bytes to finish
LEVELS_ADDRESS, START, UNFINISHED = range(15, 18)
VALUES_ADDRESS, VALUES_SIZE, VALUES, FORM, COLUMNS = range(18, 23)  # the values as `unpack` takes them
DATA_PAGE, INDEX_PAGE, DICTIONARY_PAGE, DATA_PAGE_V2 = range(4)  # kinds of pages
PLAIN, PLAIN_DICTIONARY, RLE, BIT_PACKED, RLE_DICTIONARY = 0, 2, 3, 4, 8  # encodings
UNCOMPRESSED, SNAPPY, OTHER = range(3)  # codecs
SPARE = 8  # bytes behind those that are decompressed
BITS, REVERSED, CODES, FRAMED, BARE = range(5)  # streams of codes, see `unpack`
_SHORT = 64  # numbers, or groups of eight, that runs of one byte are shorter than
# the eight bits of a byte as bytes, from the lowest and from the highest on
_OF_BITS = np.array([np.unpackbits(np.arange(256, dtype=np.uint8), bitorder=o).view("<u8") for o in ("little", "big")])
_ONES = np.uint64(0x0101010101010101)
WIDEST = 32  # bits of a code
_LONGEST = (1 << 31) - 1  # numbers, or groups of numbers, of a run

# the columns of the fields of a header (row 0) and of the structs in its fields 5, 7 and 8; −1 for others
_COLUMN = np.full((16, 16), -1)
_COLUMN[0, 1:5] = KIND, NBYTES, STORED, CHECKSUM
_COLUMN[7, 1:3] = COUNT, ENCODING
_COLUMN[5, 1:4] = COUNT, ENCODING, LEVELS
_COLUMN[8, [1, 3, 4, 5, 6, 7]] = COUNT, ROWS, ENCODING, LENGTH, NESTED, COMPRESSED
# what the first byte of an element of Snappy says: how many bytes the element takes, and, from the lowest bits on, how
# many it holds (8 bits, 255 if too many), the mask (16) and the high bits (16) of its distance, whether it is a literal
_TAG = np.arange(256)
_LITERAL, _NEAR, _FAR = np.arange(3)[:, None] == _TAG % 4
_TAKEN = np.select([_LITERAL, _NEAR, _FAR], [_TAG // 4 + 2, 2, 3], 5).astype(np.uint8)
_HELD = np.select([_LITERAL & (_TAG < 240), _NEAR, _FAR], [_TAG // 4 + 1, 4 + _TAG // 4 % 8, _TAG // 4 + 1], 255)
_ELEMENTS = _HELD | 255 * _NEAR << 8 | 65535 * _FAR << 8 | _NEAR * (_TAG // 32) << 32 | -_LITERAL.astype(int) << 63
_MOVED = 16  # bytes at a time
_STOP, _TRUE, _FALSE, _BYTE, _TEXT, _STRUCT = 0, 1, 2, 3, 8, 12  # types of Thrift's compact protocol
_NUMBER, _LONG = 5, 6  # types of integers of 32 bits, and of 64 bits, which only statistics have
_DEPTH = 2  # structs in a header: of the kind of page, and of its statistics
_ONE, _EIGHT = np.uint64(1), np.uint64(8)


@inline
def _little(address, at, count):
    """The little-endian number of up to eight bytes."""
    word = np.uint64(0)
    for i in range(count):
        word |= byte_at(address, at + i) << (_EIGHT * np.uint64(i))
    return word


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
    for i in range(COLUMNS):
        page[i] = ABSENT
    field, inner, depth = np.int64(0), np.int64(0), 0
    while at < stop:
        head = byte_at(address, at)
        kind, delta = np.int64(head & np.uint64(15)), np.int64(head >> np.uint64(4))
        if depth == 0:
            field, inner = field + delta, np.int64(0)
        elif depth == 1:
            inner += delta
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
        if kind != _TEXT and depth < _DEPTH and field < 16 and inner < 16:
            column = _COLUMN[field * depth, inner if depth else field]
            if column >= 0:
                page[column] = value
    return -1


@step
def _find_literal(address, at, stop, size):
    """Where the only literal of so many bytes compressed by Snappy begins; −1 if they are something else.

    Bit-packed codes and continuous numbers are hardly ever compressible: they are stored as they are.
    """
    stated, at = varint(address, at, stop)
    if at < 0 or np.int64(stated) != size or at + 4 >= stop or byte_at(address, at) & np.uint64(3):
        return np.int64(-1)
    length, at = np.int64(byte_at(address, at) >> np.uint64(2)), at + 1
    octets = max(length - 59, 0)  # of a length that is stated behind the tag
    if octets:
        length = np.int64(_little(address, at, octets))
    at += octets
    return at if length + 1 == size == stop - at else np.int64(-1)


@step
def _decompress(address, at, stop, out, size):
    """Write what bytes compressed by Snappy hold to an address; returns whether it is as many bytes as `size`.

    Up to seven bytes behind the last one are overwritten as well.
    """
    stated, at = varint(address, at, stop)
    if at < 0 or np.int64(stated) != size:
        return False
    done = np.int64(0)
    while at < stop:
        if done <= size - _MOVED and at <= stop - _MOVED - 8:  # of short elements of any kind, without branches
            word = eight_at(address, at)
            tag = word & np.uint64(255)
            element = _ELEMENTS[tag]
            length, literal = element & 255, element >> 63
            distance = np.int64(word >> _EIGHT) & element >> 8 & 65535 | element >> 24 & 65535
            start = np.int64(address) + at + 1 & literal | np.int64(out) + done - distance & ~literal
            if not (length > _MOVED) | (literal == 0) & ((distance < 8) | (distance > done)):
                write_eight(out, done, eight_at(np.uint64(start), 0))
                write_eight(out, done + 8, eight_at(np.uint64(start), 8))
                at, done = at + np.int64(_TAKEN[tag]), done + length
                continue
        tag = np.int64(byte_at(address, at))
        kind, length = tag & 3, (tag >> 2) + 1
        octets = max(length - 60, 0) if kind == 0 else 1 << kind - 1  # of a long length, or of a distance
        if octets >= stop - at:
            return False
        number = np.int64(_little(address, at + 1, octets))
        at += 1 + octets
        if kind == 0:  # a literal
            length, distance, source = number + 1 if octets else length, np.int64(8), address + np.uint64(at)
            at += min(length, stop - at + 1)
        else:
            if kind == 1:
                length, number = 4 + (length - 1 & 7), number | tag >> 5 << 8
            distance, source = number, out + np.uint64(done - number)
        end = done + length
        if at > stop or end > size or not 0 < distance <= max(done, 8 * (kind == 0)):
            return False
        while distance < 8 and done < end:  # bytes that overlap: each turn doubles how many there are
            write_eight(out, done, eight_at(source, 0))
            done, distance = done + distance, 2 * distance
        while done <= end - 8:
            write_eight(out, done, eight_at(source, 0))
            done, source = done + 8, source + _EIGHT
        if done < end:
            write_eight(out, done, _little(source, np.int64(0), end - done))
        done = end
    return done == size


@jit
def decompress(data, unfinished, pages, room):
    """Decompress pages of Snappy one behind the other ("Format Description" of github.com/google/snappy).

    Arrow's codec takes one page a call, for which a thread gives up the interpreter and then waits for it.

    Parameters
    ----------
    data : uint8 array that holds the pages
    unfinished : number of pages whose numbers are in `UNFINISHED`; those that have an `ADDRESS` are skipped
    pages : int64 array of shape (n, COLUMNS), see `parse_headers`; receives the `ADDRESS` of each page
    room : uint8 array of `SPARE` bytes more than all pages hold

    Returns
    -------
    bool
        Whether each page holds as many bytes as its header says.
    """
    address, out, done = np.uint64(data.ctypes.data), np.uint64(room.ctypes.data), np.uint64(0)
    for i in range(unfinished):
        page = pages[pages[i, UNFINISHED]]
        if page[ADDRESS] != ABSENT:
            continue
        start, stop = page[PLACE] + page[LEVELS_SIZE], page[PLACE] + page[STORED]
        if page[COMPRESSED] == 0 or not _decompress(address, start, stop, out + done, page[SIZE]):
            return False
        page[ADDRESS] = np.int64(out + done)
        done += np.uint64(page[SIZE])
    return True


@step
def _lz4_length(address, at, stop, length):
    """A length of four bits or, if they are ones, of further bytes; and the offset behind it."""
    byte = np.uint64(255) if length == np.uint64(15) else np.uint64(0)
    while byte == np.uint64(255) and at < stop:
        byte = byte_at(address, at)
        length, at = length + byte, at + 1
    return np.int64(length), at


@jit
def find_lz4_size(data):
    """The size of what a block of LZ4 holds, which it does not state; −1 if the block is cut off.

    >>> find_lz4_size(np.frombuffer(bytes.fromhex("1261 0100 5062626262 62"), np.uint8))  # "a" seven times, "bbbbb"
    12
    """
    address, at, size = np.uint64(data.ctypes.data), np.int64(0), np.int64(0)
    while at < data.size:  # literals, then a copy of earlier bytes, but the last literals
        token = byte_at(address, at)
        literals, at = _lz4_length(address, at + 1, data.size, token >> np.uint64(4))
        at, size = at + literals, size + literals
        if at >= data.size:
            break
        length, at = _lz4_length(address, at + 2, data.size, token & np.uint64(15))
        size += length + 4
    return size if at == data.size else np.int64(-1)


@jit
def parse_headers(data, rows, codec, most, pages):
    """Parse the headers of pages that follow each other in some bytes ("Data Pages").

    These are data pages, perhaps behind a dictionary, or one page of an index.

    Parameters
    ----------
    data : uint8 array, whose first byte begins a header
    rows : number of rows after which no further page is needed
    codec : `UNCOMPRESSED`, `SNAPPY` or `OTHER`
    most : bytes of the largest page; the header of a larger one is damaged
    pages : int64 array of shape (n, COLUMNS), receives the header of each page; a field that it lacks is `ABSENT`. A
        `ADDRESS` and `SIZE` are those of the values (and the levels of the first version); the address is `ABSENT` if
        they must be decompressed

    Returns
    -------
    count : number of pages that lie in the data as a whole, at most n - 1. If it is smaller, the next row has the
        header of a page that is cut off, with a `STORED` size of `ABSENT` if the header itself is cut off, or damaged.
    held : their number of rows
    unfinished : number of pages that have a checksum or must be decompressed; the first rows of `pages` have their
        numbers in `UNFINISHED`

    Examples
    --------
    >>> data = np.frombuffer(bytes.fromhex("1504150815084c150215040000 01020304 1504"), np.uint8)
    >>> pages = np.empty((3, COLUMNS), np.int64)
    >>> parse_headers(data, 1, UNCOMPRESSED, 99, pages), pages[0, [PLACE, KIND, NBYTES, STORED, COUNT]].tolist()
    ((1, 0, 0), [13, 2, 4, 4, 1])
    """
    address, at, held, unfinished = np.uint64(data.ctypes.data), np.int64(0), np.int64(0), np.int64(0)
    for n in range(pages.shape[0] - 1):
        page = pages[n]
        place = _parse_header(address, at, data.size, page)
        kind, levels = page[KIND], page[LENGTH] if page[KIND] == DATA_PAGE_V2 else 0  # which are never compressed
        counted = page[COUNT] >= 0 or kind == INDEX_PAGE
        legal = DATA_PAGE <= kind <= DATA_PAGE_V2 and page[NESTED] in (0, ABSENT) and page[NBYTES] <= most
        legal &= kind != DICTIONARY_PAGE or page[ENCODING] in (PLAIN, PLAIN_DICTIONARY)
        legal &= kind != DATA_PAGE_V2 or page[ROWS] >= 0
        if place < 0 or not 0 <= levels <= min(page[NBYTES], page[STORED]) or not counted or not legal:
            page[STORED] = ABSENT
            return n, held, unfinished
        page[PLACE] = place
        if page[STORED] > data.size - place or (n > 0 and kind in (INDEX_PAGE, DICTIONARY_PAGE)):
            return n, held, unfinished
        body, size, at = place + levels, page[NBYTES] - levels, place + page[STORED]
        start = np.int64(-1)
        if codec == UNCOMPRESSED or page[COMPRESSED] == 0 or size == 0:
            start = body if size in (0, at - body) else start
        elif codec == SNAPPY:
            start = _find_literal(address, body, at, size)
        page[ADDRESS], page[SIZE] = ABSENT if start < 0 else np.int64(address) + start, size
        page[LEVELS_ADDRESS], page[LEVELS_SIZE] = np.int64(address) + place, levels
        pages[unfinished, UNFINISHED] = n
        unfinished += page[ADDRESS] == ABSENT or page[CHECKSUM] != ABSENT
        held += page[COUNT] if kind in (DATA_PAGE, DATA_PAGE_V2) else 0
        if kind == INDEX_PAGE or held >= rows:
            return n + 1, held, unfinished
    return pages.shape[0] - 1, held, unfinished


@inline
def _number(address, start, stop, bit, mask):
    """The bit-packed number whose first bit is `bit` of byte `start`; no byte at `stop` or behind it is read."""
    start, shift = start + (bit >> 3), np.uint64(bit & 7)
    if start + 8 <= stop:
        return (eight_at(address, start) >> shift) & mask
    return (_little(address, start, stop - start) >> shift) & mask


@step
def _unpack_bits(address, at, stop, codes):
    """Unpack short runs of numbers of one bit, as labels mostly are, to bytes; returns the next byte and number.

    A length that is unpredictable costs as much as thirty numbers. So more numbers are written than a run has, which
    the next run overwrites.
    """
    out, done = np.uint64(codes.ctypes.data), np.uint64(0)
    end, last = np.int64(codes.size) - 8 * (_SHORT + 4), stop - _SHORT - 4
    while np.int64(done) < end and at < last:
        head = byte_at(address, at)
        count = head >> _ONE
        if count == np.uint64(0) or count >= np.uint64(_SHORT):
            break
        at += 1
        if head & _ONE:
            for j in range(np.uint64(0), count, np.uint64(4)):
                for n in range(4):
                    byte = byte_at(address, at + np.int64(j) + n)
                    write_eight(out, np.int64(done + ((j + np.uint64(n)) << np.uint64(3))), _OF_BITS[0, byte])
            at, done = at + np.int64(count), done + (count << np.uint64(3))
        else:
            code = byte_at(address, at)
            if code > _ONE:
                at -= 1
                break
            for j in range(np.uint64(0), count, np.uint64(16)):
                write_eight(out, np.int64(done + j), code * _ONES)
                write_eight(out, np.int64(done + j + _EIGHT), code * _ONES)
            at, done = at + 1, done + count
    return at, np.int64(done)


@step
def _unpack_packed(address, at, stop, width, room, codes):
    """Unpack as many bit-packed numbers as `codes` has items, from `room` bytes or a little more; see `_unpack`."""
    bits, half = np.uint64(width), np.int64(width >> 1)
    shift, mask, groups = (4 * bits) & np.uint64(7), (np.uint64(1) << bits) - np.uint64(1), np.int64(0)
    if width <= 16:  # groups of eight numbers are unpacked as a whole
        groups = np.int64(codes.size >> 3)
        if room + 8 > stop - at:  # only here is a division, which takes long, needed
            groups = min(groups, max(0, (stop - at - 16) // max(width, 1)))
        for j in range(groups):
            place = at + j * width
            write_group(codes, 8 * j, eight_at(address, place), eight_at(address, place + half) >> shift, bits)
    for i in range(8 * groups, codes.size):
        codes[i] = np.uint32(_number(address, at, stop, i * width, mask))


@step
def _unpack(address, at, stop, width, codes):
    """Unpack as many numbers as `codes` has items from a hybrid of run lengths and bit-packed numbers ("RLE").

    Returns whether the bytes from `at` to `stop` hold as many numbers.
    """
    done, octet = 0, (width + 7) >> 3
    while done < codes.size:
        if width == 1 and codes.itemsize == 1:
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
            _unpack_packed(address, at, stop, width, count * width, codes[done : done + rows])
            at = min(at + count * width, stop)
        else:
            rows = min(count, codes.size - done)
            if octet > stop - at:
                return False
            word = _little(address, at, octet)
            if word >> np.uint64(width):
                return False
            for i in range(done, done + rows):
                codes[i] = np.uint32(word)
            at += octet
        done += rows
    return True


@jit
def find_values(pages, nullable):
    """Find where the values of data pages begin, behind their definition levels of 0 and 1.

    Parameters
    ----------
    pages : int64 array of shape (n, COLUMNS); receives the `START` of the values in each page, its stream for `unpack`,
        with `VALUES` as if none was null, and the address and size of levels
    nullable : whether pages have definition levels; in pages of the first version, behind their length in four bytes

    Returns
    -------
    int
        1 if no value is null, which writers store as a run of ones, 0 if some may be, −1 if a page is damaged.
    """
    whole = np.int64(1)
    for n in range(pages.shape[0]):
        page = pages[n]
        page[START], page[VALUES] = 0, page[COUNT]
        page[FORM] = BITS if page[ENCODING] == PLAIN else FRAMED if page[ENCODING] == RLE else CODES
        if nullable and page[KIND] != DATA_PAGE_V2:
            size, frame = (page[COUNT] + 7) >> 3, np.int64(0)
            if page[LEVELS] != BIT_PACKED:
                if page[LEVELS] != RLE or page[SIZE] < 4:
                    return np.int64(-1)
                size, frame = np.int64(_little(np.uint64(page[ADDRESS]), np.int64(0), 4)), np.int64(4)
            if size > page[SIZE] - frame:
                return np.int64(-1)
            page[LEVELS_ADDRESS], page[LEVELS_SIZE], page[START] = page[ADDRESS] + frame, size, frame + size
        page[VALUES_ADDRESS], page[VALUES_SIZE] = page[ADDRESS] + page[START], page[SIZE] - page[START]
        if not nullable:
            continue
        address, size = np.uint64(page[LEVELS_ADDRESS]), page[LEVELS_SIZE]
        head, at = varint(address, np.int64(0), size if page[LEVELS] != BIT_PACKED else np.int64(0))
        if not 0 < at < size or head != np.uint64(page[COUNT]) << _ONE or byte_at(address, at) != _ONE:
            whole = np.int64(0)
    return whole


@jit
def unpack(streams, limit, codes):
    """Unpack codes, booleans or levels of pages one behind the other ("Dictionary Encoding", "RLE", "Plain").

    Parameters
    ----------
    streams : int64 array of shape (4, n): address, size and number of codes of each page, and how they are stored: as
        plain `BITS`, from the highest bit of each byte on if `REVERSED`, or as a hybrid behind their width in a byte
        (`CODES`), or one of bits behind its length in four bytes (`FRAMED`), or alone (`BARE`)
    limit : number of entries of the dictionary
    codes : uint8 or int32 array with an item for each code, which holds `limit`; uint8 for plain bits

    Returns
    -------
    bool
        Whether all codes are there and smaller than `limit`.
    """
    done = np.int64(0)
    for n in range(streams.shape[1]):
        address, stop, count, kind = np.uint64(streams[0, n]), streams[1, n], streams[2, n], streams[3, n]
        here, at, width = codes[done : done + count], np.int64(0), np.int64(1)
        if count == 0:
            continue
        done += count
        if kind in (BITS, REVERSED):
            if (count + 7) >> 3 > stop:
                return False
            for i in range(0, count - 7, 8):
                write_eight(np.uint64(here.ctypes.data), i, _OF_BITS[kind, byte_at(address, i >> 3)])
            for i in range(count & ~7, count):
                here[i] = _OF_BITS[kind, byte_at(address, i >> 3)] >> np.uint64(8 * (i & 7)) & _ONE
            continue
        if kind == CODES and stop:
            at, width = np.int64(1), np.int64(byte_at(address, at))
        elif kind == FRAMED and stop >= 4 and np.int64(_little(address, at, 4)) <= stop - 4:
            at, stop = np.int64(4), 4 + np.int64(_little(address, at, 4))
        elif kind != BARE:
            return False
        if width > WIDEST or not _unpack(address, at, stop, width, here):
            return False
        largest = np.uint32(0)
        for i in range(count if limit >> width == 0 else 0):
            largest = max(largest, np.uint32(here[i]))
        if np.int64(largest) >= limit:
            return False
    return True


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
        for i in range(length):  # slices would take five seconds to compile
            texts[done + i] = data[at + i]
        at, done = at + length, done + length
        offsets[n + 1] = done
    return True
