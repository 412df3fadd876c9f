"""The page of an evaluation: main findings, values, curves, slices, and what was read."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from streameval.report import pictures
from streameval.report.attribution import costs_section
from streameval.report.curves import bands_said, curve_figures
from streameval.report.elements import Figure, Page, Section, Text
from streameval.report.headline import difference_table, point_table, value_tables
from streameval.report.provenance import read_section
from streameval.report.rules import rules_said, rules_section
from streameval.report.sentences import differences_said, values_said
from streameval.report.slices import slice_section
from streameval.report.terminal.notes import means, sampling_said
from streameval.results import Source
from streameval.wording import plural

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streameval.report.elements import Block, Table
    from streameval.report.losses import Attributed
    from streameval.report.rules import Judged
    from streameval.report.terminal import Found
    from streameval.report.values import Meaning
    from streameval.results import Curve, Distribution, Scalar

_CALIBRATION, _THRESHOLDS = "calibration", "thresholds"


@dataclass(frozen=True)
class Evidence:
    """The content of a page in addition to the results.

    Attributes
    ----------
    curves : curves to draw
    distributions : distributions of scores to draw
    points : rows of `streameval.Evaluation.operating_points`
    judgements : outcomes of rules
    attributions : the costs of clusters and classes, for each cluster column
    meanings : description of each metric, from the catalogue
    source : where the results come from
    more : sections to put before "What was read", such as the nights of a store
    """

    curves: Sequence[Curve] = ()
    distributions: Sequence[Distribution] = ()
    points: Sequence[Mapping[str, Any]] = ()
    meanings: Mapping[str, Meaning] = field(default_factory=dict)
    source: Source = field(default_factory=Source)
    more: Sequence[Section] = ()
    judgements: Sequence[Judged] = ()
    attributions: Sequence[Attributed] = ()


def evaluation_page(found: Found, evidence: Evidence) -> Page:
    """The page of an evaluation."""
    whole = [result for result in found.results if result.slice is None]
    values = [result for result in whole if result.baseline is None]
    differences = [result for result in whole if result.baseline is not None]
    by_subject = _by_subject(values, evidence.meanings)
    plain = [result for result in found.results if result.baseline is None or result.from_rest]
    drawn = pictures.Drawn(tuple(plain), tuple(evidence.curves))
    colours = _colours(values, evidence)
    calibration = value_tables(by_subject[_CALIBRATION], evidence.meanings)
    curves: list[Text | Figure] = [
        *curve_figures(evidence.curves, colours),
        *pictures.purity(evidence.curves),
        *([Text(said, "note")] if (said := bands_said(evidence.curves)) else []),
    ]
    store = evidence.source.nights > 0
    results = _headline(by_subject[""], differences, evidence.meanings, store=store)
    if not evidence.curves and not evidence.distributions:
        results.append(Text("There is nothing to draw: these results have no curves here.", "note"))
    sections = (
        Section("results", "Results", tuple(results)),
        Section("curves", "Curves", tuple(curves)),
        Section(_CALIBRATION, "Calibration", (*calibration, *pictures.calibration(evidence.curves, colours))),
        Section("distributions", "Score distributions", tuple(pictures.distributions(evidence.distributions))),
        Section("points", "Operating points", tuple(_points(by_subject[_THRESHOLDS], drawn, evidence))),
        slice_section(plain, evidence.meanings, drawn, store=store),
        costs_section(evidence.attributions),
        *evidence.more,
        rules_section(evidence.judgements),
        read_section(found, evidence.source, _notes(found), found.positives),
    )
    name = evidence.source.data[0].rstrip("/").rpartition("/")[2] if evidence.source.data else ""
    share = (
        f", {found.positives:,} positive ({found.positives / found.rows:.2%})"
        if found.rows and found.positives is not None
        else ""
    )
    return Page(
        f"Evaluation of {name}" if name else "Evaluation",
        f"{plural(found.rows, 'row')}{share}",
        (*_lead(values, differences, evidence.meanings), *rules_said(evidence.judgements)),
        sections,
    )


def _points(values: Sequence[Scalar], drawn: pictures.Drawn, evidence: Evidence) -> list[Block]:
    """Operating points, the 2×2 table at each, and the values at other thresholds."""
    columns = list(dict.fromkeys(result.of for result in values if result.of))
    tables = value_tables(values, evidence.meanings)
    counted = [point_table(evidence.points)] if evidence.points else []
    return [*tables, *counted, *pictures.thresholds(drawn, columns)]


def headline_tables(found: Found, meanings: Mapping[str, Meaning]) -> list[Table]:
    """Only the tables of values, for a notebook."""
    values = [result for result in found.results if result.slice is None and result.baseline is None]
    return value_tables(values, meanings)


def _by_subject(values: Sequence[Scalar], meanings: Mapping[str, Meaning]) -> dict[str, list[Scalar]]:
    """Values by subject: calibration, thresholds, and all others."""
    groups: dict[str, list[Scalar]] = {"": [], _CALIBRATION: [], _THRESHOLDS: []}
    for result in values:
        known = meanings.get(result.metric)
        groups[known.subject if known and known.subject in groups else ""].append(result)
    return groups


def _headline(
    values: Sequence[Scalar], differences: Sequence[Scalar], meanings: Mapping[str, Meaning], *, store: bool
) -> list[Block]:
    tables: list[Block] = [*value_tables(values, meanings)]
    if differences:
        tables = [*pictures.differences(differences), difference_table(differences), *tables]
    said = sampling_said([*values, *differences], store=store)
    return [*tables, Text(said, "note")] if said else tables


def _colours(values: Sequence[Scalar], evidence: Evidence) -> dict[str, int]:
    """The series number of each column, from 0 for scores and from 0 for clusters.

    A column can have curves without values, if no requested metric belongs to it.
    """
    kinds: dict[str, bool] = {}
    for result in values:
        known = evidence.meanings.get(result.metric)
        if result.of is not None:
            kinds.setdefault(result.of, known is not None and known.family in ("cluster", "classes"))
    for curve in evidence.curves:
        kinds.setdefault(curve.of or "", curve.name in ("lift", "purity"))
    counts = {False: itertools.count(), True: itertools.count()}
    return {column: next(counts[clustered]) for column, clustered in kinds.items()}


def _lead(values: Sequence[Scalar], differences: Sequence[Scalar], meanings: Mapping[str, Meaning]) -> list[Text]:
    """The main findings: verdicts if there are any, else the first metric of each kind of column."""
    if differences:
        return [Text(sentence, "lead") for sentence in differences_said(differences)]
    kinds: dict[str, dict[str, Scalar]] = {}
    firsts: dict[str, str] = {}
    for result in values:
        known = meanings.get(result.metric)
        kind = known.family if known else ""
        if firsts.setdefault(kind, result.metric) == result.metric:
            kinds.setdefault(kind, {})[result.of or ""] = result
    told = [values_said(found, meanings.get(firsts[kind])) for kind, found in kinds.items() if kind not in ("sketch",)]
    if not told:
        said = "These are quantiles alone: nothing was compared with labels." if values else "No metric was computed."
        return [Text(said, "lead")]
    lead = [Text(" ".join(told), "lead")]
    if not any(result.ci_level is not None for result in values):
        several = max(map(len, kinds.values())) > 1
        unknown = "whether a difference would hold on other data" if several else "how much it varies with the data"
        lead.append(Text(f"These values describe these rows. {unknown.capitalize()} needs intervals: --ci.", "note"))
    return lead


def _notes(found: Found) -> list[str]:
    """Notes on the exactness of the values."""
    results = [result for result in found.results if result.value == result.value]
    exact = sum(result.exact for result in results)
    certain = sum(not result.exact and result.lower == result.lower for result in results)
    notes = [f"{plural(exact, 'value')} exact"] if exact else []
    notes += [f"{plural(certain, 'value')} approximate, with bounds that contain the exact one"] * bool(certain)
    rest = len(results) - exact - certain
    notes += list(means(found.results, found.options.get("mean_weight", "rows")))
    return notes + [f"{plural(rest, 'estimate')} of a sample"] * bool(rest)
