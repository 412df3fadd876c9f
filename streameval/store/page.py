"""The section of an evaluation's page that needs a store: results by night, and judgements of rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streameval.store.nights.partitions import chosen, newest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streameval.evaluation.result import Evaluation
    from streameval.report.elements import Section
    from streameval.store.context import StoreContext


def nights(context: StoreContext, as_of: Any, selection: Mapping[str, Any], found: Evaluation) -> list[Section]:
    """The section on nights of an evaluation's page: the first metric of each kind of column, and judgements.

    Parameters
    ----------
    context : the store
    as_of, selection : the selection of nights, see `streameval.store.evaluate.evaluate`
    found : the evaluation of these nights
    """
    from streameval.report.nights import Nightly, nights_section  # imported here: only a page needs it

    snapshot, configuration = context.begun(as_of)
    entries, log = chosen(snapshot.entries, **selection), context.judgements()
    nightly = context.nightly(snapshot, configuration)
    meanings = found.meanings()
    first: dict[str, str] = {}
    values = [result for result in found.results if result.baseline is None and result.slice is None]
    for result in values:
        known = meanings.get(result.metric)
        if known is not None and known.family in ("score", "cluster", "classes"):
            first.setdefault(known.family, result.metric)
    series = [
        Nightly(
            metric,
            {
                result.of: nightly.nights(entries, metric, result.of)
                for result in values
                if result.metric == metric and result.of is not None
            },
        )
        for metric in first.values()
    ]
    if as_of is None:
        nightly.write()
    last = newest(snapshot.entries)
    told = [
        one
        for entry in entries
        for one in (log.of(entry) if entry is entries[-1] else log.closing(entry, last) + log.accepted(entry))
        if one.outcome != "earlier"
    ]
    incomplete = [entry.partition for entry in entries if entry.incomplete]
    failing = log.failing(entries, last)
    return [nights_section([entry.partition for entry in entries], series, failing, incomplete, told)]
