"""Churn between two clusterings of the same rows (`streameval.states.contingency.churn` has the definitions)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import chain
from operator import add
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from streameval import __version__, scan
from streameval.engine.threads import ThreadEngine
from streameval.errors import MissingInputError, OptionError, SchemaError
from streameval.evaluation.families import FAMILIES
from streameval.evaluation.files import Files, source_of
from streameval.evaluation.protocol import MetricRequest
from streameval.evaluation.request import LEVEL
from streameval.metrics.estimates import Estimate
from streameval.metrics.protocol import Sizes
from streameval.options import complete_options, record_options
from streameval.report.terminal import Facts
from streameval.results import Scalar, Source
from streameval.saving import AsJson
from streameval.scan import Where
from streameval.scan.derived import IdName
from streameval.states.contingency.churn import NEW_FATES, OLD_FATES, ByNew, Form, Tally
from streameval.states.contingency.counts import ContingencyCounts, ContingencySpec
from streameval.states.grouped.keys import Blocks
from streameval.states.grouped.spec import GroupedSpec
from streameval.states.grouped.tagged import TaggedGroups
from streameval.states.keyed.ids import id_type
from streameval.wording import explains_arguments

if TYPE_CHECKING:
    import os
    from collections.abc import Callable


@dataclass(frozen=True, repr=False)
class Churn(Facts, AsJson):
    """What became of the clusters of an earlier clustering; all numbers are exact, the interval is not.

    Attributes
    ----------
    rows : int
        Rows with both ids.
    arrived, left : int
        Rows without an old id, and without a new one; those with neither are not counted.
    kept : int
        Rows of continued pairs.
    share_kept : Scalar
        `kept` / `rows`, with a sampling interval if there is a unit. Its replicates leave out the rows of a block of
        units from the pairs of all rows.
    old : dict of str to int
        Old clusters: `clusters`, which are `continued`, `absorbed` or `dispersed`; and `deaths`, those that have no row
        with both ids.
    new : dict of str to int
        New clusters: `clusters`, which are `continued`, `split_off` or `formed`; and `births`, without such a row.
    moved : dict of str to dict of str to int
        Rows with both ids outside of continued pairs, by the fate of their old and of their new cluster.
    pairs : dict of str to int
        Pairs of rows together in `both` clusterings, `separated` (in the old one alone) and `joined` (the new alone).
    least : int
        Smallest size, in rows with both ids, of a cluster that is counted. A continued pair counts if one of its sides
        has this size, so that both sides have the same number. Rows and pairs always are of all clusters.
    source : Source
        Where the result comes from.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from streameval import churn
    >>> found = churn(pa.table({"old": [1, 1, 1, 2, 2, None], "new": [7, 7, 8, 8, 8, 8]}), cluster="new", from_="old")
    >>> found.rows, found.kept, found.arrived, found.old["continued"], found.moved["continued"]["continued"]
    (5, 4, 1, 2, 1)
    """

    rows: int
    arrived: int
    left: int
    kept: int
    share_kept: Scalar
    old: dict[str, int]
    new: dict[str, int]
    moved: dict[str, dict[str, int]]
    pairs: dict[str, int]
    least: int
    options: dict[str, Any] = field(default_factory=dict, compare=False)
    source: Source = field(default_factory=Source, compare=False)

    def to_dict(self) -> dict[str, object]:
        """Plain values, as in the command line's JSON."""
        unused = ("metric", "of", "rows", "positives")
        share = {key: value for key, value in self.share_kept.to_dict().items() if key not in unused}
        return {
            "streameval": __version__,
            "options": self.options,
            **{name: getattr(self, name) for name in ("rows", "arrived", "left", "kept")},
            "share_kept": share,
            **{name: getattr(self, name) for name in ("old", "new", "moved", "pairs", "least")},
        }

    def lines(self) -> list[tuple[str, str]]:
        """Names and values, rows first, then clusters, pairs, and rows by the fates of both sides."""
        share = self.share_kept
        ends = [share.ci_lower, share.ci_upper]
        interval = f" [{ends[0]:.4f}, {ends[1]:.4f}] @{100 * (share.ci_level or 0):g}%" if None not in ends else ""
        interval = f" (no interval: {share.ci_reason})" if share.ci_reason else interval
        rows = [(name, getattr(self, name)) for name in ("rows", "arrived", "left", "kept")]
        lines = [(f"rows {name}" if name != "rows" else name, f"{count:,}") for name, count in rows]
        lines.append(("share of rows kept", f"{share.value:.4f}{interval}"))
        for side, counts in (("old", self.old), ("new", self.new)):
            lines += [
                (f"{side} clusters {name.replace('_', ' ')}".replace("clusters clusters", "clusters"), f"{n:,}")
                for name, n in counts.items()
            ]
        lines += [(f"pairs {name}", f"{n:,}") for name, n in self.pairs.items()]
        return lines + [
            (f"rows {old} to {new}".replace("_", " "), f"{n:,}")
            for old, row in self.moved.items()
            for new, n in row.items()
            if n
        ]


