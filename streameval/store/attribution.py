"""Attribution from a store: the clusters, classes and slices that cost most in some nights, from their states.

States hold integer ids, and hashes of other ids. The texts of hashed ids, and examples, are read from the files of the
nights if these are given.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from streameval.errors import DataError, OptionError
from streameval.evaluation.attribution import Run, check_options, count_dropped, of_slices, with_slices
from streameval.evaluation.cost_tables import attribute_states, ids_of
from streameval.evaluation.finalize import check_labels
from streameval.kinds import of_column
from streameval.options import record_options
from streameval.store.evaluate import evaluate, store_source
from streameval.store.nights.configuration import ALL_STATES
from streameval.store.nights.diagnosis import DEEP, cost_increases
from streameval.store.nights.merge import Nights, labels_of
from streameval.store.nights.partitions import select_entries
from streameval.wording import plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import date

    from streameval.engine import Engine
    from streameval.evaluation.cost_tables import Attribution
    from streameval.results import Scalar
    from streameval.store.context import StoreContext
    from streameval.store.files.entries import Entry
    from streameval.store.nights.configuration import Configuration
    from streameval.store.nights.diagnosis import Finding

# options that the configuration of the store fixes
_FIXED = ("cluster", "classes", "label", "pos_label", "nulls", "unlabelled", "cluster_scope")
_REFUSED = ("changed_from", "where")  # options that a store cannot honour; the errors explain why
_SLICED = ("score", "by", "adjust", "ci", "unit")
ATTRIBUTED = (*_FIXED, *_REFUSED, *_SLICED, "metric", "aul_threshold", "top", "examples", "examples_per")


def attribute(
    context: StoreContext,
    data: object,
    as_of: str | int | date | None,
    selection: Mapping[str, Any],
    options: Mapping[str, Any],
) -> Attribution:
    """Attribute the selected partitions; see `Store.attribute`."""
    snapshot, configuration = context.begun(as_of)
    entries = select_entries(snapshot.entries, **selection)
    asked = check_options(_options(configuration, options, data))
    result: Attribution | None = None
    if asked["cluster"]:
        read = None if data is None else _files(data, asked, context.engine(), configuration, entries)
        attributed = partial(_attribute, asked=asked, read=read, place=context.location.name)
        result = context.computed(attributed, Nights(entries, configuration, context.compaction))
    if result is None or asked["by"]:
        evaluated, sliced = partial(evaluate, context, as_of, selection), of_slices(asked)
        sliced = {name: sliced[name] for name in ("score", "by", "metrics")} | {"at": (), "truncate": ()}

        def at_level(level: float) -> list[Scalar]:
            return [one for one in evaluated({**sliced, "ci": level}).results if one.slice is not None]

        result = with_slices(result, evaluated({**sliced, "ci": asked["ci"]}), asked, at_level)
    labels = labels_of(entries, configuration.folding.label)
    if configuration.late is not None and labels.null:
        share = min((labels.neg + labels.pos) / labels.seen, result.labelled_share or 1)
        result = replace(result, basis="labelled rows", labelled_share=share)
    return replace(
        result, source=store_source("attribute", context.location.name, len(entries), selection, asked, options)
    )


def _attribute(nights: Nights, engine: Engine, asked: Mapping[str, Any], read: Run | None, place: str) -> Attribution:
    """The costliest groups of some nights; `read` is the run over their files, or None without data."""
    wanted = {"classes"} if asked["classes"] else set()
    wanted |= {"cluster"} if asked["label"] else set()
    request = nights.configuration.request(**ALL_STATES)
    kept = nights.states(engine, request)
    states = {group: kept[group, of] for group, of in list(kept) if group in wanted and of == asked["cluster"]}
    _check_kept(states, wanted, asked, nights)
    clusters, classes = ids_of(states, nights.names)
    if asked["label"]:
        check_labels(labels_of(nights.entries, nights.configuration.folding.label), place, ())
    requests = nights.configuration.wanted(request)
    requests = [r for r in requests if r.group in states and r.spec == states[r.group].spec]
    counted = [r.family.counted(r, states[r.group]) for r in requests]
    look_up = None
    if read is not None:
        for stored, ids in ((clusters, read.clusters), (classes, read.classes)):
            if stored is not None and ids is not None:
                stored.text = ids.text
        look_up = replace(read, files=replace(read.files, engine=engine)).look_up()
    found = attribute_states(
        engine, asked, states, clusters, classes, look_up, dropped=count_dropped(counted),
        skipped=tuple(lost for entry in nights.entries for lost in entry.left_out),
        options=record_options(asked, "attribute"),
    )  # fmt: skip
    shares = [one.share for one in counted if one.share is not None]
    share = min(shares, default=1)
    return found if share == 1 else replace(found, basis="labelled rows", labelled_share=share)


def _options(configuration: Configuration, given: Mapping[str, Any], data: object) -> dict[str, Any]:
    """The options of `streameval.attribute`, with those that the states of the store fix.

    Raises
    ------
    OptionError
        If the store cannot honour an option.
    """
    if given.get("changed_from"):
        raise OptionError(
            "a store keeps no table of two clusterings: name the data for changed_from (--changed-from)", "changed_from"
        )
    if given.get("examples") and data is None:
        raise OptionError(
            "examples are in the files of the nights, not in a store: name the data after the store", "examples"
        )
    if given.get("where") is not None:
        raise OptionError("states of a store cannot be filtered again: name the data for where (--where)", "where")
    if data is not None and not given.get("cluster"):
        raise OptionError(
            "data after the store hold texts of clusters and examples: leave them out, or name a column (--cluster)"
        )
    fixed = {name: given[name] for name in (*_FIXED, "unit") if given.get(name) is not None}
    configuration.asked(fixed)
    kept = {
        name: configuration.options[name] for name in ("pos_label", "nulls", "unlabelled", "cluster_scope", "where")
    }
    label = configuration.folding.label.column
    if not given.get("cluster"):
        return {**given, "label": label}
    kept["nulls"] = of_column(kept["nulls"], given["cluster"])
    classes = configuration.options["classes"]
    sized = kept["unlabelled"] == "size"
    tables = {name: given.get(name) for name in ("classes", "label")}
    if not any(tables.values()):
        tables = {"classes": classes, "label": None if sized and classes else label}
    if data is not None and tables["classes"] in configuration.statements.further:
        raise OptionError(
            f"data after the store lack {tables['classes']!r}, which arrived late: leave them out, or attribute the "
            "files with these labels (attribute DATA --labels)"
        )
    if sized and tables["label"]:
        raise OptionError(
            "impure clusters need the labels of all rows, and this store counts rows without one (unlabelled='size')",
            "label",
        )
    if not tables["label"]:
        kept |= {"pos_label": None, "unlabelled": "error"}
    elif given.get("aul_threshold") is None:
        kept["aul_threshold"] = max(1, of_column(configuration.options["aul_threshold"], str(given["cluster"])))
    return {**given, **kept, **tables}


def costs(
    context: StoreContext, configuration: Configuration, entry: Entry, usual: Sequence[Entry]
) -> tuple[Finding, ...]:
    """The clusters and classes of a night whose cost rose most compared with usual nights, from their states.

    A column is left out if the night, or all usual nights, lack its states or have labels of only one class.
    """
    findings: list[Finding] = []
    by_night = configuration.options["cluster_scope"] == "partition"  # ids are only valid within their night
    for of in configuration.options["cluster"] or ():
        night, before = (_costliest(context, of, some) for some in ([entry], () if by_night else usual))
        if night and (before or by_night):
            findings += cost_increases(of, night[0], before, configuration.options["classes"])
    return tuple(findings)


def _costliest(context: StoreContext, of: str, entries: Sequence[Entry]) -> list[Attribution]:
    """The costliest groups of each night that can be attributed."""
    attributions = []
    for entry in entries:
        with suppress(DataError, OptionError):
            attributions.append(
                attribute(context, None, None, {"partition": (entry.partition,)}, {"cluster": of, "top": DEEP})
            )
    return attributions


def _check_kept(states: Iterable[str], wanted: set[str], asked: Mapping[str, Any], nights: Nights) -> None:
    """Raise if the store lacks the states of a partition."""
    for group in sorted(wanted - set(states)):
        lacking = nights.lacking(group, asked["cluster"])
        what = (
            f"{asked['cluster']} against {asked['classes']}"
            if group == "classes"
            else f"clusters of {asked['cluster']}"
        )
        where = f" for {lacking[0]}{f' and {len(lacking) - 1} more' if lacking[1:] else ''}" if lacking else ""
        raise OptionError(
            f"the store does not keep {what}{where}; add it to the store (add), or name the data instead of the store"
        )


def _files(
    data: object, asked: Mapping[str, object], engine: Engine, configuration: Configuration, entries: Sequence[Entry]
) -> Run:
    """Plan the run over the files of these partitions; it is sent to a worker without data and engine.

    Raises
    ------
    OptionError
        If the data lack a partition, or have another number of rows in it than was folded.
    """
    run, filtered = Run.of(data, asked, engine), asked["where"] is not None
    names = [entry.partition for entry in entries if entry.rows or not filtered]
    scan = run.files.scan
    pieces = tuple(piece for piece in scan.pieces if piece.partition in names)
    folded = {entry.partition for entry in entries if entry.rows}  # files without rows have no pieces
    absent = sorted(folded - {piece.partition for piece in pieces})
    if absent:
        raise OptionError(
            f"{absent[0]}: the data named after the store lack this partition; name the files of all chosen partitions"
        )
    for entry in () if filtered else entries:  # the store does not know how many rows the filter left out
        own = [piece.rows for piece in pieces if piece.partition == entry.partition]
        if not entry.incomplete and sum(own) != entry.rows and min(own, default=0) >= 0:  # −1: not known
            raise OptionError(
                f"{entry.partition}: the data named after the store have {plural(sum(own), 'row')}, not the "
                f"{entry.rows:,} folded: they were changed since; fold the night again (replace), or name the files "
                "that were folded"
            )
    scan = configuration.widen_columns(replace(scan, pieces=pieces, rows=sum(piece.rows for piece in pieces)))
    files = replace(run.files, scan=scan, engine=None)  # type: ignore[arg-type]  # `_attribute` sets the engine
    return replace(run, data=None, files=files)
