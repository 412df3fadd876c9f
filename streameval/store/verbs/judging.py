"""Verbs that judge nights by rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streameval.store import query
from streameval.store.verbs import several

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import date

    from streameval.store.context import StoreContext
    from streameval.store.nights.diagnosis import Diagnosis
    from streameval.store.nights.gate import Check
    from streameval.store.nights.judgements import Judgement


class Judging:
    """The verbs that judge the nights of a store."""

    _context: StoreContext

    def check(
        self,
        rules: str | Sequence[str] | Mapping[str, str],
        partition: str | Sequence[str] = (),
        *,
        since: str | date | None = None,
        again: bool = False,
        mature: str | None = None,
        allow_incomplete: bool = False,
    ) -> Check:
        """Judge new, changed and failed nights by rules such as ``roc_auc[score] >= 0.97``, and store the judgements.

        Each rule judges a night once, and again if the night is folded again. A night that failed keeps failing until
        it is replaced, removed or accepted (`accept`). A rule that is new to the store judges the newest night and
        nights that are folded later. An incomplete night fails. See `streameval.rules.grammar` for the syntax.

        Parameters
        ----------
        rules : str, sequence of str, or mapping of names to rules
            The text of a rule is its default name.
        partition : str or sequence of str
            Judge and report only these nights; a night that the store lacks fails.
        since : str or date, optional
            Also judge nights from this date on that were folded before a rule existed.
        again : bool
            Also judge nights that were judged before, including accepted failures; with `since`, from that date on.
        mature : str, optional
            A span such as ``3d``: for this time after the end of a night, rules on labels are pending.
        allow_incomplete : bool
            Do not fail nights from which files were left out.

        Returns
        -------
        Check
            Has `passed`, and the judgements: those made now, and those that still fail.

        Raises
        ------
        OptionError
            If a rule is malformed, or names a metric that the store does not have.
        StoreError
            If another check was committed meanwhile.
        """
        named = several(partition)
        return query.check(
            self._context, rules, named, since, again=again, mature=mature, allow_incomplete=allow_incomplete
        )

    def accept(self, partition: str | Sequence[str], reason: str, rule: str | Sequence[str] = ()) -> list[Judgement]:
        """Accept failures of nights that checks have recorded; later failures are not accepted.

        Accepted nights pass, and do not count towards the usual values of the rules that they failed.

        Parameters
        ----------
        partition : str or sequence of str
            Names of the nights.
        reason : str
            Stored with the judgements.
        rule : str or sequence of str
            Names of rules; by default all rules that the nights fail.

        Returns
        -------
        list of Judgement

        Raises
        ------
        DataError
            If no such failure is recorded.
        OptionError
            If `reason` is empty.
        """
        named, rules = map(several, (partition, rule))
        return query.accept(self._context, named, rules, reason)

    def diagnose(self, partition: str | Sequence[str] = ()) -> tuple[Diagnosis, ...]:
        """List unusual facts of nights, largest change first, to find the cause of a failed rule.

        Compares rows, positives, nulls (also by file), quantiles of scores, sizes of clusters, and the costs of
        clusters and classes (see `attribute`) with the last 7 complete earlier nights that fail no rule. It reads the
        states of these nights, not the data.

        Parameters
        ----------
        partition : str or sequence of str
            Names of nights; by default those that fail or are undecided.

        Returns
        -------
        tuple of Diagnosis
            One for each night, in order.

        Raises
        ------
        MissingInputError
            If the store lacks one of the nights.
        """
        return query.diagnose(self._context, several(partition))
