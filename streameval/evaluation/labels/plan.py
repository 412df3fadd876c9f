"""Plan which rows to label: a stratified draw that makes one metric as certain as a budget of labels allows.

Strata are those of `streameval.metrics.scores.label_sample`, from a pilot: labels of a uniform sample, which the data
have, or the nights of a store. A stratum gets labels in proportion to the spread that its labels cause in the metric
(Neyman 1934),

    g_h = |∂θ/∂p_h| · √(p_h(1 − p_h)),

with a tenth of the budget in proportion to √N_h, as the pilot's p_h are rough; at least five each. A plan for a
threshold harms the ROC AUC: if that is wanted as well, half of the budget is in proportion to the rows. The rows with
the smallest keyed hash of their id are drawn, so that the same plan draws the same rows. One scan of the data counts
the rows of each stratum, and holds those with the smallest hashes, as many as the budget.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streameval import __version__
from streameval.engine.fold import batches
from streameval.errors import LabelError, MissingInputError, NullError, OptionError
from streameval.evaluation.files import Files
from streameval.metrics.catalogue import entry_of
from streameval.metrics.scores.operating_points import OperatingPoint
from streameval.options import record_options
from streameval.report.terminal import Shown, escape_markup, table
from streameval.saving import AsJson
from streameval.states.cluster_counts import ClusterSpec
from streameval.states.keyed.ids import id_type, identify
from streameval.states.scores.types import present, rank_keys

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import RenderableType

    from streameval.engine import Engine
    from streameval.engine.fold import Plan
    from streameval.evaluation.protocol import MetricRequest
    from streameval.metrics.protocol import Metric
    from streameval.metrics.scores.label_sample import LabelSample
    from streameval.scan import Piece, Scan, Where
    from streameval.states.protocol import Batch, State
    from streameval.typing import Array

_LEAST = 5  # labels of a stratum
_PILOT = 50  # labelled positives without which a forecast is off by more than 20 % in most draws
_BATCH = 1 << 17  # rows read at a time


@dataclass(frozen=True, repr=False)
class LabelPlan(Shown, AsJson):
    """Rows to label.

    Attributes
    ----------
    ids : pa.Table
        A row for each row to label: its id under the name of its column, ``stratum`` (its range of scores) and
        ``probability``. With labels added, it is a table of `labels` for ``sampled_by="strata=stratum"`` and
        ``label_probability="probability"``, or for the latter alone.
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

    def render(self, *, plain: bool = False) -> RenderableType:
        """The strata, and the expected intervals; a plain table has no rules."""
        from rich.console import Group

        heads = ("stratum", "rows", "pilot", "positives", "labels")
        rows = [[str(one["stratum"]), *(f"{one[name]:,}" for name in heads[1:])] for one in self.strata]
        widths = dict.fromkeys(self.half_width, "too few positives to forecast")
        widths |= {name: f"95 % interval of about ±{x:.2g}" for name, x in self.half_width.items() if x == x}
        lines = [f"{len(self.ids):,} labels", *(f"{name}: {said}" for name, said in widths.items())]
        return Group(table(heads, rows, heads[1:], plain=plain), *map(escape_markup, lines))