@explains_arguments
def churn(
    data: Any,
    *,
    cluster: str,
    from_: str,
    least: int = 2,
    unit: str | None = None,
    ci: float | None = None,
    where: Any = None,
    delta_version: int | None = None,
    snapshot: int | None = None,
    memory: int | str | None = None,
    spill: str | os.PathLike[str] | None = None,
    threads: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Churn:
    """Count which clusters of an earlier clustering continue, and where the rows of the others went.

    Clusters are matched over the rows that have both ids: a pair is continued if each is the other's largest part. Any
    other old cluster is absorbed if more than half of it went to one new cluster, else dispersed; any other new one is
    split off if more than half of it came from one old cluster, else formed (after MONIC, Spiliopoulou et al. 2006).
    Runs on the threads of this process.

    Parameters
    ----------
    data : see `streameval.evaluate`; rows have both ids
    cluster, from_ : str
        Columns of the new and of the earlier cluster ids: integers, strings or binaries. Nulls are rows that left or
        arrived. Where parts are equally large, the smallest id counts, of strings the smallest hash.
    least : int
        Count clusters of at least this size.
    unit, ci : optional
        Sampling interval of the share of rows kept, as in `streameval.evaluate`.
    where, delta_version, snapshot, memory, spill, threads, progress
        See `streameval.evaluate`.

    Returns
    -------
    Churn

    Raises
    ------
    MissingInputError
        If no row has both ids.
    StreamevalError
        See `streameval.errors`.

    Examples
    --------
    >>> import pyarrow as pa
    >>> data = pa.table({"old": [1, 1, 1, 1, 2, 2], "new": [7, 7, 7, 8, 9, 9]})
    >>> found = churn(data, cluster="new", from_="old", least=1)
    >>> found.kept, found.moved["continued"]
    (5, {'continued': 0, 'split_off': 1, 'formed': 0})
    >>> found.new
    {'clusters': 3, 'continued': 2, 'split_off': 1, 'formed': 0, 'births': 0}
    """
    given = {name: value for name, value in locals().items() if name not in ("data", "progress")}
    options = complete_options(given, "churn")
    if options["ci"] is not None and options["unit"] is None:
        raise OptionError(
            "ci would change nothing without a unit: rows of a cluster are not independent (--unit)", "ci"
        )
    engine = ThreadEngine.start(memory=memory, spill=spill, threads=threads, progress=progress)
    test = None if where is None else Where.of(getattr(options["where"], "value", options["where"]))
    columns = [*map(IdName, filter(None, (cluster, from_, unit))), *(test.columns if test else ())]
    scanned = scan.plan(
        data,
        list(dict.fromkeys(columns)),
        where=test,
        threads=engine.budget.threads,
        delta_version=delta_version,
        snapshot=snapshot,
    )
    scan.tell(scanned.skipped)
    files = Files.of(engine, scanned, None, test, skip=False)
    try:
        old, new = (id_type(files.scan.schema.field(name).type, name) for name in (from_, cluster))
    except SchemaError as error:
        raise SchemaError(f"{files.names[0]}: {error}") from None
    cells = ContingencySpec(from_, cluster, old, new, nulls="singleton")  # a null id is counted by its other side
    spec = cells if unit is None else GroupedSpec(cells, Blocks(unit))
    request = MetricRequest(FAMILIES["classes"], cluster, spec, ())
    with engine.progress:
        state = files.folding([request], (spec,)).fold().states[spec]
    tally = reduce(add, chain.from_iterable(engine.rounds(_first(state, cells, least), list)))
    if not tally.counts["rows"]:
        raise MissingInputError(f"{files.names[0]}: no row has an id in both {from_!r} and {cluster!r}")
    share = _share(tally, unit, options["ci"] or LEVEL)
    source = source_of(data, files.scan.pieces, options, "churn")
    return _result(tally, share, least, record_options(options, "churn"), source)


def _first(state: Any, spec: ContingencySpec, least: int) -> ByNew:
    """The first round over a state; the tags of one that is split are those of its blocks."""
    if isinstance(state, TaggedGroups):
        wide = state.widened("cells")
        alone = cast("ContingencyCounts", state.total()).without_cluster
        return ByNew(Form(spec, max(1, len(wide.group_codes)), least), wide.tagged["cells"], alone)
    return ByNew(Form(spec, 0, least), state.cells, state.without_cluster)


def _share(tally: Tally, unit: str | None, level: float) -> Scalar:
    """The share of rows kept, with its interval if there is a unit."""
    rows, kept = tally.counts["rows"], tally.counts["kept"]
    share = replace(Scalar.certain("share_kept", kept / rows), rows=rows)
    if unit is None:
        return share
    (each, own), there = tally.by_tag.astype(np.float64), tally.by_tag[0] > 0
    left = np.where(rows > each, rows - each, 1.0)
    replicates = np.where(there, (kept - own) / left, np.nan)
    return Estimate(share, replicates, Sizes(unit, {"rows": each}), "logit").scalar_with(level)


def _result(tally: Tally, share: Scalar, least: int, options: dict[str, Any], source: Source) -> Churn:
    counts, both = tally.counts, tally.counts["pairs_both"]
    sides = [{name: counts[name] for name in fates} for fates in (OLD_FATES, NEW_FATES)]
    old, new = ({"clusters": sum(side.values())} | side for side in sides)
    moved = {
        fate: dict(zip(NEW_FATES, row, strict=True)) for fate, row in zip(OLD_FATES, tally.moved.tolist(), strict=True)
    }
    pairs = {"both": both, "separated": counts["pairs_old"] - both, "joined": counts["pairs_new"] - both}
    rows, arrived, left, kept = (counts[name] for name in ("rows", "arrived", "left", "kept"))
    old, new = old | {"deaths": counts["deaths"]}, new | {"births": counts["births"]}
    return Churn(rows, arrived, left, kept, share, old, new, moved, pairs, least, options, source)
