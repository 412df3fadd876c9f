"""Plan which rows to label: a stratified draw that makes one metric as certain as a budget of labels allows.

Strata are those of `streameval.metrics.scores.label_sample`, from a pilot: labels of a uniform sample, as the data have
them. A stratum gets labels in proportion to the spread that its labels cause in the metric (Neyman 1934),

    g_h = |∂θ/∂p_h| · √(p_h(1 − p_h)),

with a tenth of the budget in proportion to √N_h, as the pilot's p_h are rough; at least five each. A plan for a
threshold harms the ROC AUC: if that is wanted as well, half of the budget is in proportion to the rows. The rows with
the smallest keyed hash of their id are drawn, so that the same plan draws the same rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streameval import scan
from streameval._version import __version__
from streameval.engine.fold import batches
from streameval.errors import LabelError, NullError, OptionError
from streameval.evaluation.files import Files
from streameval.evaluation.request import Request
from streameval.metrics.catalogue import entry_of
from streameval.metrics.scores.operating_points import OperatingPoint
from streameval.options import checked, recorded
from streameval.saving import AsJson
from streameval.scan import Where
from streameval.scan.derived import IdName
from streameval.states.cluster_counts import ClusterSpec
from streameval.states.keyed.ids import id_type, identify
from streameval.states.scores.types import present, rank_keys
from streameval.wording import explains_arguments

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from streameval.metrics.protocol import Metric
    from streameval.metrics.scores.label_sample import LabelSample
    from streameval.states.protocol import Batch
    from streameval.typing import Array

_LEAST = 5  # labels of a stratum
_PILOT = 50  # labelled positives without which a forecast is off by more than 20 % in most draws
_BATCH = 1 << 17  # rows read at a time
_KEY = np.uint64(0x9E3779B97F4A7C15)  # of the hash of ids
_WORDS = (np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53))  # of MurmurHash3's finalizer


@dataclass(frozen=True)
class LabelPlan(AsJson):
    """Rows to label.

    Attributes
    ----------
    ids : pa.Table
        A row for each row to label: its id under the name of its column, ``stratum`` (its range of scores) and
        ``probability``, which `label_probability` reads after they are joined to the data; the stratum informs only.
    strata : tuple of dict
        Of each stratum its name, all `rows`, `pilot` labels and positives, and `labels` to give.
    half_width : dict of str to float
        By metric the expected half-width of a 95 % interval; NaN if the pilot has too few positives to forecast.
    options : dict
        The given options that affect the plan.

    Examples
    --------
    >>> LabelPlan(pa.table({"id": [7], "stratum": ["all rows"], "probability": [0.5]}), (), {}).to_dict()["labels"]
    1
    """

    ids: pa.Table
    strata: tuple[dict[str, Any], ...]
    half_width: dict[str, float]
    options: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, object]:
        """Plain values, without the ids."""
        widths = {name: None if width != width else width for name, width in self.half_width.items()}
        plain: dict[str, object] = {"streameval": __version__, "options": self.options, "strata": list(self.strata)}
        return plain | {"half_width": widths, "labels": len(self.ids)}


@explains_arguments
def plan_labels(
    data: Any,
    *,
    id: str,  # noqa: A002 - public name, as --id
    score: str,
    for_: str | Sequence[str],
    label: str = "label",
    budget: int = 1000,
    pos_label: bool | int | float | str | None = None,
    where: Any = None,
    memory: int | str | None = None,
    spill: str | os.PathLike[str] | None = None,
    threads: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> LabelPlan:
    """Plan which rows to label, so that a metric of all rows gets a narrow interval.

    Parameters
    ----------
    data : see `streameval.evaluate`; read twice
    id : str
        Column of unique ids of rows: integers, strings or binaries.
    score : str
        The score column; rows with a null or NaN score are not drawn.
    for_ : str or sequence of str
        The metrics, such as ``"precision@threshold=0.8"``; with ``"roc_auc"`` among several, half of the budget is for
        that.
    label : str
        Column of the pilot: labels of a uniform sample of rows, null for all others.
    budget : int
        Number of labels; exceeded where strata need the least number.
    pos_label, where, memory, spill, threads, progress
        See `streameval.evaluate`.

    Returns
    -------
    LabelPlan

    Raises
    ------
    NullError
        If an id is null.
    LabelError
        If an id is drawn twice, or there are no labels.
    StreamevalError
        See `streameval.errors`.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> scores = rng.random(20_000)
    >>> labels = pa.array((rng.random(20_000) < scores).astype(int), mask=rng.random(20_000) > 0.05)
    >>> data = pa.table({"id": np.arange(20_000), "score": scores, "label": labels})
    >>> plan = plan_labels(data, id="id", score="score", for_="precision@threshold=0.9", budget=500)
    >>> plan.ids.column_names, plan.strata[0]["labels"] / plan.strata[0]["rows"] > 0.05
    (['id', 'stratum', 'probability'], True)
    """
    given = {name: value for name, value in locals().items() if name not in ("data", "progress")}
    options = checked(given, "plan_labels")
    shared = {"label": label, "pos_label": pos_label, "where": where, "memory": memory, "spill": spill}
    shared |= {"threads": threads, "progress": progress, "score": score, "nan": "drop"}
    request = Request.checked(shared | {"metrics": for_, "sampled_by": "uniform"})
    files = Files.requested(data, request)
    with files.engine.progress:
        [wanted], folded = files.states(request)
        _check(wanted.metrics)
        sample = cast("LabelSample", wanted.family.source(files.engine, wanted, folded.states))
        slopes = sample.slopes([sample.fixed(metric) for metric in wanted.metrics], np.arange(sample.sizes.size))
        labels = _shared_out(sample, slopes, [metric.name for metric in wanted.metrics], budget)
        where_test = None if where is None else Where.of(getattr(options["where"], "value", options["where"]))
        columns = dict.fromkeys((IdName(id), score, *(where_test.columns if where_test else ())))
        scanned = scan.plan(data, list(columns), threads=files.engine.budget.threads)
        drawn = _draw(Files.of(files.engine, scanned, None, where_test, skip=False), id, sample, labels)
    pilot, sizes = sample.labels, sample.sizes
    variance = sample.shares * (1 - sample.shares) / np.maximum(labels - 1, 1) * (1 - labels / sizes)
    enough = int(pilot[1].sum()) >= _PILOT
    widths = 1.96 * np.sqrt(slopes**2 @ variance) if enough else np.full(len(slopes), math.nan)
    rows = zip(
        sample.names, sizes.tolist(), pilot.sum(axis=0).tolist(), pilot[1].tolist(), labels.tolist(), strict=True
    )
    names = ("stratum", "rows", "pilot", "positives", "labels")
    return LabelPlan(
        drawn,
        tuple(dict(zip(names, row, strict=True)) for row in rows),
        dict(zip((metric.name for metric in wanted.metrics), widths.tolist(), strict=True)),
        recorded(options, "plan_labels"),
    )


def _check(metrics: Sequence[Metric]) -> None:
    """Raise `OptionError` for metrics whose interval no plan can narrow."""
    for metric in metrics:
        entry, ranked = entry_of(metric.name), metric.points(2) is not None
        why = entry.no_interval if entry else ""
        if ranked and not isinstance(metric, OperatingPoint):
            why = "areas down to a rank are not estimated from sampled labels"
        elif entry and entry.thresholded and not ranked:
            why = "its threshold depends on the labels"
        if why:
            raise OptionError(
                f"for_={metric.name!r} gets no interval from sampled labels: {why}; name a threshold, such as "
                "precision@threshold=0.8 (--for)",
                "for_",
            )


def _shared_out(sample: LabelSample, slopes: Array, names: Sequence[str], budget: int) -> Array:
    """Labels for each stratum: an int64 array of shape (n_strata,)."""
    spread = np.abs(slopes) * np.sqrt(sample.shares * (1 - sample.shares))
    sums = spread.sum(axis=1, keepdims=True)
    share = np.mean(np.divide(spread, sums, out=np.zeros_like(spread), where=sums > 0), axis=0)
    roots = np.sqrt(sample.sizes)
    ranking = "roc_auc" in names and len(names) > 1
    base = sample.sizes / sample.sizes.sum() if ranking else roots / roots.sum()
    part = (0.5 if ranking else 0.9) if share.any() else 0.0
    labels = np.floor((part * share + (1 - part) * base) * budget).astype(np.int64)
    found: Array = np.minimum(np.maximum(labels, _LEAST), sample.sizes)
    return found


def _draw(files: Files, column: str, sample: LabelSample, labels: Array) -> pa.Table:
    """The ids with the smallest hashes of each stratum."""
    kind = id_type(files.scan.schema.field(column).type, column)
    chosen: list[tuple[Array, Array, pa.Array]] = []  # hashes, strata, ids
    limit, held = np.full(labels.size, np.iinfo(np.uint64).max, np.uint64), 0
    plan = replace(files.plan, specs=(sample.spec, ClusterSpec(column)))
    for _, _, batch in batches(files.scan.pieces, plan, None, _BATCH):
        if batch is not None:
            hashes, strata, ids = _hash(batch, column, kind, sample)
            near = np.flatnonzero(hashes <= limit[strata])
            chosen.append((hashes[near], strata[near], ids.take(pa.array(near))))
            held += near.size
            if held > 4 * int(labels.sum()) + _BATCH:
                chosen = [_smallest(chosen, labels)]
                hashes, strata, _ = chosen[0]
                held = hashes.size
                full = np.bincount(strata, minlength=labels.size) == labels
                for h in np.flatnonzero(full).tolist():
                    limit[h] = hashes[strata == h].max()
    _, strata, ids = _smallest(chosen, labels)
    if pc.count_distinct(ids).as_py() < len(ids):
        counts = pc.value_counts(ids).to_pylist()
        twice = next(one["values"] for one in counts if one["counts"] > 1)
        raise LabelError(
            f"{files.names[0]}: column {column!r} has {twice!r} in several rows; name a column of unique ids"
        )
    probability = (labels / sample.sizes)[strata]
    return pa.table(
        {column: ids, "stratum": pa.array([sample.names[h] for h in strata.tolist()]), "probability": probability}
    )


def _hash(batch: Batch, column: str, kind: str, sample: LabelSample) -> tuple[Array, Array, pa.Array]:
    """Hash, stratum and id of the rows of a batch that have a score."""
    values, rows, _ = present(batch, sample.spec.column, sample.spec.type)
    ids = batch.columns[column]
    if ids.null_count:
        raise NullError(f"{batch.name}: column {column!r} has nulls; name a column of unique ids")
    ids = ids.slice() if isinstance(rows, slice) else ids.take(pa.array(rows))
    words = identify(ids, kind)[0] ^ _KEY
    for factor in _WORDS:
        words = (words ^ (words >> np.uint64(33))) * factor
    return words ^ (words >> np.uint64(33)), np.searchsorted(sample.ends, rank_keys(values, sample.spec.type)), ids


def _smallest(chosen: Sequence[tuple[Array, Array, pa.Array]], labels: Array) -> tuple[Array, Array, pa.Array]:
    """The rows with the smallest hashes, as many of each stratum as it has labels."""
    hashes, strata = (np.concatenate(column) for column in list(zip(*chosen, strict=True))[:2])
    order = np.lexsort((hashes, strata))
    place = np.arange(order.size) - np.searchsorted(strata[order], strata[order])
    kept = order[place < labels[strata[order]]]
    arrays = [one.dictionary_decode() if pa.types.is_dictionary(one.type) else one for _, _, one in chosen]
    return hashes[kept], strata[kept], pa.concat_arrays(arrays).take(pa.array(kept))
