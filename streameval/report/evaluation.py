"""The page of an evaluation: main findings, values, curves, slices, and what was read."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

from streameval.report import pictures
from streameval.report.attribution import costs_section
from streameval.report.elements import Cell, Head, Page, Row, Section, Table, Text, last_part, read_section
from streameval.report.nights import rules_passed, rules_section
from streameval.report.pictures import bands_said, curve_figures
from streameval.report.terminal import by_slicing, label_counts, rests, rows_said
from streameval.report.values import (
    classes_said,
    coarser_said,
    cut_said,
    describe_labelled,
    difference_table,
    differences_said,
    digits,
    join_few,
    list_compared,
    means,
    number,
    point_table,
    sampling_said,
    slice_cells,
    slices_said,
    strata_said,
    value_cell,
    value_tables,
    values_said,
    worst_first,
    zones_said,
)
from streameval.results import CENSUS, Source, own_order
from streameval.wording import plural

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streameval.report.attribution import Attributed
    from streameval.report.elements import Block
    from streameval.report.terminal import Found
    from streameval.report.values import Meaning
    from streameval.results import Curve, Distribution, Judgement, Scalar


MOST = 200  # slices of a slicing on a page
_WIDE, _WIDE_ENDS = 8, 6  # columns of values in a table, and of values with intervals
_CUT = "share of the rows in clusters that have rows of other slices as well; only the rows of the slice count here"


def slice_section(results: Sequence[Scalar], meanings: Mapping[str, Meaning], source: Source) -> Section:
    """Every slicing, as a picture of its largest slices and as a table."""
    store = source.nights > 0
    plain = [r for r in results if r.baseline is None or r.from_rest]
    whole = {(r.metric, r.of): r for r in plain if r.slice is None}
    blocks: list[Block] = []
    for i, (by, slices) in enumerate(by_slicing(plain).items()):
        between = worst_first(r for r in results if r.baseline and not r.from_rest and ",".join(r.slice or ()) == by)
        if between:
            left = len(between) - MOST
            note = f"Worst first; p is adjusted for all differences by slice. {_more(left)}".rstrip()
            blocks.append(difference_table(between[:MOST], f"By {by}, differences", note))
            new = list_compared(between[0])[0]  # its slices decide, not those of the baseline
            slices = [sorted(row, key=lambda one: one.of != new) for row in slices]
        if len(slices) > 1:
            blocks += pictures.slices(plain, by, slices, f"slices-{i}")
        blocks += _slice_tables(by, slices, whole, meanings)
        blocks += [Text(f"{said}.", "note") for said in zones_said(by, source)]
        if differences := rests(results, by):
            note = _more(len(differences) - MOST)
            blocks.append(difference_table(differences[:MOST], f"By {by}, against all other rows", note))
            blocks.append(Text(sampling_said(differences, store=store), "note"))
    return Section("slices", "Slices", tuple(blocks))


def _more(left: int) -> str:
    return f"--out FILE.csv (or .parquet, .json) has {plural(left, 'more difference')}." if left > 0 else ""


def _slice_tables(
    by: str,
    slices: Sequence[Sequence[Scalar]],
    whole: Mapping[tuple[str, str | None], Scalar],
    meanings: Mapping[str, Meaning],
) -> list[Block]:
    """One row per slice, in the slices' own order, such as that of hours, or sorted by harm.

    There is a table for each column if one would be too wide. The harm of a slice is its shortfall against the value of
    all rows, times its number of rows. If the first metric has no better end, slices are sorted by rows. If there are
    more slices than a page can hold, it shows those with the most rows and says how many are not shown.
    """
    first = slices[0]
    shown = sorted(slices, key=_rows, reverse=True)[:MOST]
    ends = any(result.ci_lower is not None for row in shown for result in row)
    most, notes, leading = _WIDE_ENDS if ends else _WIDE, [], first[0]
    by_column: dict[str | None, list[int]]
    by_column = {one.of: [i for i, other in enumerate(first) if other.of == one.of][:most] for one in first}
    if len(first) <= most:
        by_column = {"": list(range(len(first)))}
    better = meanings[leading.metric].better if leading.metric in meanings else None
    if order := own_order([row[0].slice or {} for row in shown]):
        shown = [shown[i] for i in order]
    elif better is not None:
        base, sign = whole.get((leading.metric, leading.of)), 1 if better == "higher" else -1

        def harm(row: Sequence[Scalar]) -> float:
            """Lowest of all without a value."""
            result = row[0]
            if result.value != result.value:
                return float("-inf")
            return 0.0 if base is None else sign * (base.value - result.value) * result.rows

        shown.sort(key=harm, reverse=True)
        what = f"{leading.metric} of {leading.of}" if leading.of else leading.metric
        notes.append(f"Sorted by cost: rows × the shortfall of {what} from the value of all rows.")
    if len(slices) > len(shown):
        hidden = f"{plural(len(slices) - len(shown), 'slice')} not shown: --out FILE.csv (or .parquet, .json) has all."
        notes.append(f"The {len(shown)} slices with the most rows; {hidden}")
    if left := len(first) - sum(map(len, by_column.values())):
        notes.append(f"--out FILE.csv has {plural(left, 'more value')} of each slice.")
    tables = [_slice_table(f"{of} by {by}" if of else f"By {by}", shown, at, meanings) for of, at in by_column.items()]
    return [*tables, *[Text(" ".join(notes), "note")] * bool(notes)]


def _slice_table(
    caption: str, shown: Sequence[Sequence[Scalar]], at: Sequence[int], meanings: Mapping[str, Meaning]
) -> Table:
    """One row per slice, with the values at some places."""
    first = shown[0]
    counts = [digits(row[i].value for row in shown) for i in at]
    cut = next((i for i in at if first[i].cut_share is not None), None)
    rows = []
    for name, row in zip(slice_cells([row[0].slice for row in shown]), shown, strict=True):
        cells = [Cell(f"{size:,}", order=size) for size in (_rows(row), max(r.positives or 0 for r in row))]
        if cut is not None:
            share = row[cut].cut_share or 0.0
            cells.append(Cell(f"{share:.1%}", order=share))
        cells += [value_cell(row[i], places) for i, places in zip(at, counts, strict=True)]
        rows.append(Row(name, tuple(cells)))
    heads = [*map(Head, first[0].slice or ()), Head("rows", number=True), Head("positive", number=True)]
    heads += [] if cut is None else [Head("cut", number=True, about=_CUT, note=first[cut].of or "")]
    for result in (first[i] for i in at):
        about = meanings[result.metric].line if result.metric in meanings else ""
        heads.append(Head(result.metric, number=True, about=about, note=result.of or ""))
    return Table(caption, tuple(heads), tuple(rows))


def _rows(row: Sequence[Scalar]) -> int:
    return max(result.rows for result in row)


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
    judgements: Sequence[Judgement] = ()
    attributions: Sequence[Attributed] = ()


def evaluation_page(evaluation: Found, evidence: Evidence) -> Page:
    """The page of an evaluation."""
    whole = [result for result in evaluation.results if result.slice is None]
    values = [result for result in whole if result.baseline is None]
    differences = [result for result in whole if result.baseline is not None]
    plain = [result for result in evaluation.results if result.baseline is None or result.from_rest]
    meanings, store = evidence.meanings, evidence.source.nights > 0
    subjects: dict[str, list[Scalar]] = {"": [], _CALIBRATION: [], _THRESHOLDS: []}
    for result in values:
        meaning = meanings.get(result.metric)
        subjects[meaning.subject if meaning and meaning.subject in subjects else ""].append(result)
    colours = _colours(values, evidence)
    results: list[Block] = [*value_tables(subjects[""], meanings)]
    if differences:
        results = [*pictures.differences(differences), difference_table(differences), *results]
    if said := sampling_said([*values, *differences], evaluation.results, store=store):
        results.append(Text(said, "note"))
    if not evidence.curves and not evidence.distributions:
        results.append(Text("There is nothing to draw: these results have no curves here.", "note"))
    curves: list[Block] = [*curve_figures(evidence.curves, colours, values), *pictures.purity(evidence.curves)]
    curves += [Text(bands, "note")] if (bands := bands_said(evidence.curves)) else []
    calibration = value_tables(subjects[_CALIBRATION], meanings)
    points: list[Block] = [*value_tables(subjects[_THRESHOLDS], meanings)]
    points += [point_table(evidence.points)] if evidence.points else []
    points += pictures.thresholds(plain, evidence.curves, {r.of: None for r in subjects[_THRESHOLDS] if r.of})
    sections = (
        Section("results", "Results", tuple(results)),
        Section("curves", "Curves", tuple(curves)),
        Section(_CALIBRATION, "Calibration", (*calibration, *pictures.calibration(evidence.curves, colours))),
        Section("distributions", "Score distributions", tuple(pictures.distributions(evidence.distributions))),
        Section("points", "Operating points", tuple(points)),
        slice_section(evaluation.results, meanings, evidence.source),
        costs_section(evidence.attributions),
        *evidence.more,
        rules_section(evidence.judgements, evidence.source),
        read_section(evaluation, evidence.source, _notes(evaluation), label_counts(evaluation)),
    )
    return Page(
        _title(values, evidence.source),
        rows_said(evaluation),
        (*_lead(values, differences, evaluation.results, meanings), *rules_passed(evidence.judgements)),
        sections,
    )


def _title(values: Sequence[Scalar], source: Source) -> str:
    """The columns and the data."""
    columns = list(dict.fromkeys(r.of for r in values if r.of and r.label_class not in ("macro", "weighted", "micro")))
    on = f" on {last_part(source.data[0])}" if source.data else ""
    return f"Evaluation of {join_few(columns)}{on}" if columns else f"Evaluation{on}"


def headline_tables(evaluation: Found, meanings: Mapping[str, Meaning]) -> list[Table]:
    """Only the tables of values, for a notebook."""
    values = [result for result in evaluation.results if result.slice is None and result.baseline is None]
    return value_tables(values, meanings)


def _colours(values: Sequence[Scalar], evidence: Evidence) -> dict[str, int]:
    """The series number of each column, from 0 for scores and from 0 for clusters.

    A column can have curves without values, if no requested metric belongs to it.
    """
    kinds: dict[str, bool] = {}
    for result in values:
        meaning = evidence.meanings.get(result.metric)
        if result.of is not None:
            kinds.setdefault(result.of, meaning is not None and meaning.family in ("cluster", "classes"))
    for curve in evidence.curves:
        kinds.setdefault(curve.of or "", curve.name in ("lift", "purity"))
    numbers = {False: count(), True: count()}
    return {column: next(numbers[clustered]) for column, clustered in kinds.items()}


def _lead(
    values: Sequence[Scalar], differences: Sequence[Scalar], sliced: Sequence[Scalar], meanings: Mapping[str, Meaning]
) -> list[Text]:
    """The main findings: verdicts if there are any, else the first metric of each kind of column."""
    if differences:
        findings = *differences_said(differences), *slices_said(sliced), *_calibration_said(values)
        findings = *findings, *describe_labelled(differences)
        return [Text(sentence, "lead") for sentence in findings]
    kinds: dict[str, dict[str, Scalar]] = {}
    firsts: dict[str, str] = {}
    for result in values:
        meaning = meanings.get(result.metric)
        kind = meaning.family if meaning else ""
        if firsts.setdefault(kind, result.metric) == result.metric:
            kinds.setdefault(kind, {})[result.of or ""] = result
    sentences = [
        said(by_of, meanings.get(firsts[kind]))
        for kind, by_of in kinds.items()
        for said in (classes_said if any(one.label_class for one in by_of.values()) else values_said,)
        if kind != "sketch"
    ]
    if not sentences:
        said = "These are quantiles alone: nothing was compared with labels." if values else "No metric was computed."
        return [Text(said, "lead")]
    lead = [Text(" ".join((*sentences, *_calibration_said(values), *describe_labelled(values))), "lead")]
    if not any(result.ci_level is not None for result in values):
        several = max(map(len, kinds.values())) > 1
        unknown = "whether a difference would hold on other data" if several else "how much it varies with the data"
        lead.append(Text(f"These values describe these rows. {unknown.capitalize()} needs intervals: --ci.", "note"))
    return lead


def _calibration_said(values: Sequence[Scalar]) -> list[str]:
    """How far scores are from probabilities; a Brier score is mostly about discrimination."""
    names = {"corp.mcb": "miscalibration", "ece": "ECE", "calibration_slope": "slope"}
    by_column: dict[str, list[str]] = {}
    for one in values:
        if one.metric in names and one.value == one.value:
            by_column.setdefault(str(one.of), []).append(f"{names[one.metric]} {number(one.value)}")
    return [f"Calibration of {of}: {', '.join(facts)}." for of, facts in by_column.items() if facts[1:]]


def _notes(evaluation: Found) -> list[str]:
    """Notes on the exactness of the values."""
    results = [result for result in evaluation.results if result.value == result.value]
    exact = sum(result.exact for result in results)
    certain = sum(not result.exact and result.lower == result.lower for result in results)
    notes = [f"{plural(exact, 'value')} exact"] if exact else []
    notes += [f"{plural(certain, 'value')} approximate, with bounds that contain the exact one"] * bool(certain)
    rest = len(results) - exact - certain - sum(result.design == CENSUS for result in results)
    notes += [*strata_said(evaluation.label_strata), *coarser_said(evaluation.coarser_units)]
    notes += cut_said(results, evaluation.options.get("weight"))
    notes += list(means(evaluation.results, evaluation.options.get("mean_weight", "rows")))
    return notes + [f"{plural(rest, 'estimate')} of a sample"] * bool(rest)
