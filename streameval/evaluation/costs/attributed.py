"""The result of an attribution, and its output formats."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streameval._version import __version__
from streameval.errors import OptionError
from streameval.report.terminal import Shown
from streameval.results import Source
from streameval.saving import AsJson, save, write_whole

if TYPE_CHECKING:
    import os

    import pyarrow as pa
    from rich.console import RenderableType


TABLES = ("merges", "splits", "impure", "unclustered", "slices")


@dataclass(frozen=True, repr=False)
class Attribution(Shown, AsJson):
    """The clusters, classes and slices that cost most, largest cost first.

    A table is None if its input was not named: `merges` and `splits` need classes, `slices` a score and slicing
    columns, `impure` and `unclustered` a label. Ids have the type of their column, widened to 64 bits; in `largest` the
    id is null for rows without one.

    Attributes
    ----------
    rows : int
        Rows in the table of clusters and classes, or in clusters.
    merges : pa.Table
        Clusters with several classes: `cluster, rows, classes, largest` (list of {class, rows}), `false_pairs, share`
        (of all false pairs), `gain` (by how much `metric` rises if this cluster alone is split along its classes),
        `running_share`.
    splits : pa.Table
        Classes in several clusters: `class, rows, clusters, largest` (list of {cluster, rows}), `missed_pairs, share,
        gain` (if the clusters that hold nothing else are joined), `running_share`.
    impure : pa.Table
        Clusters above the threshold that contain negatives: `cluster, rows, positives, lost` (area under the lift
        curve), `share, running_share`.
    unclustered : pa.Table
        Positives in clusters at or below the threshold: `size, clusters, positives`.
    totals : dict
        `false_pairs, missed_pairs, lost` of all groups, including those not shown; the numbers of groups
        (`merged_clusters`, `split_classes`, `impure_clusters`); and `unchanged_rows`, the rows of clusters that equal
        one class.
    metric : str
        The metric of the gains; None without classes.
    dropped, skipped : tuple
        (reason, rows) and (file, reason) left out.
    options : dict
        The given options that affect the result.
    slices : pa.Table
        Slices whose `slice_metric` is worse than that of all rows: the slicing columns, `rows, value, ci_lower,
        ci_upper, effective_units, freedom, shortfall`, by descending shortfall × rows. With several slicings, the
        column `by` names the slicing of each row, and columns of the others are null. `totals` then has `whole` (the
        value of all rows), `slices_below` (intervals shown that lie wholly on its worse side), `slices`, and
        `slices_left_out`: slices without a value (`slices_without_value`) or with fewer than `slices_least_units`
        effective units.
    slice_metric : str
        The metric of the slices, None without them.
    labels : dict of str to int
        What became of labels from another table, as in `streameval.Evaluation`; empty without one.
    basis : str
        ``labelled rows`` if late labels lack some rows: tables that need labels are of the others alone, no estimates.
    labelled_share : float
        The share of labelled rows among all rows, if there is a basis.
    source : Source
        Where the result comes from: data, files, and the command that repeats it.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from streameval import attribute
    >>> data = pa.table({"cluster": [1, 1, 2, 2], "campaign": [5, 5, 5, 6]})
    >>> found = attribute(data, cluster="cluster", classes="campaign")
    >>> found.merges.select(["cluster", "rows", "false_pairs"]).to_pylist(), found.totals["false_pairs"]
    ([{'cluster': 2, 'rows': 2, 'false_pairs': 1}], 1)
    """

    rows: int
    merges: pa.Table | None
    splits: pa.Table | None
    impure: pa.Table | None
    unclustered: pa.Table | None
    totals: dict[str, float]
    metric: str | None = None
    dropped: tuple[tuple[str, int], ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()
    options: dict[str, Any] = field(default_factory=dict, compare=False)
    slices: pa.Table | None = None
    slice_metric: str | None = None
    source: Source = field(default_factory=Source, compare=False)
    labels: dict[str, int] = field(default_factory=dict, compare=False)
    basis: str | None = None
    labelled_share: float | None = None

    def tables(self) -> dict[str, pa.Table]:
        """The tables that are not None, by name."""
        return {name: table for name in TABLES if (table := getattr(self, name)) is not None}

    def render(self, *, plain: bool = False) -> RenderableType:
        """All tables and their conclusions; plain ones have no rules."""
        from streameval.report.attribution import attribution_tables

        return attribution_tables(self, plain=plain)

    def to_dict(self) -> dict[str, object]:
        """Plain values, as in the command line's JSON; NaN becomes None, a binary id hexadecimal text."""
        return {
            "streameval": __version__,
            "options": self.options,
            "rows": self.rows,
            "metric": self.metric,
            **({"slice_metric": self.slice_metric} if self.slice_metric else {}),
            **({"timezones": dict(self.source.zones)} if self.source.zones else {}),
            **({"labels": self.labels} if self.labels else {}),
            **({"basis": self.basis, "labelled_share": self.labelled_share} if self.basis else {}),
            "totals": self.totals,
            **{name: [_plain(row) for row in table.to_pylist()] for name, table in self.tables().items()},
            "dropped": [{"reason": reason, "rows": rows} for reason, rows in self.dropped],
            "skipped": [{"partition": name, "reason": reason} for name, reason in self.skipped],
        }

    def to_html(self, *, with_examples: bool = False) -> str:
        """The text of a self-contained HTML page with all tables.

        Parameters
        ----------
        with_examples : bool
            Whether to show examples, which are values from the data.
        """
        from streameval.report.attribution import attribution_page
        from streameval.report.elements import html_of

        return html_of(attribution_page(self, self.source, with_examples=with_examples))

    def save(self, path: str | os.PathLike[str], *, with_examples: bool = False) -> None:
        """Write everything to a ``.json`` or ``.html`` file, or one Parquet file per table to a directory.

        Parameters
        ----------
        path : str or os.PathLike
        with_examples : bool
            Whether an ``.html`` file shows examples; the other formats always include them.

        Raises
        ------
        OptionError
            If the name has another suffix, or the path cannot be a directory.
        StreamevalError
            If it cannot be written. An existing file is replaced only when the new one is complete.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        target = Path(path)
        check_target(target)
        if target.suffix and not target.is_dir():
            page = partial(self.to_html, with_examples=with_examples)
            save(target, {"json": lambda: self.to_json(indent=2) + "\n", "html": page})
            return
        target.mkdir(exist_ok=True)
        for name, table in self.tables().items():
            sink = pa.BufferOutputStream()
            pq.write_table(table, sink)
            write_whole(target / f"{name}.parquet", sink.getvalue().to_pybytes())
        write_whole(target / "totals.json", json.dumps(self.totals, indent=2) + "\n")


def check_target(target: Path) -> None:
    """Raise `OptionError` if a result cannot be written there."""
    one_file = bool(target.suffix) and not target.is_dir()
    if one_file and target.suffix.lower() not in (".json", ".html"):
        raise OptionError(f"out={str(target)!r} must end in .json or .html, or be a directory for the tables")
    if not one_file and target.exists() and not target.is_dir():
        raise OptionError(f"out={str(target)!r} is a file; name a directory, or a file that ends in .json or .html")
    if not target.parent.is_dir():
        raise OptionError(f"out={str(target)!r}: its directory does not exist; make it first")


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, bytes):
        return value.hex()
    return None if value != value else value
