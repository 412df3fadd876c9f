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
rows, because properties of campaigns are hashes, not tables (see :mod:`streameval.simulation.draw`).

**Mixed Poisson.** The K = rows (1 − singletons) / mean campaigns have expected sizes at the quantiles of the
distribution. The number of messages drawn is Poisson around the expected size; for gamma sizes, this is the negative
binomial distribution with mean ``mean`` and variance mean + mean² / shape. Campaigns without messages are not in the
data.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from streameval.budget import available_threads
from streameval.forks import compute
from streameval.saving import check_local
from streameval.simulation.files import Run, cannot_write, install, prepare
from streameval.simulation.model import Model, check_integer

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

__all__ = ["Simulation", "simulate"]

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
        Number of threads of Dask's threaded scheduler; by default one for each processor that this process may use.
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
    written = _write(Run(model, stage, partitions, threads, progress))
    install(stage, path)
    counts = [sum(column) for column in zip(*written, strict=True)]
    return Simulation(path, rows, counts[0], partitions, counts[1], time.perf_counter() - start)


def _write(run: Run) -> list[tuple[int, int]]:
    """Write all nights on Dask's threads; after an error or interrupt, remove everything that was written."""
    graph = {("night", partition): (run.write, partition) for partition in range(run.partitions)}
    try:
        _ = run.model.ranks, run.model.keys  # cached properties, computed once before the threads need them
        written: list[tuple[int, int]] = compute(graph, list(graph), run.threads)
    except BaseException as error:
        run.discard()
        if isinstance(error, OSError):
            raise cannot_write(run.out, error) from error
        raise
    return written