@dataclass(frozen=True)
class Pilot:
    """The labels of a uniform sample of rows.

    Attributes
    ----------
    engine : of the run
    wanted : the metrics to narrow
    sample : the labels
    """

    engine: Engine
    wanted: MetricRequest
    sample: LabelSample

    @classmethod
    def of(cls, engine: Engine, wanted: MetricRequest, state: State) -> Pilot:
        """The pilot in a state; raises `OptionError` for metrics whose interval no plan can narrow."""
        _check(wanted.metrics)
        return cls(engine, wanted, cast("LabelSample", wanted.family.source(engine, wanted, {wanted.spec: state})))

    def plan(
        self, scanned: Scan, where: Where | None, column: str, budget: int, options: Mapping[str, object]
    ) -> LabelPlan:
        """The rows of a scan to label, of which a column has the ids."""
        files = Files.of(self.engine, scanned, None, where, skip=False)
        specs = replace(files.plan, specs=(self.sample.spec, ClusterSpec(column)))
        kind = id_type(scanned.schema.field(column).type, column)
        draws = _Draw(specs, column, kind, self.sample, max(_LEAST, budget) + 1).all(files)  # and a repeated id
        sample, metrics = replace(self.sample, sizes=draws.sizes), self.wanted.metrics
        slopes = sample.slopes([sample.fixed(metric) for metric in metrics], np.arange(sample.sizes.size))
        labels = _shared_out(sample, slopes, [metric.name for metric in metrics], budget)
        variance = sample.shares * (1 - sample.shares) / np.maximum(labels - 1, 1)
        variance *= 1 - labels / np.maximum(sample.sizes, 1)
        enough = int(sample.labels[1].sum()) >= _PILOT
        widths = 1.96 * np.sqrt(slopes**2 @ variance) if enough else np.full(len(slopes), math.nan)
        names = ("stratum", "rows", "pilot", "positives", "labels")
        counts = sample.sizes, sample.labels.sum(axis=0), sample.labels[1], labels
        rows = zip(sample.names, *(column.tolist() for column in counts), strict=True)
        return LabelPlan(
            _ids(draws, labels, column, sample, files.names[0]),
            tuple(dict(zip(names, row, strict=True)) for row in rows),
            dict(zip((metric.name for metric in metrics), widths.tolist(), strict=True)),
            record_options(options, "plan_labels"),
        )


def _check(metrics: Sequence[Metric]) -> None:
    """Raise `OptionError` for metrics whose interval no plan can narrow."""
    for metric in metrics:
        entry, ranked = entry_of(metric.name), metric.points(2) is not None
        why = entry.no_interval if entry else ""
        if ranked and not isinstance(metric, OperatingPoint):
            why = "areas down to a rank are not estimated from sampled labels"
        elif entry and (entry.thresholded or entry.useless) and not ranked:
            why = "its threshold depends on the labels"
        if why:
            raise OptionError(
                f"for_={metric.name!r} gets no interval from sampled labels: {why}; name a threshold, such as "
                "precision@threshold=0.8 (--for)",
                "for_",
            )


def _shared_out(sample: LabelSample, slopes: Array, names: Sequence[str], budget: int) -> Array:
    """Labels for each stratum: an int64 array of shape (n_strata,)."""
    ranking = "roc_auc" in names and len(names) > 1  # its part is that in proportion to the rows
    spread = np.abs(slopes) * np.sqrt(sample.shares * (1 - sample.shares))
    spread = spread[[name != "roc_auc" for name in names]] if ranking else spread
    sums = spread.sum(axis=1, keepdims=True)
    share = np.mean(np.divide(spread, sums, out=np.zeros_like(spread), where=sums > 0), axis=0)
    roots = np.sqrt(sample.sizes)
    base = sample.sizes / sample.sizes.sum() if ranking else roots / roots.sum()
    part = (0.5 if ranking else 0.9) if share.any() else 0.0
    labels = np.floor((part * share + (1 - part) * base) * budget).astype(np.int64)
    found: Array = np.minimum(np.maximum(labels, _LEAST), sample.sizes)
    return found


class _Draws(NamedTuple):
    """Rows of each stratum, and some of those with the smallest hashes: their hashes, strata and ids."""

    sizes: Array
    hashes: Array
    strata: Array
    ids: pa.Array

    def limits(self, most: int) -> Array:
        """The largest hash of each stratum that has `most` rows here, else the largest there is."""
        limits = np.full(self.sizes.size, np.iinfo(np.uint64).max, np.uint64)
        ends = np.cumsum(np.bincount(self.strata, minlength=limits.size))
        full = np.diff(ends, prepend=0) == most
        limits[full] = self.hashes[ends[full] - 1]
        return limits


