"""Looking: the verbs that read: partitions evaluated together, a metric night by night, and rules."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from streameval._version import __version__
from streameval.errors import OptionError
from streameval.options import recorded, result_key
from streameval.store.nights.configuration import Configuration
from streameval.store.nights.merge import evaluated, states_of
from streameval.store.nights.partitions import chosen
from streameval.store.nights.remote import evaluated_on_worker
from streameval.store.results.history import History, Point, key_of
from streameval.store.results.rules import Rule, judge

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import date

    from streameval.evaluation.result import Evaluation
    from streameval.store.context import StoreContext
    from streameval.store.results.rules import Check

__all__ = ["check", "evaluate", "history"]


def evaluate(
    opened: StoreContext, as_of: str | int | date | None, selection: Mapping[str, Any], options: Mapping[str, Any]
) -> Evaluation:
    """Evaluate the partitions of a selection (arguments of `chosen`); see `Store.evaluate`."""
    snapshot = opened.begun(as_of)
    entries = chosen(snapshot.entries, **selection)
    configuration, engine = Configuration.read(snapshot.configuration), opened.engine()
    request = configuration.request(**options)
    key = key_of(
        __version__,
        result_key(request.options),
        *(text for e in entries for text in (e.labels, *(s.file for s in e.states))),
    )
    later = states_of(entries, configuration, engine, opened.runs, **options)
    cached = not request.selection.own  # two metrics of one name may differ
    known = opened.remembered.recall(snapshot.version, key, later, engine, request.aul_threshold) if cached else None
    found = known or _evaluator(opened)(entries, configuration, engine, opened.runs, **options)
    found = replace(found, options=recorded(request.options))
    if as_of is None and cached and known is None:
        opened.remembered.keep(snapshot.version, key, found)
    return found


def _evaluator(opened: StoreContext) -> Callable[..., Evaluation]:
    """What evaluates partitions: a worker of the client that the store was given, or this process."""
    workers = opened.workers() if opened.client is not None else None
    return evaluated if workers is None else partial(evaluated_on_worker, workers)


def history(
    opened: StoreContext,
    metric: str,
    of: str | None,
    as_of: str | int | date | None,
    selection: Mapping[str, Any],
    *,
    cumulative: bool,
) -> History:
    """A metric of the partitions of a selection; see `Store.history`."""
    snapshot = opened.begun(as_of)
    entries = chosen(snapshot.entries, **selection)
    nightly = opened.nightly(snapshot)
    nights = nightly.nights(entries, metric, of)
    totals: list[Any] = nightly.cumulative(entries, metric, of) if cumulative else [None] * len(nights)
    if as_of is None:
        nightly.write()
    points = (Point(e.partition, night, total) for e, night, total in zip(entries, nights, totals, strict=True))
    return History(metric, nights[0].of, tuple(points))


def check(opened: StoreContext, rules: Sequence[str], partition: str | None) -> Check:
    """Judge a night; see `Store.check`."""
    read = [Rule.read(text) for text in rules]
    if not read:
        msg = "name a rule, such as 'roc_auc[score] >= 0.97' (--rule)"
        raise OptionError(msg)
    snapshot = opened.begun()
    entries = chosen(snapshot.entries)
    if partition is not None:
        [tonight] = chosen(snapshot.entries, partition=[partition])
        entries = entries[: entries.index(tonight) + 1]
    nightly = opened.nightly(snapshot)
    nightly.evaluated = _evaluator(opened)
    names = [entry.partition for entry in entries]
    columns = [(rule, nightly.nights(entries, rule.metric, rule.of)) for rule in read]
    nightly.write()
    return judge(read, names, {(night, rule): r for rule, row in columns for night, r in zip(names, row, strict=True)})
