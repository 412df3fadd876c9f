"""Drift of a score between nights, of a store or of files; `streameval.evaluation.alarms` has the statistics."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from streameval import scan
from streameval.engine.fold import merge
from streameval.errors import DataError, MissingInputError, OptionError, SchemaError
from streameval.evaluation.alarms import Drift, distances, with_error
from streameval.evaluation.families import FAMILIES
from streameval.evaluation.files import Files
from streameval.evaluation.protocol import MetricRequest
from streameval.states.grouped.groups import Grouped
from streameval.states.keyed.ids import id_type
from streameval.states.scores.blocks import BlockCounts, BlockSpec
from streameval.states.scores.counts import ScoreCounts, ScoreSpec
from streameval.states.scores.types import score_type
from streameval.store.nights.merge import spec_as_kept
from streameval.store.nights.partitions import check_dates, date_of, date_problem, is_between, span
from streameval.wording import few, unknown_column

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date

    from streameval.engine import Engine
    from streameval.engine.fold import Folded
    from streameval.engine.threads import ThreadEngine
    from streameval.states.protocol import State
    from streameval.store.nights.configuration import Configuration
    from streameval.store.nights.merge import Nights


def score_request(configuration: Configuration, score: str) -> tuple[MetricRequest, MetricRequest | None]:
    """The exact scores of a column and their blocks; raises `OptionError` if the store does not keep the column."""
    request = configuration.request(metrics=("roc_auc",), truncate=(), at=(), ci=0.95)
    columns = {w.of: w for w in configuration.wanted(request) if w.group == "score"}
    if score not in columns:
        raise OptionError(f"drift: {unknown_column(score, list(columns), 'the scores of the store are')}")
    blocks = columns[score].blocks(request.resampling) if configuration.options["unit"] else None
    return columns[score], blocks


def inexact(nights: Nights, request: MetricRequest) -> str:
    """Why the scores of some nights are not exact, with a remedy; empty if they are."""
    states = [(entry.partition, entry.state(request.group, request.of)) for entry in nights.entries]
    names = [name for name, state in states if state and spec_as_kept(request.spec, state) != request.spec]
    remedy = "compare nights that have them"
    return f"vacuum --keep turned the exact scores {request.of} of {few(names)} into bins; {remedy}" if names else ""


def drift_of(nights: Nights, against: Nights, engine: Engine, score: str, edges: Sequence[float] = ()) -> Drift:
    """How far the scores of some nights are from those of others; PSI between edges, or those of `against`.

    Memory: 16 bytes for each distinct score of either side.

    Raises
    ------
    OptionError
        If the store does not keep the column, or only bins of its scores.
    DataError
        If a side has no scores, or no longer has exact ones.
    """
    request, blocks = score_request(nights.configuration, score)
    states, unit = [], nights.configuration.options["unit"]
    for side in (nights, against):
        if lost := side.lacking(request.group, request.of):
            raise DataError(f"drift: no {score} in {few(lost)}")
        if why := inexact(side, request):
            raise DataError(f"drift: {why}")
        if not _labelled_share(side):
            raise DataError(f"drift: no row of {few(side.names)} has a label; compare its files (drift DATA)")
        states.append((side.merged(engine, request), side.names))
    drift, share = _exact(engine, score, states, unit, edges), min(map(_labelled_share, (nights, against)))
    drift = replace(drift, basis="labelled rows", labelled_share=share) if share < 1 else drift
    if blocks is None:
        remedy = "compare its files (drift DATA --unit)"
        remedy = remedy if nights.configuration.design else "add the unit to the store (add STORE DATA --unit COLUMN)"
        return replace(drift, reason=f"the store keeps no blocks of units: {remedy}")
    if lacking := [name for side in (nights, against) for name in side.lacking(blocks.group, blocks.of)]:
        return replace(
            drift, reason=f"no blocks of units in {few(lacking)}; fold them from their files (add STORE DATA)"
        )
    return _with_blocks(drift, *(_blocks(side.merged(engine, blocks)) for side in (nights, against)))


def _labelled_share(nights: Nights) -> float:
    """The share of rows that have a label; 1 if the labels are a sample, with which a store counts all rows."""
    labels = [entry.labels for entry in nights.entries]
    null, rest = sum(one.null for one in labels), sum(one.neg + one.pos for one in labels)
    return rest / (rest + null) if null and not nights.configuration.design else 1.0


def drift_of_files(
    data: object, engine: ThreadEngine, score: str, spans: Sequence[tuple[str | date | None, ...]], unit: str | None
) -> Drift:
    """How far the scores of some nights of files are from those of others.

    Parameters
    ----------
    data : files whose nights are in the names of their folders, see `streameval.evaluate`
    engine : folds both sides
    score, unit : the column, and that of the sampling unit; None for values alone
    spans : for both sides the first and the last date, or None

    Raises
    ------
    OptionError
        If an end of a span is no date, or an input has none.
    MissingInputError
        If a side has no partition, or no rows.
    """
    inputs = _date_inputs(data)
    sides = _nights([night for _, _, night in inputs], spans)
    chosen = [item for item, _, night in inputs if night in sides[0] | sides[1]]
    scanned = scan.plan(chosen, [score, *filter(None, [unit])], threads=engine.budget.threads)
    try:
        facts = score, score_type(scanned.schema.field(score).type, score)
        if unit is not None:
            id_type(scanned.schema.field(unit).type, unit)
    except SchemaError as error:
        raise SchemaError(f"{scanned.pieces[0].name}: {error}") from None
    exact, blocks = ScoreSpec(*facts, nan="drop"), BlockSpec(*facts, nan="drop", unit=unit)
    wanted = [MetricRequest(FAMILIES["score"], score, spec, ()) for spec in (exact, *[blocks] * (unit is not None))]
    night_of = {name: night for _, name, night in inputs}

    def fold(nights: set[str]) -> list[Folded]:
        pieces = tuple(piece for piece in scanned.pieces if night_of[piece.name] in nights)
        some = replace(scanned, pieces=pieces, rows=sum(piece.rows for piece in pieces))
        with engine.progress:
            return [Files.of(engine, some, None, None, skip=False).folding(wanted).fold()] if pieces else []

    both, states, named = fold(sides[0] & sides[1]), [], []
    for nights, others in (sides, sides[::-1]):
        named.append(sorted(nights, key=scan.natural))
        if not (folded := [*fold(nights - others), *both]):
            raise MissingInputError(f"drift: {few(named[-1])} {'have' if named[-1][1:] else 'has'} no rows")
        states.append(merge(folded).states)
    drift = _exact(engine, score, [(own[exact], names) for own, names in zip(states, named, strict=True)], unit)
    if unit is None:
        return replace(drift, reason="without a unit there are no p-values: name one (--unit)")
    return _with_blocks(drift, *(_blocks(own[blocks]) for own in states))


def _date_inputs(data: object) -> list[tuple[object, str, str]]:
    """The inputs, see `scan.placed`; raises `OptionError` if one has no date."""
    inputs = scan.place_inputs(data)
    for _, name, night in inputs:
        if not night:
            raise OptionError("drift compares nights by the dates of their folders or files, which tables have not")
        if not date_of(night):
            why = f"{date_problem(night)} in its folder or name, by which drift tells nights"
            raise OptionError(f"{name}: has {why}; leave it out, or move it to night=2026-01-31")
    return inputs


def _nights(names: Sequence[str], spans: Sequence[tuple[str | date | None, ...]]) -> list[set[str]]:
    """The names of the nights of both sides; see `drift_of_files`."""
    ends = [tuple(None if end is None else str(end) for end in pair) for pair in spans]
    since, until = ends[0]  # `ends_of` checks the others
    check_dates(since=since, until=until)
    sides = [{name for name in names if is_between(name, *pair)} for pair in ends]
    if not all(sides):
        raise MissingInputError(f"no partition has a date in this range; the data have {span(names)}")
    return sides


def _exact(
    engine: Engine,
    score: str,
    states: Sequence[tuple[State, Sequence[str]]],
    unit: str | None,
    edges: Sequence[float] = (),
) -> Drift:
    """The distances of two states of scores, each with the names of its nights."""
    sides = []
    for state, names in states:
        counts = state.total() if isinstance(state, Grouped) else state  # labels are a sample
        if not isinstance(counts, ScoreCounts):
            raise OptionError(f"drift: the store keeps bins of {score}, and drift needs its exact scores", "score")
        parts = [(part.scores, part.rows) for part in counts.parts(budget=engine.budget)]
        engine.budget.release_freed()
        if not parts:
            raise DataError(f"drift: there are no scores {score} in {few(names)}")
        scores, rows = (np.concatenate(each)[::-1] for each in zip(*parts, strict=True))
        sides.append((scores, rows))
    one, other = (int(rows.sum()) for _, rows in sides)
    ks, w1, psi, ends = distances(sides[0], sides[1], edges)
    return Drift(score, one, other, ks, w1, psi, unit=unit, edges=ends)


def _with_blocks(drift: Drift, one: BlockCounts, other: BlockCounts) -> Drift:
    """The drift with its sampling error, from the blocks of both sides."""
    together = one.merge(other)
    tables = []
    for state in (side.at_shift(together.shift) for side in (one, other)):
        table = np.zeros(together.table.shape[:2], np.int64)
        table[np.searchsorted(together.prefixes, state.prefixes)] = state.table.sum(axis=-1)
        tables.append(table)
    return with_error(drift, tables[0], tables[1], together.scores, str(drift.unit))


def _blocks(state: State) -> BlockCounts:
    if not isinstance(state, BlockCounts):
        raise OptionError("drift: the blocks of the store are not those of scores", "score")
    return state
