"""Diagnose a night: list what is unusual compared with the nights before it, to explain why a rule failed.

Rows, positives and nulls (also by file) come from the ledger, quantiles of scores and sizes of clusters from the
states; no data are read. If the store keeps blocks of a unit, metrics are compared as well, with sampling intervals:
chance may explain a value if the usual value lies within its interval.

The usual value is the median of the last 7 complete earlier nights that fail no rule. Findings are sorted by their
distance from it, divided by the median absolute deviation of these nights (at least 1 % of the usual value).

The costs of clusters and classes are compared likewise, by the attribution of each night. Only the costliest `DEEP`
groups of a usual night are known. Any other group costs at most as much as the last of them, or nothing if the night
has fewer than `DEEP` groups. This bound is used as its cost, so that an increase is never overstated.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from streameval.report.terminal import Shown, escape_markup, table
from streameval.rules import BASELINE, ENOUGH
from streameval.states.grouped.groups import Grouped
from streameval.store.files.entries import Entry, fact
from streameval.wording import digits, few, plural

if TYPE_CHECKING:
    from collections.abc import Container, Hashable, Mapping, Sequence

    import pyarrow as pa
    from rich.console import RenderableType

    from streameval.engine import Engine
    from streameval.evaluation.cost_tables import Attribution
    from streameval.results import Judgement, Scalar
    from streameval.states.protocol import State
    from streameval.states.scores.counts import ScoreCounts
    from streameval.store.nights.merge import Nights
    from streameval.typing import Array


_QUANTILES = (0.01, 0.25, 0.5, 0.75, 0.99)
_QUARTILES = _QUANTILES[1:-1]
_MOVED = 10  # number of facts of slices that are reported
UNUSUAL = 5.0  # least deviations of a finding that is reported along with a failed rule


@dataclass(frozen=True)
class Finding:
    """A fact of a night, with its usual value.

    Attributes
    ----------
    what : the fact, such as ``rows`` or ``score_lr quantile 0.5``
    value : value of the night
    usual : median of the usual nights; NaN without usual nights
    deviations : distance from the usual value in median absolute deviations; NaN without usual nights
    ci_lower, ci_upper : the sampling interval of a metric; None without one
    """

    what: str
    value: float
    usual: float
    deviations: float
    ci_lower: float | None = None
    ci_upper: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values; NaN and infinities become None. Keys of a missing interval are omitted."""
        facts = {k: v for k, v in asdict(self).items() if v is not None}
        return {k: v if isinstance(v, str) or math.isfinite(v) else None for k, v in facts.items()}

    def cells(self) -> tuple[str, ...]:
        """The fact, its value with an interval, the usual value and the deviations, as texts."""
        low, high = self.ci_lower, self.ci_upper
        interval = "" if low is None or high is None else f" [{digits(low, 4)}, {digits(high, 4)}]"
        usual = "" if self.usual != self.usual else digits(self.usual)
        deviations = "" if self.deviations != self.deviations else f"{self.deviations:.3g}"
        return self.what, f"{digits(self.value)}{interval}", usual, deviations


@dataclass(frozen=True, repr=False)
class Diagnosis(Shown):
    """The diagnosis of a night.

    Attributes
    ----------
    partition : the night
    rules : judgements that keep the gate closed: failed or undecided, and not accepted
    nights : number of usual nights that it was compared with
    findings : facts of the night, largest change first
    files : columns with nulls in some files, and files left out, in words
    costs : clusters and classes whose cost rose most; within each kind, largest increase first
    """

    partition: str
    rules: tuple[Judgement, ...]
    nights: int
    findings: tuple[Finding, ...]
    files: tuple[str, ...]
    costs: tuple[Finding, ...] = ()

    @property
    def fails(self) -> tuple[str, ...]:
        """Names of the rules that the night fails."""
        return tuple(one.rule for one in self.rules if one.outcome == "failed")

    @property
    def undecided(self) -> tuple[str, ...]:
        """Names of the rules that could not judge the night."""
        return tuple(one.rule for one in self.rules if one.outcome == "undecided")

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        facts = {
            name: list(getattr(self, name)) for name in ("fails", "undecided", "rules", "findings", "files", "costs")
        }
        facts |= {name: [one.to_dict() for one in facts[name]] for name in ("rules", "findings", "costs")}
        return {"partition": self.partition, "nights": self.nights, **facts}

    def render(self, *, plain: bool = False, most: int | None = None) -> RenderableType:
        """A heading, the failed rules, the table of at most `most` facts, notes on files, and rising costs."""
        from rich.console import Group

        from streameval.report.nights import rule_lines

        fails = f" fails {', '.join(self.fails)}" if self.fails else ""
        undecided = f"; undecided: {', '.join(self.undecided)}" if self.undecided else ""
        head = f"{self.partition}{fails}{undecided}; compared with {plural(self.nights, 'night')}"
        heads = ("fact", "night", "usual", "deviations")
        parts: list[RenderableType] = list(map(escape_markup, (head, *rule_lines(self.rules, with_night=False))))
        parts.append(table(heads, [one.cells() for one in self.findings[:most]], heads[1:], plain=plain))
        left = len(self.findings) - len(self.findings[:most])
        parts += map(escape_markup, (*[f"{plural(left, 'more fact')} with --all"] * bool(left), *self.files))
        if self.costs:
            rose = [[c.what, f"{c.value:.6g}", "" if c.usual != c.usual else f"{c.usual:.6g}"] for c in self.costs]
            parts.append(table(("cost that rose most", *heads[1:3]), rose, heads[1:3], plain=plain))
        return Group(*parts)


