"""Tables of expected counts under null models, and the diagonal tables at which measures reach their ceilings."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from streameval.arrays.contingency import inputs as source
from streameval.arrays.contingency.sparse import SparseTable
from streameval.arrays.inputs import generator
from streameval.metrics.contingency.measures import margins_of

if TYPE_CHECKING:
    from typing import Self


class ExpectedTables(SparseTable):
    """A sparse table with its expected and diagonal tables."""

    @cached_property
    def _drawn(self) -> dict[str, tuple[int | None, Self]]:
        """For each model, the last discrete expected table with its seed."""
        return {}

    def expected(
        self, model: str = "m3", discrete: bool = False, redraw: bool = False, random_state: int | None = None
    ) -> Self:
        """Table of expected counts under a null model, with R×C cells; empty rows and columns are left out.

        Parameters
        ----------
        model : {"m1", "m2r", "m2c", "m3", "x1", "x2r", "x2c"}
            What is fixed: only N (m1, x1), the row totals (m2r, x2r), the column totals (m2c, x2c), or both (m3). The
            ``x`` models put everything into the first row and column that the fixed margins allow.
        discrete : bool, default False
            Round each count up or down at random, so that its mean is the expected count.
        redraw : bool, default False
            Draw again. Otherwise a table keeps its last draw for each model until another seed is given.
        random_state : int or None
            Seed of the draw; None returns the kept draw if there is one, and draws without a seed otherwise.

        Raises
        ------
        OptionError
            If the model is unknown.

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
        drawn = generator(random_state).random(counts.shape) < counts - whole
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
        """Diagonal table of the row totals: a clustering equal to the classes."""
        return self._diagonal(self.row_totals)

    def col_diag(self) -> Self:
        """Diagonal table of the column totals: classes equal to the clusters."""
        return self._diagonal(self.col_totals)

    def _diagonal(self, totals: dict[Any, int | float]) -> Self:
        return self.from_counts(list(totals), list(totals), list(totals.values()))

    def expected_freqs_(self, model: str = "m3") -> Self:
        """Table of expected counts under a null model; the same as ``expected(model)``."""
        return self.expected(model)
