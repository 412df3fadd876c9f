"""The result of an evaluation: values, curves, tables and output formats."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from streameval._version import __version__
from streameval.errors import OptionError
from streameval.evaluation.drawing import Drawing
from streameval.evaluation.judging import judged
from streameval.metrics.catalogue import entry_of
from streameval.report.terminal import Shown, render
from streameval.results import Source, to_arrow
from streameval.saving import LINEAGE, Saved
from streameval.states.grouped.keys import UNIT_HASH
from streameval.wording import shell

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa
    from rich.console import RenderableType

    from streameval.engine import Engine
    from streameval.evaluation.intervals import Estimated
    from streameval.evaluation.slices import SlicedStates
    from streameval.metrics.resampling import Resampled
    from streameval.report.elements import Section
    from streameval.report.evaluation import Evidence
    from streameval.report.exports import Sample
    from streameval.report.values import Meaning
    from streameval.results import Judgement, LabelStratum, Scalar
    from streameval.states.protocol import State


_WORST = 5  # clusters and classes in each table of a page


@dataclass(frozen=True, repr=False)
class Evaluation(Drawing, Shown, Saved):
    """The result of an evaluation.

    Attributes
    ----------
    rows, positives : int
        Rows evaluated, and the positives among them; `positives` is None if no label was read, or labels are a sample.
    results : tuple of Scalar
        All results: of all rows, then of slices and differences.
    dropped : tuple of (reason, rows)
        Rows left out.
    skipped : tuple of (file, reason)
        Files left out: unreadable ones under ``on_error="skip"``, and those that are not Parquet.
    options : dict
        The given options that affect the results, by name.
    source : Source
        Where the results come from: data, files, and the command that repeats the run.
    estimates : sequence of Estimated
        The results of all rows with their replicates, in the order of `results`; empty without sampling intervals.
        Each has two estimates: `own` for its interval, and `paired` for differences from other columns and other
        evaluations.
    slice_estimates : sequence of Estimated
        The same for the results of slices, slice by slice.
    counts : tuple of Scalar
        ``rows``, ``positives`` and ``prevalence`` with their sampling intervals, of a sample of labels ``prevalence``
        alone; empty without intervals.
    ci_level : float
        Level of the sampling intervals; None without them.
    labels : dict of str to int
        What became of labels from another table; empty without one. Statements that were ``read``; of these
        ``duplicates``, ``superseded`` by a later one, with ``null_ids``, or ``later`` than `labels_as_of`. Ids whose
        latest statements are ``withdrawn``, in ``conflicts``, ``used`` for rows, or ``orphans`` without a row. Then
        ``labelled_rows``, and ``rows_without_id``. Of a sample of labels, and of nights, ``labelled_rows`` and
        ``labelled_positives``.
    label_strata : tuple of LabelStratum
        The strata of a sample of labels, with the rows that the design weights of each sum up to; else empty.
    coarser_units : dict of str to float
        By which cluster and class columns the standard error is larger than by `unit`, and how many times: if rows
        depend on each other through one of them, intervals by `unit` are too narrow (for the first score).
    judgements : tuple of Judgement
        Judgements of rules, see `judge`.
    unit_hash : int
        Version of the hash that assigns units to blocks; evaluations of different versions cannot be compared.

    Examples
    --------
    >>> import pyarrow as pa
    >>> data = pa.table({"label": [0, 0, 1, 1], "score": [0.1, 0.4, 0.35, 0.8]})
    >>> from streameval import evaluate
    >>> result = evaluate(data, score="score")
    >>> result.value("roc_auc"), result.interval("roc_auc")
    (0.75, (0.75, 0.75))
    """

    rows: int
    positives: int | None
    results: tuple[Scalar, ...]
    dropped: tuple[tuple[str, int], ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()
    _states: dict[tuple[str, str], State] = field(default_factory=dict, compare=False)
    _engine: Engine | None = field(default=None, compare=False)
    _threshold: Any = field(default=1, compare=False)
    options: dict[str, Any] = field(default_factory=dict, compare=False)
    source: Source = field(default_factory=Source, compare=False)
    _estimates: Sequence[Estimated] = field(default=(), compare=False)
    ci_level: float | None = field(default=None, compare=False)
    _resampled: Mapping[tuple[str, str], Resampled] = field(default_factory=dict, compare=False)
    slice_estimates: Sequence[Estimated] = field(default=(), compare=False)
    counts: tuple[Scalar, ...] = field(default=(), compare=False)
    _more: Callable[[Evaluation], Sequence[Section]] | None = field(default=None, compare=False)
    judgements: tuple[Judgement, ...] = field(default=(), compare=False)
    _sliced: SlicedStates | None = field(default=None, compare=False)
    unit_hash: int = field(default=UNIT_HASH, compare=False)
    labels: dict[str, int] = field(default_factory=dict, compare=False)
    label_strata: tuple[LabelStratum, ...] = field(default=(), compare=False)
    coarser_units: dict[str, float] = field(default_factory=dict, compare=False)
    _again: Callable[[], Evaluation] | None = field(default=None, compare=False)

    def __reduce__(self) -> tuple[Callable[..., Evaluation], tuple[object, ...]]:
        """Pickle results and estimates, but not the states: curves cannot be computed in another process."""
        names = (
            "options",
            "source",
            "ci_level",
            "slice_estimates",
            "counts",
            "judgements",
            "unit_hash",
            "labels",
            "label_strata",
            "coarser_units",
        )
        made = partial(Evaluation, **{name: getattr(self, name) for name in names}, _estimates=tuple(self.estimates))
        return made, (self.rows, self.positives, self.results, self.dropped, self.skipped)

    def render(self, *, plain: bool = False) -> RenderableType:
        """The tables of a terminal; plain ones have no rules."""
        return render(self, plain=plain)

    def _repr_html_(self) -> str:
        """The values as a small table, for a notebook."""
        from streameval.report.elements import html_of_tables
        from streameval.report.evaluation import headline_tables

        return html_of_tables(headline_tables(self, self.meanings()))

    def judge(self, rules: str | Sequence[str] | Mapping[str, str]) -> Evaluation:
        """Judge the evaluation by rules; returns a copy with `judgements`. See `streameval.rules`.

        Parameters
        ----------
        rules : texts of rules, or a mapping from names to texts

        Raises
        ------
        OptionError
            If a rule is malformed, refers to nights, or needs a metric or a sampling interval that was not computed.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from streameval import evaluate
        >>> data = pa.table({"label": [0, 0, 1, 1], "score": [0.1, 0.4, 0.35, 0.8]})
        >>> result = evaluate(data, score="score").judge(["roc_auc >= 0.7", "rows >= 100"])
        >>> [one.outcome for one in result.judgements], result.passed
        (['passed', 'failed'], False)
        """
        counts = self.rows, self.positives
        judgements = judged(
            rules, counts, partial(self._find, slice=None), self._estimate, self.results, self.slice_estimates
        )
        return replace(self, judgements=tuple(judgements))

    @property
    def passed(self) -> bool:
        """Whether every rule of `judgements` passed."""
        return all(one.passed for one in self.judgements)

    def to_dict(self) -> dict[str, object]:
        """Plain values, as in the command line's JSON.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from streameval import evaluate
        >>> data = pa.table({"label": [0, 0, 1, 1], "score": [0.1, 0.4, 0.35, 0.8]})
        >>> found = evaluate(data, score="score", metrics="roc_auc").to_dict()
        >>> found["rows"], found["results"][0]["value"]
        (4, 0.75)
        """
        return {
            "streameval": __version__,
            "options": self.options,
            **({"timezones": dict(self.source.zones)} if self.source.zones else {}),
            **({} if self.ci_level is None else {"unit_hash": self.unit_hash}),
            "rows": self.rows,
            "positives": self.positives,
            **({"labels": self.labels} if self.labels else {}),
            **({"label_strata": [one._asdict() for one in self.label_strata]} if self.label_strata else {}),
            **({"coarser_units": self.coarser_units} if self.coarser_units else {}),
            **({"counts": [count.to_dict() for count in self.counts]} if self.counts else {}),
            "results": [result.to_dict() for result in self.results],
            "dropped": [{"reason": reason, "rows": rows} for reason, rows in self.dropped],
            "skipped": [{"partition": name, "reason": reason} for name, reason in self.skipped],
            **({"rules": [one.to_dict() for one in self.judgements]} if self.judgements else {}),
        }

    def to_arrow(self) -> pa.Table:
        """A table with one row per result; see `streameval.results.to_arrow`.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from streameval import evaluate
        >>> data = pa.table({"label": [0, 0, 1, 1], "score": [0.1, 0.4, 0.35, 0.8]})
        >>> evaluate(data, score="score", metrics="roc_auc").to_arrow().select(["metric", "value"]).to_pylist()
        [{'metric': 'roc_auc', 'value': 0.75}]
        """
        return to_arrow(self.results)

    def scalars(self) -> dict[str, float]:
        """All values as a flat mapping, for trackers of experiments and for files of settings.

        Names consist of ``A-Za-z0-9_./-`` alone: the metric, the column and the slice, such as
        ``tpr_at_fpr_0.001/score/country_DE``, and ``/ci_lower`` and ``/ci_upper`` after the metric for the ends of its
        interval, ``/labelled`` and ``/strata`` for those of a sample of labels; ``rows`` and ``positives`` count all
        rows. Undefined values are NaN. With MLflow:
        ``mlflow.log_metrics(evaluation.scalars())``.

        Returns
        -------
        dict of str to float

        Examples
        --------
        >>> import pyarrow as pa
        >>> from streameval import evaluate
        >>> data = pa.table({"label": [0, 0, 1, 1], "score": [0.1, 0.4, 0.35, 0.8]})
        >>> evaluate(data, score="score", metrics="tpr@*", at="fpr=0.001").scalars()
        {'rows': 4.0, 'positives': 2.0, 'tpr_at_fpr_0.001/score': 0.5}
        """
        from streameval.report.exports import flat, samples_of

        return flat([*self._counted(), *samples_of(self.results)])

    def exports(self) -> Mapping[str, Callable[[], str]]:
        """What makes the Prometheus text format and, with judgements, the assertions of OpenLineage."""
        from streameval.report import exports

        rules = exports.samples_of_rules(self.judgements)
        about = {name: meaning.line for name, meaning in self.meanings().items()}
        samples = [*self._counted(), *exports.samples_of(self.results), *rules]
        texts = {"prom": lambda: exports.prometheus(samples, about)}
        lineage = partial(exports.openlineage, self.judgements, self.source.data, "evaluate", datetime.now(UTC))
        return {**texts, LINEAGE: lineage} if self.judgements else texts

    def _counted(self) -> list[Sample]:
        from streameval.report.exports import Sample

        rows = Sample("rows", {}, self.rows, "Rows that were evaluated.")
        return [rows] if self.positives is None else [rows, Sample("positives", {}, self.positives, "Positive rows.")]

    def to_html(self) -> str:
        """The text of a self-contained HTML page with values, curves and tables.

        The states of the evaluation are read once more for the curves.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from streameval import evaluate
        >>> data = pa.table({"label": [0, 0, 1, 1], "score": [0.1, 0.4, 0.35, 0.8]})
        >>> "ROC AUC of score is 0.7500." in evaluate(data, score="score").to_html()
        True
        """
        from streameval.report.elements import html_of
        from streameval.report.evaluation import evaluation_page

        return html_of(evaluation_page(self, self.evidence()))

    def evidence(self) -> Evidence:
        """The content of a page in addition to the results: curves, distributions, meanings, costs and the source."""
        from streameval.report.evaluation import Evidence

        meanings = self.meanings()
        names = ["roc", "precision_recall", "gain", "lift", "purity"]
        names += ["reliability", "corp"] * any(known.subject == "calibration" for known in meanings.values())
        distributions = []
        for column in self.columns("score"):
            with suppress(OptionError):
                distributions.append(self.distribution(column))
        more = self._more(self) if self._more is not None else ()
        points: list[dict[str, Any]] = []
        if any(r.threshold is not None and r.slice is None and r.baseline is None for r in self.results):
            with suppress(OptionError):
                points = self.operating_points().to_pylist()
        rules = "".join(f" --rule {shell([one.text])}" for one in self.judgements)
        source = replace(self.source, command=f"{self.source.command}{rules}") if self.source.command else self.source
        curves, costs = self.curves(*names), self.attributions(_WORST)
        return Evidence(curves, distributions, points, meanings, source, more, self.judgements, costs)

    def meanings(self) -> dict[str, Meaning]:
        """The meaning, better end, family and subject of each metric in the catalogue.

        Examples
        --------
        >>> import pyarrow as pa
        >>> from streameval import evaluate
        >>> data = pa.table({"label": [0, 0, 1, 1], "score": [0.1, 0.4, 0.35, 0.8]})
        >>> evaluate(data, score="score", metrics="roc_auc").meanings()["roc_auc"].better
        'higher'
        """
        from streameval.report.values import Meaning

        rows = {result.metric: entry_of(result.metric) for result in self.results}
        return {n: Meaning(row.meaning, row.better, row.family, row.subject) for n, row in rows.items() if row}