@dataclass(frozen=True)
class _Draw:
    """Draw at most `most` rows of each stratum of a sample: those whose ids have the smallest hashes."""

    plan: Plan
    column: str
    kind: str
    sample: LabelSample
    most: int

    def all(self, files: Files) -> _Draws:
        """The draws of all rows."""
        pieces, step, draws = files.scan.pieces, 4 * files.engine.budget.threads, list[_Draws]()
        for i in range(0, len(pieces), step):
            limits = draws[0].limits(self.most) if draws else None
            more = files.engine.each(partial(self.of_piece, limits=limits), pieces[i : i + step])
            draws = [one for one in (*draws, *more) if one is not None]
            draws = [self.smallest(draws)] if draws else []
        if not draws:
            raise MissingInputError(f"{files.names[0]}: there are no rows to draw from")
        return draws[0]

    def of_piece(self, piece: Piece, limits: Array | None) -> _Draws | None:
        """The draws among rows whose hashes are within the limits of their strata; None without rows."""
        draws = list[_Draws]()
        for _, _, batch in batches([piece], self.plan, None, _BATCH):
            if batch is not None:
                draws.append(self.of_batch(batch, limits))
                if sum(one.hashes.size for one in draws) > 2 * self.most * self.sample.sizes.size:
                    draws = [self.smallest(draws)]
                    limits = draws[0].limits(self.most)
        return self.smallest(draws) if draws else None

    def of_batch(self, batch: Batch, limits: Array | None) -> _Draws:
        """The rows of a batch that have a score, and a hash within the limits."""
        spec, ids = self.sample.spec, batch.columns[self.column]
        values, rows, _ = present(batch, spec.column, spec.type)
        if ids.null_count:
            raise NullError(f"{batch.name}: column {self.column!r} has nulls; name a column of unique ids")
        ids = ids.slice() if isinstance(rows, slice) else ids.take(pa.array(rows))
        sizes, near, hashes, strata = self.sample.near(
            identify(ids, self.kind)[0], rank_keys(values, spec.type), limits
        )
        ids = ids.take(pa.array(near))
        ids = ids.dictionary_decode() if pa.types.is_dictionary(ids.type) else ids
        return _Draws(sizes, hashes, strata, ids)

    def smallest(self, draws: Sequence[_Draws]) -> _Draws:
        """The draws of all rows of several, ordered by stratum and hash."""
        hashes, strata = (np.concatenate([getattr(one, name) for one in draws]) for name in ("hashes", "strata"))
        order = np.lexsort((hashes, strata))
        place = np.arange(order.size) - np.searchsorted(strata[order], strata[order])
        first = order[place < self.most]
        ids = pa.concat_arrays([one.ids for one in draws]).take(pa.array(first))
        return _Draws(np.sum([one.sizes for one in draws], axis=0), hashes[first], strata[first], ids)


def _ids(draws: _Draws, labels: Array, column: str, sample: LabelSample, name: str) -> pa.Table:
    """The drawn ids, as many of each stratum as it has labels; raises `LabelError` if one is drawn twice."""
    place = np.arange(draws.strata.size) - np.searchsorted(draws.strata, draws.strata)
    first = np.flatnonzero(place < labels[draws.strata])
    ids, strata = draws.ids.take(pa.array(first)), draws.strata[first]
    if pc.count_distinct(draws.ids).as_py() < len(draws.ids):
        counts = pc.value_counts(draws.ids).to_pylist()
        twice = next(one["values"] for one in counts if one["counts"] > 1)
        raise LabelError(f"{name}: column {column!r} has {twice!r} in several rows; name a column of unique ids")
    names = pa.array([sample.names[h] for h in strata.tolist()], pa.string())
    return pa.table({column: ids, "stratum": names, "probability": (labels / np.maximum(1, draws.sizes))[strata]})
