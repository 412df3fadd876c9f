"""The simulated messages as a pure function of the options and the row number.

Rows are drawn in blocks of 65,536. The random stream of a block is keyed by the seed and the block's number, so any
thread can draw any block independently. Properties of campaigns (spam, split, joined) are hashes of the campaign's
number, so no table of campaigns is needed.

Memory limits the speed: a pass over a block takes a quarter of a nanosecond per row while the arrays stay in the
processor's cache, and several times that on fresh pages. Work space is therefore allocated once; masks are used in
arithmetic instead of branches, which are slow on random masks; and blocks are so large that two threads do not wait for
the interpreter's lock.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from streameval.simulation.model import CELLS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from streameval.simulation.model import Model

BLOCK = 1 << 16
COLUMNS = {
    "message_id": np.dtype(np.int64),
    "label": np.dtype(np.int8),
    "score_a": np.dtype(np.float32),
    "score_b": np.dtype(np.float64),
    "campaign": np.dtype(np.int64),
    "cluster": np.dtype(np.int64),
    "weight": np.dtype(np.float64),
}
GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio, made odd: its multiples are spread evenly
PIECE_BITS = 3

Float = TypeVar("Float", np.float32, np.float64)


class Block:
    """Work space of one thread for drawing blocks of rows.

    Parameters
    ----------
    model : Model
        The options of the simulation.

    Examples
    --------
    >>> from streameval.simulation.model import Model
    >>> columns = Block(Model(rows=100_000, singletons=0.5)).draw(0)
    >>> round(float((columns["campaign"] < 0).mean()), 1)
    0.5
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self._columns = {name: np.empty(BLOCK, dtype) for name, dtype in COLUMNS.items()}
        self._mass, self._float = np.empty((2, BLOCK))
        self._rank, self._alone, self._group, self._cell = np.empty((4, BLOCK), np.int64)
        self._traits, self._word = np.empty((2, BLOCK), np.uint64)

    def draw(self, number: int) -> dict[str, NDArray[np.generic]]:
        """Draw the rows ``[number * 65536, (number + 1) * 65536)``.

        Parameters
        ----------
        number : int
            Number of the block, at least 0. Rows beyond ``model.rows`` are drawn as well; the caller drops them.

        Returns
        -------
        dict of str to array of shape (65536,)
            The columns of :func:`streameval.simulation.simulate`, in that order; valid until the next call.
        """
        model, columns = self._model, self._columns
        rng = np.random.Generator(np.random.SFC64(np.random.SeedSequence(model.seed, spawn_key=(number,))))
        words = rng.integers(0, 2**64 - 1, BLOCK, np.uint64, endpoint=True)
        coin, fate = words.view(np.uint32).reshape(2, BLOCK)
        columns["message_id"][:] = np.arange(number * BLOCK, (number + 1) * BLOCK)
        np.invert(columns["message_id"], out=self._alone)
        single = self._campaigns(rng)
        lone, held = (_threshold(share, bits) for share, bits in zip(model.positive_shares, (32, 64), strict=True))
        positive = single & (fate < lone) | ~single & (self._traits < held)
        np.not_equal(positive, coin < _threshold(model.label_error, 32), out=columns["label"].view(np.bool_))
        _scores(rng, positive, model.auc_a, out=columns["score_a"])
        _scores(rng, positive, model.auc_b, out=columns["score_b"])
        self._clusters(rng, fate, single)
        np.multiply(coin & np.uint32(3) == 0, 1.5, out=columns["weight"])
        columns["weight"] += 1.0
        return columns

    def _campaigns(self, rng: np.random.Generator) -> NDArray[np.bool_]:
        """Draw the campaigns: fills ``_rank`` with numbers, ``_traits`` with their hashes, and the column with ids.

        Returns
        -------
        bool array of shape (65536,)
            Which messages are singletons; the rank of these is meaningless.
        """
        singletons = self._model.singletons
        mass = rng.random(out=self._mass)
        single = mass < singletons
        mass -= singletons
        if singletons < 1:
            mass *= 1 / (1 - singletons)
        np.maximum(mass, 0.0, out=mass)
        self._find(mass, out=self._rank)
        mix64(self._rank, self._model.keys[0], out=self._traits, scratch=self._word)
        _choose(single, self._alone, self._rank, out=self._columns["campaign"])
        return single

    def _find(self, mass: NDArray[np.float64], out: NDArray[np.int64]) -> None:
        """Map uniform numbers to campaigns, in proportion to their sizes, by the inverse Lorenz curve.

        Parameters
        ----------
        mass : float64 array of shape (n,), n at most 65536
            Numbers in [0, 1]; overwritten.
        out : int64 array of shape (n,)
            Receives the campaigns, in [0, campaigns); 0 is the largest.
        """
        ranks, steps = self._model.ranks
        cell, part = self._cell[: len(mass)], self._float[: len(mass)]
        mass *= CELLS
        np.copyto(cell, mass, casting="unsafe")
        mass -= cell
        mass *= steps.take(cell, out=part, mode="clip")
        mass += ranks.take(cell, out=part, mode="clip")
        np.copyto(out, mass, casting="unsafe")
        np.minimum(out, self._model.campaigns - 1, out=out)

    def _clusters(self, rng: np.random.Generator, fate: NDArray[np.uint32], single: NDArray[np.bool_]) -> None:
        """Fill in the cluster ids, applying noise, joins, splits and missed messages in this order.

        Clusters of campaigns have the number 8 · campaign + piece, singletons −1 − message, so that the two never
        collide; a bijection then spreads the numbers over all 64-bit integers. `fate` and `single` have shape (65536,).
        """
        model, group = self._model, self._group
        noise, astray = _threshold(model.noise, 32), _threshold(model.noise + model.missed, 32)
        if noise:
            self._throw(rng, np.flatnonzero((fate < noise) & ~single))
        self._join()
        group <<= PIECE_BITS
        if model.split:
            group |= self._pieces(fate)
        _choose((fate >= noise) & (fate < astray) | single, self._alone, group, out=group)
        mix64(group, model.keys[1], out=self._columns["cluster"].view(np.uint64), scratch=self._word)

    def _throw(self, rng: np.random.Generator, rows: NDArray[np.intp]) -> None:
        """Move the rows at some indices, an array of shape (n,), to other campaigns, drawn in proportion to size."""
        other = np.empty(len(rows), np.int64)
        self._find(rng.random(len(rows)), out=other)
        other += other == self._rank[rows]
        other[other == self._model.campaigns] = 0
        self._rank[rows] = other
        self._traits[rows] = mix64(other, self._model.keys[0])

    def _join(self) -> None:
        """Fill ``_group`` with the number of each row's campaign after joins.

        Every campaign has one partner, its mirror image at a point that depends on the seed. A share ``join`` of these
        pairs is joined; a joined pair has the smaller number of the two.
        """
        rank, first, campaigns, key = self._rank, self._group, self._model.campaigns, self._model.keys[2]
        np.subtract(key % campaigns, rank, out=first)
        first += np.bitwise_and(np.right_shift(first, 63, out=self._cell), campaigns, out=self._cell)
        np.minimum(first, rank, out=first)
        turn = np.multiply(first.view(np.uint64), GOLDEN, out=self._word)
        turn += np.uint64(key)
        _choose(turn < _threshold(self._model.join, 64), first, rank, out=first)

    def _pieces(self, fate: NDArray[np.uint32]) -> NDArray[np.int64]:
        """The piece of its campaign in which each row lies: 0, or one of two to five equal pieces if it is split."""
        traits, pieces, part = self._traits, self._word, self._cell.view(np.uint64)
        np.right_shift(traits, 32, out=pieces)
        pieces &= np.uint64(3)
        pieces += np.uint64(2)
        pieces *= np.bitwise_and(traits, 0xFFFFFFFF, out=part) < _threshold(self._model.split, 32)
        pieces *= np.bitwise_and(fate, 0xFFFF, out=part)
        pieces >>= np.uint64(16)
        return pieces.view(np.int64)


