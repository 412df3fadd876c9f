"""Verbs that change a store: each is one commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streameval.options import honoured, refuse
from streameval.store import ingest
from streameval.store.backfill import Place
from streameval.store.vacuum import vacuum
from streameval.store.verbs import several

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date

    from streameval.store.context import StoreContext
    from streameval.store.ingest import Update
    from streameval.store.vacuum import Vacuumed


class Changing:
    """The verbs that change a store."""

    _context: StoreContext

    def update(
        self,
        data: Any,
        *,
        dry_run: bool = False,
        verify: bool = False,
        on_error: str = "raise",
        delta_version: int | None = None,
        **options: Any,
    ) -> Update:
        """Fold the partitions that are new or changed since the last update, in one commit.

        A partition that cannot be folded does not stop the others.

        Parameters
        ----------
        data : path, pattern, URI, or list of those
            A tree of partitions, or some of them.
        dry_run : bool
            Only report what would be done.
        verify : bool
            Fold every partition again, even if its size and time are unchanged, and keep those whose states differ.
        on_error : {"raise", "skip"}
            Whether an unreadable file fails its partition, or is left out: the partition is then incomplete, and later
            updates with ``"skip"`` fold it again until it is complete. A readable file that lacks a column, or has
            nulls without a policy, always fails its partition: leaving out its rows would give wrong values that look
            plausible.
        delta_version : int, optional
            Version of the Delta tables among the data, by default the current one.
        **options
            Options of the first update, as in `streameval.evaluate`. ``label, pos_label, score, cluster, sketch,
            classes, weight, where, by, max_slices, unit, nan, nulls, unlabelled, cluster_scope, common_rows, approx,
            approx_agc, sample, sample_seed`` fix the states that are kept; ``where`` must be SQL. ``metrics, truncate,
            aul_threshold, assignment_cells, at, clip, ci, quantiles`` are defaults that an evaluation may change.

        Returns
        -------
        Update

        Raises
        ------
        OptionError
            If an option contradicts the store.
        DataError
            If partitions cannot be folded, after the others are committed; the message names all unreadable files.
        StoreError
            If another update was committed meanwhile.
        """
        return ingest.update(
            self._context,
            data,
            options,
            dry_run=dry_run,
            verify=verify,
            on_error=on_error,
            delta_version=delta_version,
        )

    def replace(self, data: Any, *, on_error: str = "raise", delta_version: int | None = None) -> Update:
        """Fold partitions of the store again, even if their files look unchanged; for late corrections.

        Parameters
        ----------
        data, on_error, delta_version
            As `update`.

        Raises
        ------
        MissingInputError
            If the store lacks one of the partitions.
        DataError, StoreError
            As `update`.
        """
        return ingest.replace(self._context, data, on_error, delta_version)

    def remove(self, names: str | Sequence[str] = (), *, columns: str | Sequence[str] = ()) -> Update:
        """Remove partitions by name, such as ``night=2026-01-11``, or columns; earlier versions still have them.

        An update that finds the files of a partition adds it again; `add` adds a column again.

        Parameters
        ----------
        names : str or sequence of str
            Partitions.
        columns : str or sequence of str
            Columns of scores, clusters, classes or sketches, with everything computed from them.

        Raises
        ------
        OptionError
            If the store has no such column, or it is the only column.
        """
        named, out = map(several, (names, columns))
        return ingest.remove(self._context, named, out)

    def add(
        self,
        *,
        data: Any = None,
        since: str | date | None = None,
        delta_version: int | None = None,
        **options: Any,
    ) -> Update:
        """Add columns or metrics in one commit; nights whose files still exist are folded for the new columns only.

        Metrics of a new column are null for nights that lack it, and for every selection that contains such a night.
        Later nights must have the column. A weight column changes the states of all scores: nights whose files no
        longer exist then have no scores, except in earlier versions (`as_of`).

        Parameters
        ----------
        **options
            Additions, as in `streameval.evaluate`: ``score, cluster, sketch, classes, weight, unit`` name columns,
            ``by`` names slicings; ``metrics, truncate, aul_threshold, at, ci`` extend or set the store's defaults and
            need no file. The policies ``nan, nulls`` apply to added columns, and to others that had ``"error"``;
            ``unlabelled`` may replace ``"error"``. ``max_slices`` replaces the store's limit.
        data : path, URI, or list of those, optional
            The files of the nights, if they have moved.
        since : str or date, optional
            Only nights from this date on are folded.
        delta_version : int, optional
            Version of the Delta tables that hold the nights, by default the current one.

        Returns
        -------
        Update
            `changed` are the nights that were folded, `gone` those whose files no longer exist or lack the column.

        Raises
        ------
        OptionError
            If an option is unknown, or contradicts the store.
        DataError
            If the files of a night changed since it was folded, or no night has the column.
        StoreError
            If another update was committed meanwhile.
        """
        for name in options:
            if name not in honoured("add"):
                refuse("add", name)
        return ingest.add(self._context, options, Place(data, delta_version), since)

    def vacuum(
        self, *, keep: str | None = None, versions: str | None = None, grace: str = "1d", dry_run: bool = False
    ) -> Vacuumed:
        """Delete the files that no version needs, and merge exact states of nights into larger files.

        Histograms are merged by updates. An update that runs while vacuum deletes files is refused and can be run
        again.

        Parameters
        ----------
        keep : str, optional
            A span such as ``90d``: exact scores of nights older than the newest night by at least this span are
            permanently turned into fixed histograms. Their metrics then have bounds instead of exact values, and
            earlier versions of the ledger cannot be evaluated over these nights.
        versions : str, optional
            A span such as ``90d``: versions of the store that were replaced longer ago are forgotten, with the files
            that only they need; `as_of` reaches back by this span, which `Store.info` states. By default, all are kept.
        grace : str
            Keep files younger than this span, because an update may be about to commit them.
        dry_run : bool
            Only report what would be deleted, and the nights that would lose their exact scores.

        Raises
        ------
        OptionError
            If a span is malformed, or `keep` is given and a partition has no date.
        StoreError
            If an update was committed meanwhile; nothing is deleted then.
        """
        return vacuum(self._context, keep, grace, versions, dry_run=dry_run)
