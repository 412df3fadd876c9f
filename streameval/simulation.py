"""Simulated spam-clustering data of any size: partitioned Parquet with all kinds of columns that streameval evaluates.

**Model.** Messages arrive over some nights. A share of them, the *singletons*, belong to no campaign; the others belong
to campaigns, which last over all nights and whose sizes follow a gamma or a Pareto distribution. All messages of a
campaign are spam, or none is. A clustering has found the campaigns, with errors: some campaigns are *split* into two to
five clusters, some are *joined* in pairs, some messages are *missed* (each left in a singleton cluster), and some are
put, as *noise*, into the cluster of another campaign. There are two scores. The scores of spam and of other messages
are normal with variance 1 and means √2 Φ⁻¹(AUC) apart (the binormal model), transformed by a logistic function.

**The graph of classes and clusters.** Without noise, its connected components are small: at most two campaigns, their
clusters and their missed messages. Noise connects campaigns: with the default sizes, a giant component appears near
noise × mean = ¼ and holds 60 to 70 % of the campaigns at noise × mean = 1.

**Reproducibility.** A row is a function of the options and its number. Rows are drawn in blocks of 65,536, each with a
random stream (SFC64) keyed by the seed and the block's number. Neither threads nor partitions change a value, and the
same call writes the same bytes with any number of threads (on one platform, with one version of NumPy and pyarrow).
Options other than ``rows`` change only the columns they concern: data with and without noise have the same scores.

**Memory.** Each thread holds one row group of 524,288 rows, about 24 MB, and its encoded form. Nothing grows with the
rows, because properties of campaigns are hashes, not tables. Passes over a block take a
quarter of a nanosecond per row while the arrays stay in the processor's cache, and several times that on fresh pages:
work space is allocated once, and masks are used in arithmetic instead of branches.

**From a uniform number to a campaign.** Let K campaigns have sizes from a distribution, and number them from the
largest on. The Lorenz curve gives the share v of all messages that the largest share q of the campaigns holds; its
inverse q(v) maps a uniform v to the campaign ⌊K q(v)⌋. For Pareto sizes of shape α, q(v) = v^(α/(α−1)). For gamma sizes
of shape k, q(v) = Q(k, Q⁻¹(k+1, v)) with the regularised upper incomplete gamma function Q, since the size of a
message's campaign is size-biased, which gives a gamma distribution of shape k+1. q is tabulated at 65,537 points and
interpolated linearly, so campaigns in the same 65,536th of the messages have the same expected size.

**Mixed Poisson.** The K = rows (1 − singletons) / mean campaigns have expected sizes at the quantiles of the
distribution. The number of messages drawn is Poisson around the expected size; for gamma sizes, this is the negative
binomial distribution with mean ``mean`` and variance mean + mean² / shape. Campaigns without messages are not in the
data.

**Files.** Each night is one directory with one file, written by one task. A file is written under a hidden name, which
readers of datasets skip, and renamed when it is complete. If a run fails or is interrupted, its tasks stop at their
next row group, and everything that the run wrote is removed.
"""

from __future__ import annotations

import math
import os
import re
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import cached_property, lru_cache
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from streameval.errors import OptionError, StreamevalError
from streameval.forks import map_threads
from streameval.posix import available_threads
from streameval.saving import check_local
from streameval.wording import explains_arguments

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray


CELLS = 1 << 16
SHAPES = {"gamma": 0.5, "pareto": 1.5}
LONE_POSITIVES = 0.2

_INTEGERS = {"rows": (1, 10**12), "seed": (0, 2**128 - 1)}
_SHARES = ("positives", "label_error", "singletons", "split", "join", "noise", "missed")


