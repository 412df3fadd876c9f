"""Decode ids from their words in a state: integers directly, texts by a scan of the data, partitions by hash."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from streameval.errors import OptionError
from streameval.states.keyed.ids import hash_words, id_type
from streameval.states.values import IdColumn
from streameval.wording import text_of_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streameval.scan import Scan
    from streameval.typing import Array

_TEXT = (pa.types.is_string, pa.types.is_large_string)


@dataclass
class Ids:
    """The ids of one column.

    Attributes
    ----------
    column : how the ids are read
    text : whether the ids are strings
    partitions : path of each partition, keyed by the two words of its hash, which salt the ids
    texts : text of each hashed id, keyed by its words
    """

    column: IdColumn
    text: bool = False
    partitions: dict[tuple[int, int], str] = field(default_factory=dict)
    texts: dict[bytes, bytes] = field(default_factory=dict)

    @classmethod
    def of(cls, found: Scan, name: str, scope: str = "global") -> Ids:
        """The ids of a column of a scan."""
        dtype = found.schema.field(name).type
        column = IdColumn(name, id_type(dtype, name), scope)
        plain = dtype.value_type if pa.types.is_dictionary(dtype) else dtype
        paths = {piece.partition for piece in found.pieces} if scope == "partition" else set()
        salts = {hash_words(path.encode()): path for path in sorted(paths)}
        return cls(column, any(test(plain) for test in _TEXT), salts)

    @property
    def signed(self) -> bool:
        """Whether ids are signed integers with global scope, which are ranked by value."""
        return self.column.type == "signed" and not self.partitions

    @property
    def hashed(self) -> bool:
        """Whether ids are hashes, whose texts are not in the state."""
        return self.column.type == "hash"

    def learn(self, words: Array, texts: Sequence[list[bytes]]) -> None:
        """Record the texts of hashed ids.

        Parameters
        ----------
        words : uint64 array of shape (n, n_words)
        texts : for each id, a list with its text; empty if no row had the id

        Raises
        ------
        OptionError
            If an id has no text.
        """
        for key, found in zip(words, texts, strict=True):
            if not found:
                raise not_there(self.column.name)
            self.texts[key.tobytes()] = found[0]

    def values(self, words: Array, nulls: Array | None = None) -> pa.Array:
        """The ids of `words`, a uint64 array of shape (n, n_words); null where `nulls` is true."""
        words = self._shaped(words)
        if not self.hashed:
            first = words[:, 0] ^ self._salts(words)[:, 0] if self.partitions else words[:, 0]
            kind = np.int64 if self.column.type == "signed" else np.uint64
            return pa.array(np.ascontiguousarray(first).view(kind), mask=nulls)
        known = [self.texts.get(np.ascontiguousarray(key).tobytes()) for key in words]
        if not any(text is not None for text in known) and len(known):
            shown: list[Any] = [f"#{int(key[0]):016x}" for key in words]
            return pa.array(shown, pa.string(), mask=nulls)
        if self.text:  # Arrow does not convert strings that are not UTF-8
            return pa.array([None if text is None else text_of_bytes(text) for text in known], pa.string(), mask=nulls)
        return pa.array(known, pa.binary(), mask=nulls)

    def _salts(self, words: Array) -> Array:
        """The hash of each id's partition, as a uint64 array of shape (n, 2)."""
        if self.hashed:
            texts = (self.texts.get(np.ascontiguousarray(key).tobytes()) for key in words)
            plain = np.array([(0, 0) if text is None else hash_words(text) for text in texts], np.uint64)
            return plain.reshape(-1, 2) ^ words
        by_second = {second: first for first, second in self.partitions}
        seconds = words[:, 1]
        firsts = np.array([by_second.get(int(second), 0) for second in seconds], np.uint64)
        return np.column_stack((firsts, seconds))

    def paths(self, words: Array) -> pa.Array:
        """The partition of each id; null if unknown."""
        salts = self._salts(self._shaped(words))
        return pa.array([self.partitions.get((int(a), int(b))) for a, b in salts], pa.string())

    def _shaped(self, words: Array) -> Array:
        """The words; an empty array gets the right number of columns."""
        return words if len(words) else np.empty((0, self.column.words), np.uint64)


def not_there(column: str) -> OptionError:
    """The error if the data have no row of an id that was counted; possible only for data passed along with a store."""
    msg = (
        f"the data hold no row of some value of {column} that was counted: they are not those of the chosen nights, or "
        "were changed since; fold the nights again (replace), or name the files that were folded"
    )
    return OptionError(msg)


def ids_of_states(cluster: str, table: Any, sizes: Any, partitions: Sequence[str] = ()) -> tuple[Ids, Ids | None]:
    """Readers of cluster ids, and of class ids if there is a contingency state.

    Parameters
    ----------
    cluster : the cluster column
    table, sizes : a contingency state and a cluster state; one may be None
    partitions : names of the partitions that ids may belong to
    """
    spec = (sizes if table is None else table).spec
    scope, kind = spec.scope, spec.type if table is None else spec.cluster_type
    salts = {hash_words(name.encode()): name for name in sorted(partitions)} if scope == "partition" else {}
    clusters = Ids(IdColumn(cluster, kind, scope), True, salts)
    return clusters, None if table is None else Ids(IdColumn(spec.classes, spec.class_type), True)