def usual_nights(entry: Entry, entries: Sequence[Entry], failing: Container[str]) -> list[Entry]:
    """The last 7 earlier nights that have rows, are complete and fail no rule."""
    before = entries[: entries.index(entry)]
    return [e for e in before if e.rows and not e.incomplete and e.partition not in failing][-BASELINE:]


def ledger_facts(entry: Entry, columns: Sequence[str]) -> dict[str, float]:
    """Facts of a night from the ledger: rows, files, share of positives, share of nulls by column."""
    facts = {"rows": float(entry.rows), "files": float(entry.files)}
    facts["positives (share)"] = fact(entry, "positives", share=True).value
    facts |= {f"{name} null (share)": fact(entry, "nulls", name, share=True).value for name in columns}
    return {name: value for name, value in facts.items() if not math.isnan(value)}


def unusual_facts(entry: Entry, usual: Sequence[Entry], columns: Sequence[str]) -> tuple[str, ...]:
    """The unusual facts of a night in the ledger, in words."""
    findings = compare_facts(ledger_facts(entry, columns), [ledger_facts(one, columns) for one in usual])
    unusual = [one for one in findings if one.deviations >= UNUSUAL and len(usual) >= ENOUGH]
    return (*map(_in_words, unusual), *facts_by_file(entry))


def _in_words(finding: Finding) -> str:
    """A finding in words, with shares in per cent.

    Examples
    --------
    >>> _in_words(Finding("positives (share)", 0.009, 0.023, 6.1)), _in_words(Finding("rows", 120.0, 540.0, 9.0))
    ('positives 0.9 % (usual 2.3 %)', 'rows 120 (usual 540)')
    """
    name, share, unit = finding.what.removesuffix(" (share)"), 1, ""
    if name != finding.what:
        share, unit = 100, " %"
    return f"{name} {share * finding.value:.4g}{unit} (usual {share * finding.usual:.4g}{unit})"


def facts_by_file(entry: Entry) -> tuple[str, ...]:
    """Columns with nulls in some files, and files that were left out, in words."""
    files = entry.noted.get("files", [])
    holes: dict[str, list[str]] = {}
    for file in files:
        for column, count in file["nulls"].items():
            if count:
                holes.setdefault(column, []).append(f"{file['file'].rpartition('/')[2]}: {count:,}")
    texts = [f"{column} null in {len(some)} of {len(files)} files ({few(some)})" for column, some in holes.items()]
    return (*texts, *(f"left out {name}: {why}" for name, why in entry.left_out))


def compare_facts(night: Mapping[str, float], usual: Sequence[Mapping[str, float]]) -> list[Finding]:
    """Compare the facts of a night with those of other nights; largest change first.

    Examples
    --------
    >>> found = compare_facts({"rows": 50.0, "files": 2.0}, [{"rows": n, "files": 2.0} for n in (90.0, 100.0, 110.0)])
    >>> found[0].what, found[0].usual, found[0].deviations
    ('rows', 100.0, 5.0)
    """
    findings = []
    for what, value in night.items():
        before = [facts[what] for facts in usual if what in facts]
        if not before:
            findings.append(Finding(what, value, math.nan, math.nan))
            continue
        middle = median(before)
        scale = max(median(abs(one - middle) for one in before), abs(middle) / 100)
        moved = abs(value - middle)
        findings.append(Finding(what, value, middle, 0.0 if not moved else moved / scale if scale else math.inf))
    return sorted(findings, key=_order)


def _order(finding: Finding) -> float:
    return -finding.deviations if finding.deviations == finding.deviations else 1.0


class NightFacts(NamedTuple):
    """The facts of a night.

    Attributes
    ----------
    values : facts from the ledger and the states
    metrics : results of its metrics; those with a sampling interval are compared
    slices : facts of its slices; those that changed most are reported
    """

    values: dict[str, float]
    metrics: Sequence[Scalar]
    slices: dict[str, float]


def diagnose_night(
    entry: Entry, night: NightFacts, usual: Sequence[NightFacts], rules: Sequence[Judgement], costs: tuple[Finding, ...]
) -> Diagnosis:
    """Compare a night with usual ones.

    Parameters
    ----------
    entry : the night
    night, usual : the facts of the night, and of the result of `usual_nights`
    rules : judgements of the night that keep the gate closed
    costs : the clusters and classes whose cost rose most
    """
    sampled = {f"{r.metric}[{r.of}]": r for r in night.metrics if r.ci_lower is not None}

    def compared(one: NightFacts) -> dict[str, float]:
        metrics = {f"{r.metric}[{r.of}]": r.value for r in one.metrics if r.value == r.value}
        return one.values | {name: value for name, value in metrics.items() if name in sampled}

    findings = compare_facts(compared(night), list(map(compared, usual)))
    for i, finding in enumerate(findings):
        if result := sampled.get(finding.what):
            findings[i] = replace(finding, ci_lower=result.ci_lower, ci_upper=result.ci_upper)
    moved = compare_facts(night.slices, [one.slices for one in usual])[:_MOVED]
    findings = sorted([*findings, *moved], key=_order)
    return Diagnosis(entry.partition, tuple(rules), len(usual), tuple(findings), facts_by_file(entry), costs)