@dataclass(frozen=True)
class Model:
    """The validated options of a simulation; `simulate` describes them.

    Raises
    ------
    OptionError
        If an option is out of its range, or two of them exclude each other.

    Examples
    --------
    >>> model = Model(rows=100_000, seed=1, singletons=0.5, mean=100)
    >>> model.campaigns
    500
    >>> [round(share, 3) for share in model.positive_shares]
    [0.05, 0.45]
    """

    rows: int
    seed: int = 0
    sizes: Literal["gamma", "pareto"] = "gamma"
    shape: float | None = None
    mean: float = 50.0
    positives: float = 0.25
    lone_positives: float | None = None
    label_error: float = 0.0
    singletons: float = 0.3
    split: float = 0.1
    join: float = 0.05
    noise: float = 0.01
    missed: float = 0.05
    auc_a: float = 0.95
    auc_b: float = 0.85

    def __post_init__(self) -> None:
        """Raise `OptionError` for options that cannot be simulated."""
        for name, (low, high) in _INTEGERS.items():
            check_integer(name, getattr(self, name), low, high)
        if self.sizes not in SHAPES:
            raise OptionError(f"sizes={self.sizes!r} is not a size distribution; choose one of {', '.join(SHAPES)}")
        for name in _SHARES:
            _check_real(name, getattr(self, name), 0 <= _real(getattr(self, name)) <= 1, "a share from 0 to 1")
        for name in ("auc_a", "auc_b"):
            _check_real(name, getattr(self, name), 0 < _real(getattr(self, name)) < 1, "an AUC between 0 and 1")
        _check_real("mean", self.mean, 1 <= _real(self.mean) < math.inf, "a mean campaign size of at least 1 message")
        if self.shape is not None:
            least, wanted = (1.01, "at least 1.01") if self.sizes == "pareto" else (0.01, "at least 0.01")
            _check_real("shape", self.shape, least <= _real(self.shape) < math.inf, f"a {self.sizes} shape {wanted}")
        if self.noise + self.missed > 1:
            raise OptionError(
                f"noise={self.noise!r} and missed={self.missed!r} exceed all rows; let their sum be at most 1"
            )
        if (lone := self.lone_positives) is None:
            return
        _check_real("lone_positives", lone, 0 <= _real(lone) <= 1, "a share from 0 to 1")
        first, last = self.singletons * lone, self.singletons * lone + 1 - self.singletons
        if not first - 1e-12 <= self.positives <= last + 1e-12:
            raise OptionError(
                f"positives={self.positives!r} cannot be met with lone_positives={lone!r} and singletons="
                f"{self.singletons!r}; give positives from {first:g} to {last:g}, or leave lone_positives out"
            )

    @property
    def campaigns(self) -> int:
        """Number of campaigns, including those for which no message is drawn."""
        return max(1, round(self.rows * (1 - self.singletons) / self.mean))

    @property
    def positive_shares(self) -> tuple[float, float]:
        """Shares of truly positive messages among singletons and among campaign messages, each in [0, 1]."""
        alone, together = self.singletons, 1 - self.singletons
        if together == 0:
            return self.positives, 0.0
        lone = LONE_POSITIVES * self.positives if self.lone_positives is None else self.lone_positives
        held = min(max((self.positives - alone * lone) / together, 0.0), 1.0)
        return (min(max((self.positives - together * held) / alone, 0.0), 1.0) if alone else 0.0), held

    @cached_property
    def keys(self) -> tuple[int, int, int]:
        """Keys of the hashes of campaigns, clusters and joins, each in [0, 2^64); they depend on the seed."""
        first, second, third = np.random.SeedSequence(self.seed).generate_state(3, np.uint64).tolist()
        return first, second, third

    @cached_property
    def ranks(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Table of K q(v) at v = 0, 1/65,536, …, 1, and of its steps: float64 arrays of shape (65537,)."""
        shape = SHAPES[self.sizes] if self.shape is None else self.shape
        ranks = _lorenz_inverse(self.sizes, shape) * self.campaigns
        return ranks, np.append(np.diff(ranks), 0.0)


@lru_cache(maxsize=4)
def _lorenz_inverse(sizes: str, shape: float) -> NDArray[np.float64]:
    """Shares q(v) of the campaigns, largest first, that hold the shares v = 0, 1/65,536, …, 1 of all messages.

    Returns a float64 array of shape (65537,), which must not be changed: it is cached, since gamma sizes take a tenth
    of a second.
    """
    share = np.linspace(0, 1, CELLS + 1)
    if sizes == "pareto":
        return share ** (shape / (shape - 1))
    from scipy.special import gammaincc, gammainccinv

    return np.asarray(gammaincc(shape, gammainccinv(shape + 1, share)), np.float64)


def check_integer(name: str, value: object, low: int, high: int) -> None:
    """Raise `OptionError` unless a value is an integer in [low, high]."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or not low <= value <= high:
        raise OptionError(f"{name}={value!r} is out of range; give a whole number from {low} to {high:,}")


def _real(value: object) -> float:
    """A value as a float; NaN, which lies in no range, if it is not a number."""
    return float(value) if isinstance(value, int | float | np.number) and not isinstance(value, bool) else math.nan


def _check_real(name: str, value: object, holds: bool, wanted: str) -> None:
    """Raise `OptionError`, which says what is `wanted`, unless a condition `holds`."""
    if not holds:
        raise OptionError(f"{name}={value!r} is out of range; give {wanted}")


BLOCK = 1 << 16
_TYPES = {"message_id": "i8", "label": "i1", "score_a": "f4", "score_b": "f8", "campaign": "i8", "cluster": "i8"}
COLUMNS = {name: np.dtype(kind) for name, kind in (_TYPES | {"weight": "f8"}).items()}
GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio, made odd: its multiples are spread evenly
PIECE_BITS = 3


def draw_block(model: Model, number: int) -> dict[str, NDArray[np.generic]]:
    """Draw the rows ``[number * 65536, (number + 1) * 65536)``.

    Parameters
    ----------
    model : Model
        The options of the simulation.
    number : int
        Number of the block, at least 0. Rows beyond ``model.rows`` are drawn as well; the caller drops them.

    Returns
    -------
    dict of str to array of shape (65536,)
        The columns of `simulate`, in that order.

    Examples
    --------
    >>> columns = draw_block(Model(rows=100_000, singletons=0.5), 0)
    >>> round(float((columns["campaign"] < 0).mean()), 1)
    0.5
    """
    rng = np.random.Generator(np.random.SFC64(np.random.SeedSequence(model.seed, spawn_key=(number,))))
    words = rng.integers(0, 2**64 - 1, BLOCK, np.uint64, endpoint=True)
    coin, fate = words.view(np.uint32).reshape(2, BLOCK)
    message = np.arange(number * BLOCK, (number + 1) * BLOCK)
    mass = rng.random(BLOCK)
    single = mass < model.singletons
    mass -= model.singletons
    if model.singletons < 1:
        mass *= 1 / (1 - model.singletons)
    rank = _campaigns_at(model, np.maximum(mass, 0.0))
    lone, held = (_threshold(share, bits) for share, bits in zip(model.positive_shares, (32, 64), strict=True))
    positive = np.where(single, fate < lone, mix64(rank, model.keys[0]) < held)
    noise, astray = _threshold(model.noise, 32), _threshold(model.noise + model.missed, 32)
    alone = single | (fate >= noise) & (fate < astray)
    scores = _scores(rng, positive, model.auc_a, np.float32), _scores(rng, positive, model.auc_b, np.float64)
    cluster = np.where(alone, ~message, _clusters(model, rng, fate, single, rank))
    return {
        "message_id": message,
        "label": (positive != (coin < _threshold(model.label_error, 32))).view(np.int8),
        "score_a": scores[0],
        "score_b": scores[1],
        "campaign": np.where(single, ~message, rank),
        "cluster": mix64(cluster, model.keys[1]).view(np.int64),
        "weight": np.where(coin & np.uint32(3) == 0, 2.5, 1.0),
    }


def _campaigns_at(model: Model, mass: NDArray[np.float64]) -> NDArray[np.int64]:
    """Map uniform numbers to campaigns, in proportion to their sizes, by the inverse Lorenz curve.

    Parameters
    ----------
    mass : float64 array of shape (n,)
        Numbers in [0, 1].

    Returns
    -------
    int64 array of shape (n,)
        The campaigns, in [0, campaigns); 0 is the largest.
    """
    ranks, steps = model.ranks
    mass = mass * CELLS
    cell = mass.astype(np.int64)
    return np.minimum(((mass - cell) * steps[cell] + ranks[cell]).astype(np.int64), model.campaigns - 1)


def _clusters(
    model: Model,
    rng: np.random.Generator,
    fate: NDArray[np.uint32],
    single: NDArray[np.bool_],
    rank: NDArray[np.int64],
) -> NDArray[np.int64]:
    """The clusters of campaign messages, 8 · campaign + piece, after noise, joins and splits in this order.

    Every campaign has one partner, its mirror image at a point that depends on the seed. A share ``join`` of these
    pairs is joined; a joined pair has the smaller number of the two. A campaign that is split has two to five equal
    pieces. Noise moves messages to other campaigns, drawn in proportion to size. All arrays have shape (65536,).
    """
    campaigns, key, rank = model.campaigns, model.keys[2], rank.copy()
    if noise := _threshold(model.noise, 32):
        thrown = np.flatnonzero((fate < noise) & ~single)
        other = _campaigns_at(model, rng.random(thrown.size))
        other += other == rank[thrown]
        other[other == campaigns] = 0
        rank[thrown] = other
    mirror = key % campaigns - rank
    first = np.minimum(np.where(mirror < 0, mirror + campaigns, mirror), rank)
    joined = first.view(np.uint64) * GOLDEN + np.uint64(key) < _threshold(model.join, 64)
    group = np.where(joined, first, rank) << PIECE_BITS
    if model.split:
        traits = mix64(rank, model.keys[0])
        pieces = (traits >> np.uint64(32) & np.uint64(3)) + np.uint64(2)
        pieces *= (traits & np.uint64(0xFFFFFFFF)) < _threshold(model.split, 32)
        group |= (pieces * (fate & np.uint32(0xFFFF)) >> np.uint64(16)).view(np.int64)
    return group


def _scores(
    rng: np.random.Generator, positive: NDArray[np.bool_], auc: float, kind: type[np.float32 | np.float64]
) -> NDArray[np.floating]:
    """Scores in (0, 1) whose expected ROC AUC for the labels ``positive`` is ``auc``; arrays of shape (n,)."""
    distance = math.sqrt(2) * NormalDist().inv_cdf(auc)
    out = rng.standard_normal(positive.size, dtype=kind)
    out += distance / 2
    out -= np.multiply(positive, distance, dtype=kind)
    found: NDArray[np.floating] = np.reciprocal(np.exp(out) + kind(1))
    return found


def mix64(words: NDArray[np.int64], key: int) -> NDArray[np.uint64]:
    """A bijection of 64-bit words that spreads them over the full range (the finaliser of MurmurHash3).

    Parameters
    ----------
    words : int64 array of shape (n,)
    key : int
        Selects the bijection, in [0, 2^64).

    Returns
    -------
    uint64 array of shape (n,)

    Examples
    --------
    >>> [hex(word) for word in mix64(np.arange(2), key=1).tolist()]
    ['0xb456bcfc34c2cb2c', '0x0']
    """
    mixed = words.view(np.uint64) ^ np.uint64(key)
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        mixed ^= mixed >> np.uint64(33)
        mixed *= np.uint64(factor)
    return mixed ^ mixed >> np.uint64(33)


def _threshold(share: float, bits: int) -> int:
    """The number below which a share of all unsigned integers of `bits` bits lies; 2^bits for a share of 1."""
    return min(round(math.ldexp(share, bits)), 1 << bits)


FIRST_NIGHT = date(2026, 1, 1)
FILE, UNFINISHED = "part-0.parquet", ".part-0.parquet.tmp"
ROW_GROUP = 8 * BLOCK

SCHEMA = pa.schema([(name, pa.from_numpy_dtype(dtype)) for name, dtype in COLUMNS.items()])
# random words do not compress, so each column has its fastest encoding
ENCODING = {
    "compression": "snappy",
    "write_page_checksum": True,
    "use_dictionary": ["weight"],
    "column_encoding": dict.fromkeys(("message_id", "label", "campaign"), "DELTA_BINARY_PACKED"),
}


def prepare(out: Path, *, overwrite: bool) -> Path:
    """Create the output directory, or check that it is empty or holds an earlier simulation to replace.

    Returns
    -------
    Path
        The directory to write to: ``out``, or one next to it that replaces its contents when the data is complete.

    Raises
    ------
    OptionError
        If ``out`` is a file, if it is not empty and ``overwrite`` is false, or if it has a file that
        `simulate` did not write. Nothing is removed in these cases.
    StreamevalError
        If a directory cannot be created or read.
    """
    try:
        if out.exists() and not out.is_dir():
            raise OptionError(f"out={str(out)!r} is a file; name a directory")
        out.mkdir(parents=True, exist_ok=True)
        nights = sorted(out.iterdir())
        if nights and not overwrite:
            raise OptionError(f"out={str(out)!r} is not empty; name another directory, or set overwrite=True")
        for night in nights:
            if not _is_night(night):
                raise OptionError(
                    f"out={str(out)!r} holds {night.name!r}, which simulate did not write; name another directory"
                )
        stage = out.with_name(f".{out.resolve().name}.new") if nights else out
        stage.mkdir(exist_ok=True)
    except OSError as error:
        raise cannot_write(out, error) from error
    return stage


def install(stage: Path, out: Path) -> None:
    """Replace an earlier simulation by the complete data."""
    if stage != out:
        for night in out.iterdir():
            remove(night)
        for night in stage.iterdir():
            night.rename(out / night.name)
        stage.rmdir()


def _is_night(path: Path) -> bool:
    """Whether a path is the directory of a night that has only files that :meth:`Run.write` created."""
    if path.is_symlink() or not re.fullmatch(r"night=\d{4}-\d\d-\d\d", path.name) or not path.is_dir():
        return False
    return {entry.name for entry in path.iterdir()} <= {FILE, UNFINISHED}


def remove(night: Path) -> None:
    """Remove a night's files and its directory, if they exist."""
    for name in (FILE, UNFINISHED):
        (night / name).unlink(missing_ok=True)
    with suppress(FileNotFoundError):
        night.rmdir()


def cannot_write(path: Path, error: OSError) -> StreamevalError:
    """The one-line error for an operating system error that occurred while writing below ``path``."""
    reason = os.strerror(error.errno) if error.errno else str(error).splitlines()[0]
    return StreamevalError(f"cannot write {str(path)!r}: {reason}; free the disk, or name another out directory")


@dataclass(frozen=True)
class Run:
    """A simulation being written: night ``p`` has the rows ``[rows p / partitions, rows (p+1) / partitions)``.

    The semaphore ``at_work`` has one permit per thread: while one caller holds all permits, no task is writing.
    """

    model: Model
    out: Path
    partitions: int
    threads: int
    progress: Callable[[int], object] | None = None
    stopped: threading.Event = field(default_factory=threading.Event)
    at_work: threading.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        """Create the semaphore."""
        object.__setattr__(self, "at_work", threading.Semaphore(self.threads))

    def night(self, partition: int) -> Path:
        """The directory of a night."""
        return self.out / f"night={FIRST_NIGHT + timedelta(days=partition)}"

    def write(self, partition: int) -> tuple[int, int]:
        """Write one night; this is a task of the graph.

        Parameters
        ----------
        partition : int
            Number of the night, in [0, partitions).

        Returns
        -------
        positives, bytes : int
            Number of messages labelled 1, and size of the file; zeros if the run has been stopped.
        """
        with self.at_work:
            if self.stopped.is_set():
                return 0, 0
            night = self.night(partition)
            night.mkdir()
            positives = self._write_groups(night / UNFINISHED, partition)
            if self.stopped.is_set():
                return 0, 0
            (night / UNFINISHED).replace(night / FILE)
            return positives, (night / FILE).stat().st_size

    def _write_groups(self, path: Path, partition: int) -> int:
        """Write the row groups of a night, until the run is stopped; returns the number of messages labelled 1."""
        rows, positives = self.model.rows, 0
        start, stop = rows * partition // self.partitions, rows * (partition + 1) // self.partitions
        with pq.ParquetWriter(path, SCHEMA, **ENCODING) as writer:
            for first in range(start, stop, ROW_GROUP):
                if self.stopped.is_set():
                    break
                table = pa.Table.from_arrays(_rows(self.model, first, min(stop, first + ROW_GROUP)), schema=SCHEMA)
                writer.write_table(table, row_group_size=ROW_GROUP)
                positives += pc.sum(table["label"]).as_py()
                if self.progress is not None:
                    self.progress(table.num_rows)
        return positives

    def discard(self) -> None:
        """Stop all tasks, wait for those that are writing, and remove everything that the run has written."""
        self.stopped.set()
        for _ in range(self.threads):
            self.at_work.acquire()
        self.at_work.release(self.threads)  # queued tasks can start, and return at once because the run is stopped
        for partition in range(self.partitions):
            with suppress(OSError):
                remove(self.night(partition))
        if self.out.name.startswith(".") and self.out.name.endswith(".new"):
            with suppress(OSError):
                self.out.rmdir()


def _rows(model: Model, start: int, stop: int) -> list[pa.Array]:
    """The columns of the rows ``[start, stop)``."""
    blocks = []
    for number in range(start // BLOCK, (stop - 1) // BLOCK + 1):
        origin = number * BLOCK
        rows = slice(max(start, origin) - origin, min(stop, origin + BLOCK) - origin)
        blocks.append([column[rows] for column in draw_block(model, number).values()])
    return [pa.array(np.concatenate(columns)) for columns in zip(*blocks, strict=True)]


MOST_NIGHTS = 1_000_000  # the calendar ends in the year 9999


@dataclass(frozen=True)
class Simulation:
    """The result of `simulate`.

    Attributes
    ----------
    path : Path
        The directory.
    rows, positives : int
        Number of messages, and of those labelled 1.
    partitions : int
        Number of nights, each in one file.
    bytes : int
        Size of all files.
    seconds : float
        Elapsed time.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as out:
    ...     made = simulate(out, rows=1000, partitions=4)
    >>> made.rows, made.partitions
    (1000, 4)
    """

    path: Path
    rows: int
    positives: int
    partitions: int
    bytes: int
    seconds: float


@explains_arguments
def simulate(
    out: str | os.PathLike[str],
    *,
    rows: int,
    partitions: int = 16,
    seed: int = 0,
    sizes: Literal["gamma", "pareto"] = "gamma",
    shape: float | None = None,
    mean: float = 50.0,
    positives: float = 0.25,
    lone_positives: float | None = None,
    label_error: float = 0.0,
    singletons: float = 0.3,
    split: float = 0.1,
    join: float = 0.05,
    noise: float = 0.01,
    missed: float = 0.05,
    auc_a: float = 0.95,
    auc_b: float = 0.85,
    threads: int | None = None,
    overwrite: bool = False,
    progress: Callable[[int], object] | None = None,
) -> Simulation:
    """Write simulated spam-clustering data: a Hive-partitioned directory with one Parquet file per night.

    The files are ``out/night=2026-01-01/part-0.parquet`` and so on, snappy-compressed, with the columns

    - ``message_id`` int64: the row's number, from 0, in order;
    - ``label`` int8: the observed label, 1 for spam (a share ``label_error`` of the labels is wrong);
    - ``score_a`` float32, ``score_b`` float64: scores in (0, 1), independent of each other given the true label;
    - ``campaign`` int64: the true class, from 0 (the campaign with the largest expected size), or −1 − message_id for a
      message outside any campaign;
    - ``cluster`` int64: the campaign clustering with its errors; ids are spread over all 64-bit integers;
    - ``weight`` float64: 2.5 for a quarter of the messages, 1.0 for all others, independent of all other columns.

    Parameters
    ----------
    out : path
        Directory to write. It must not exist, or be empty, or hold an earlier simulation and ``overwrite`` be set.
    rows : int
        Number of messages, at least 1.
    partitions : int
        Number of nights; their sizes differ by at most one row.
    seed : int
        Seed of all random streams, in [0, 2^128).
    sizes : "gamma" or "pareto"
        Distribution of the campaign sizes.
    shape : float, optional
        Shape of the distribution. For gamma at least 0.01 (default 0.5; smaller is more uneven); for Pareto the tail
        exponent, at least 1.01 (default 1.5; up to 2, the variance is infinite and the largest campaigns have a large
        share of the messages).
    mean : float
        Mean campaign size in messages, at least 1.
    positives : float
        Expected share of truly positive messages, in [0, 1]; with few campaigns, the actual share differs from it.
    lone_positives : float, optional
        Share of truly positive messages among singletons, in [0, 1]; by default a fifth of ``positives``, or more if
        campaigns cannot hold all other positives. The other positives are in campaigns, so large clusters are worth
        inspecting.
    label_error : float
        Share of the labels that are flipped, in [0, 1].
    singletons : float
        Share of messages outside any campaign, in [0, 1].
    split, join : float
        Shares of campaigns that are split into two to five clusters, and that are joined with another one, in [0, 1].
    noise, missed : float
        Shares of campaign messages that are put into another campaign's cluster, and into singleton clusters, in
        [0, 1]; their sum must not exceed 1.
    auc_a, auc_b : float
        ROC AUC of the scores against the *true* labels, in (0, 1), without weights. Against the observed labels, it is
        ½ + (AUC − ½)(s − t), where s and t are the shares of truly positive messages among those labelled 1 and 0.
    threads : int, optional
        Number of threads; by default one for each processor that this process may use.
    overwrite : bool
        Whether to replace an earlier simulation in ``out``. No other files in it are ever removed.
    progress : callable, optional
        Called with the number of rows just written, from the threads that write.

    Returns
    -------
    Simulation

    Raises
    ------
    OptionError
        If an option is out of its range, or ``out`` is not empty.
    StreamevalError
        If the disk is full or ``out`` cannot be written. Everything that this call wrote is removed, also after an
        interrupt.

    Notes
    -----
    There are two ways to get 10⁸ rows with 70 % singleton clusters: ``singletons=0.69, missed=0`` (about one class per
    cluster), or ``singletons=0, mean=100, missed=0.69`` (930,000 classes).

    Examples
    --------
    >>> import tempfile, pyarrow.parquet as pq
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result = simulate(folder, rows=100_000, partitions=2, seed=1)
    ...     night = pq.read_table(result.path / "night=2026-01-02" / "part-0.parquet", partitioning=None)
    >>> result.rows, result.partitions, night.num_rows, night["message_id"][0].as_py()
    (100000, 2, 50000, 50000)
    >>> round(result.positives / result.rows, 2)
    0.23
    """
    start = time.perf_counter()
    model = Model(
        rows, seed, sizes, shape, mean, positives, lone_positives, label_error, singletons, split, join, noise, missed,
        auc_a, auc_b,
    )  # fmt: skip
    check_integer("partitions", partitions, 1, MOST_NIGHTS)
    threads = available_threads() if threads is None else threads
    check_integer("threads", threads, 1, 1024)
    check_local(out)
    path = Path(out)
    stage = prepare(path, overwrite=overwrite)
    run = Run(model, stage, partitions, threads, progress)
    try:
        _ = model.ranks, model.keys  # cached properties, computed once before the threads need them
        written = map_threads(run.write, range(partitions), threads)
    except BaseException as error:
        run.discard()
        if isinstance(error, OSError):
            raise cannot_write(stage, error) from error
        raise
    install(stage, path)
    labelled, nbytes = (sum(column) for column in zip(*written, strict=True))
    return Simulation(path, rows, labelled, partitions, nbytes, time.perf_counter() - start)
