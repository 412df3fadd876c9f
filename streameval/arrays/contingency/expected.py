"""Tables of expected counts under null models, and the diagonal tables that are the ceilings of a measure."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from streameval.arrays.contingency import inputs as source
from streameval.arrays.contingency.sparse import SparseTable
from streameval.metrics.contingency.null_models import margins_of

if TYPE_CHECKING:
    from typing import Self

__all__ = ["ExpectedTables"]


class ExpectedTables(SparseTable):
    """A sparse table that makes its expected tables and its ceilings."""

    @cached_property
    def _drawn(self) -> dict[str, tuple[int | None, Self]]:
        """Seed and discrete expected table by model, as drawn last."""
        return {}

    def expected(
        self, model: str = "m3", discrete: bool = False, redraw: bool = False, random_state: int | None = None
    ) -> Self:
        """Table of expected counts under a null model; it has R×C cells.

        Empty rows and columns are left out first.

        Parameters
        ----------
        model : {"m1", "m2r", "m2c", "m3", "x1", "x2r", "x2c"}
            Fixed: only N; row totals; column totals; both. The ``x`` models put everything into the first row and
            column that the fixed margins allow.
        discrete : bool, default False
            Round each count up or down at random, with the expected count as its mean.
        redraw : bool, default False
            Draw again. Without it a table keeps its last draw for each model until another seed is given.
        random_state : int or None
            Seed of the draw; None returns the draw that is kept, or else draws without a seed.

        Raises
        ------
        OptionError
            If there is no such model.

        Examples
        --------
        >>> from streameval import ContingencyTable
        >>> ContingencyTable(rows=[[3, 1], [1, 3]]).expected("m3").to_array()
        array([[2, 2],
               [2, 2]])
        """
        seed, kept = self._drawn.get(model, (None, None))
        if discrete and not redraw and kept is not None and random_state in (None, seed):
            return kept
        rows, cols = self._margins(model)
        counts = rows[:, None] * cols / float(self.summary.total) if self.grand_total else np.zeros((0, 0))
        labels = [label for label, n in self.row_totals.items() if n], [x for x, n in self.col_totals.items() if n]
        if not discrete:
            return self._counted(counts, *labels)
        whole = np.floor(counts)
        drawn = np.random.default_rng(random_state).random(counts.shape) < counts - whole
        table = self._counted(whole + drawn, *labels)
        self._drawn[model] = random_state, table
        return table

    def _margins(self, model: str) -> list[np.ndarray[Any, Any]]:
        total, margins = float(self.summary.total), []
        for kind, side in zip(margins_of(model), (self.row_totals, self.col_totals), strict=True):
            sizes = np.array([float(n) for n in side.values() if n])
            if kind == "even":
                sizes = np.full(sizes.size, total / max(sizes.size, 1))
            elif kind == "first":
                sizes = np.where(np.arange(sizes.size) == 0, total, 0.0)
            margins.append(sizes)
        return margins

    def _counted(self, counts: np.ndarray[Any, Any], row_labels: list[Any], col_labels: list[Any]) -> Self:
        rows, cols = np.nonzero(counts)
        weights = source.checked_counts(counts[rows, cols])
        return self._of(source.Cells(rows.astype(np.int64), cols.astype(np.int64), weights, row_labels, col_labels))

    def row_diag(self) -> Self:
        """Diagonal table of the row totals: a clustering that agrees with the classes."""
        return self._diagonal(self.row_totals)

    def col_diag(self) -> Self:
        """Diagonal table of the column totals: classes that agree with the clusters."""
        return self._diagonal(self.col_totals)

    def _diagonal(self, totals: dict[Any, int | float]) -> Self:
        return self.from_counts(list(totals), list(totals), list(totals.values()))

    def expected_freqs_(self, model: str = "m3") -> Self:
        """Table of expected counts under a null model; the same as ``expected(model)``."""
        return self.expected(model)