def _scores(rng: np.random.Generator, positive: NDArray[np.bool_], auc: float, out: NDArray[Float]) -> None:
    """Fill ``out`` with scores in (0, 1) whose expected ROC AUC for the labels ``positive`` is ``auc``; shapes (n,)."""
    distance = math.sqrt(2) * NormalDist().inv_cdf(auc)
    rng.standard_normal(out=out, dtype=out.dtype)
    out += distance / 2
    out -= np.multiply(positive, distance, dtype=out.dtype)
    np.exp(out, out=out)
    out += 1
    np.reciprocal(out, out=out)


def _choose(
    mask: NDArray[np.bool_], yes: NDArray[np.int64], no: NDArray[np.int64], out: NDArray[np.int64]
) -> NDArray[np.int64]:
    """``np.where(mask, yes, no)`` without branches, for arrays of shape (n,); ``out`` may be ``yes`` or ``no``."""
    both = np.bitwise_xor(yes, no)
    both *= mask
    return np.bitwise_xor(both, no, out=out)


def mix64(
    words: NDArray[np.int64], key: int, out: NDArray[np.uint64] | None = None, scratch: NDArray[np.uint64] | None = None
) -> NDArray[np.uint64]:
    """A bijection of 64-bit words that spreads them over the full range (the finaliser of MurmurHash3).

    Parameters
    ----------
    words : int64 array of shape (n,)
    key : int
        Selects the bijection, in [0, 2^64).
    out, scratch : uint64 arrays of shape (n,), optional
        Receive the result and intermediate values.

    Returns
    -------
    uint64 array of shape (n,)

    Examples
    --------
    >>> [hex(word) for word in mix64(np.arange(2), key=1).tolist()]
    ['0xb456bcfc34c2cb2c', '0x0']
    """
    mixed = np.bitwise_xor(words.view(np.uint64), np.uint64(key), out=out)
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        mixed ^= np.right_shift(mixed, 33, out=scratch)
        mixed *= np.uint64(factor)
    mixed ^= np.right_shift(mixed, 33, out=scratch)
    return mixed


def _threshold(share: float, bits: int) -> int:
    """The number below which a share of all unsigned integers of `bits` bits lies; 2^bits for a share of 1."""
    return min(round(math.ldexp(share, bits)), 1 << bits)