def shapes_of(night: Nights, engine: Engine) -> dict[str, float]:
    """Quantiles of scores and sizes of clusters of a night, from its states."""
    states = night.states(engine, night.configuration.request())
    measures = {"score": _quantiles, "cluster": _sizes}
    return {
        f"{of} {name}": value
        for group, of in (states if night.entries[0].rows else ())
        if group in measures
        for name, value in measures[group](states[group, of]).items()
    }


def _quantiles(state: State) -> dict[str, float]:
    """Quantiles of scores, of all rows and of positives; the latter show if a score no longer separates the classes.

    If labels are a sample, there are no quantiles of positives.
    """
    scores = cast("ScoreCounts", state.total()) if isinstance(state, Grouped) else state
    parts = [part for shard in scores.shards() for part in scores.parts(shard)]
    if not parts:
        return {}
    high, rows, positives = (np.concatenate([getattr(part, name) for part in parts]) for name in ("high", "rows", "p"))
    order = np.argsort(high, kind="stable")
    quantiles = {f"quantile {q:g}": value for q, value in _weighted_quantiles(high[order], rows[order], _QUANTILES)}
    if scores is not state:
        return quantiles
    of_positives = _weighted_quantiles(high[order], positives[order], _QUARTILES)
    return quantiles | {f"quantile {q:g} of positives": value for q, value in of_positives}


def _weighted_quantiles(scores: Array, weights: Array, shares: Sequence[float]) -> list[tuple[float, float]]:
    """Weighted quantiles of sorted scores; for a histogram, the upper ends of bins.

    Parameters
    ----------
    scores, weights : arrays of shape (n,)
    shares : quantiles in [0, 1]
    """
    upto = np.cumsum(weights)
    if not upto.size or not upto[-1]:
        return []
    places = [int(np.searchsorted(upto, q * upto[-1])) for q in shares]
    return [(q, float(scores[min(i, len(upto) - 1)])) for q, i in zip(shares, places, strict=True)]


def _sizes(state: State) -> dict[str, float]:
    """The number of clusters, the size of the largest cluster, and the share of rows in singletons."""
    tables = [table for shard in state.shards() for table in state.parts(shard)]
    sizes = np.concatenate([table.size for table in tables])
    clusters = np.concatenate([table.clusters for table in tables])
    held = clusters > 0
    if not held.any():
        return {}
    rows = int((sizes[held] * clusters[held]).sum())
    alone = int(clusters[held & (sizes == 1)].sum())
    return {
        "clusters": float(clusters.sum()),
        "largest cluster": float(sizes[held].max()),
        "rows in clusters of one (share)": alone / rows,
    }


DEEP = 1000  # number of costliest groups to find in each usual night
_REPORTED = 5  # number of groups reported per table
_COSTS = {"merges": ("cluster", "false_pairs"), "splits": ("class", "missed_pairs"), "impure": ("cluster", "lost")}
_COST_NAMES = {"false_pairs": "false pairs", "missed_pairs": "missed pairs", "lost": "AUL loss"}


def cost_increases(of: str, night: Attribution, usual: Sequence[Attribution], classes: str | None) -> list[Finding]:
    """The groups of a night whose cost rose most compared with usual nights; within each table, largest increase first.

    Parameters
    ----------
    of : the cluster column
    night : the attribution of the night
    usual : the attributions of the usual nights, with `DEEP` groups each; empty if ids are only valid within a night
    classes : the column of classes
    """
    findings: list[Finding] = []
    for name, rows in night.tables().items():
        if name not in _COSTS:
            continue
        key, cost = _COSTS[name]
        before = [_costs(one.tables()[name], key, cost) for one in usual]
        increased = []
        for group, value in _costs(rows, key, cost)[0].items():
            middle = median(costs.get(group, least) for costs, least in before) if before else math.nan
            if not value <= middle:
                what = f"{of if key == 'cluster' else classes} {group} {_COST_NAMES[cost]}"
                increased.append(Finding(what, float(value), float(middle), math.nan))
        findings += sorted(increased, key=lambda one: (one.usual if before else 0.0) - one.value)[:_REPORTED]
    return findings


def _costs(rows: pa.Table, key: str, cost: str) -> tuple[dict[Hashable, float], float]:
    """The cost of each group in a table, and an upper bound on the cost of any other group."""
    costs = dict(zip(rows[key].to_pylist(), rows[cost].to_pylist(), strict=True))
    return costs, rows[cost][-1].as_py() if rows.num_rows >= DEEP else 0
