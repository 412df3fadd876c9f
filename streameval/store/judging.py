"""The verbs that judge the nights of a store by rules, accept failures, and list what is unusual."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from streameval.errors import OptionError
from streameval.store.attribution import costs
from streameval.store.changing import several
from streameval.store.evaluate import store_source
from streameval.store.nights.diagnosis import diagnose_night, shapes_of, unusual_facts, usual_nights
from streameval.store.nights.gate import Gate, accept, store_rules
from streameval.store.nights.partitions import newest, select_entries
from streameval.store.nights.slices import slice_facts
from streameval.store.vacuum import parse_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import date

    from streameval.results import Scalar
    from streameval.store.context import StoreContext
    from streameval.store.files.entries import Entry
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
        nights that are folded later. An incomplete night fails. See `streameval.rules` for the syntax.

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
        read, hours = store_rules(rules), parse_seconds(mature, "mature") / 3600 if mature else 0.0
        snapshot, configuration = self._context.begun()
        named = several(partition)
        entries = select_entries(snapshot.entries) if snapshot.entries or not named else []
        if since is not None:
            select_entries(snapshot.entries, since=since)  # raises unless it is a date
        nightly, log = self._context.nightly(snapshot, configuration), self._context.judgements()
        gate = Gate(entries, nightly, log, hours, datetime.now(UTC))
        first = None if since is None else str(since)
        result = gate.check(read, named, first, again=again, allow_incomplete=allow_incomplete)
        log.write()
        nightly.write()
        options = {"rules": tuple(rule.text for rule in read), "partition": tuple(named), "since": since}
        source = store_source("check", self._context.location.name, result.nights, {}, options, options)
        failing = [snapshot.entries[name] for name in result.failing if name in snapshot.entries]
        unusual: tuple[str, ...] = ()
        if failing:
            usual = usual_nights(failing[-1], entries, log.failing(entries, newest(snapshot.entries)))
            unusual = unusual_facts(failing[-1], usual, configuration.readable)
        return replace(result, source=source, odd=unusual)

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
        if not reason.strip():
            msg = "say why the failure is accepted (--reason)"
            raise OptionError(msg)
        snapshot, _ = self._context.begun()
        log = self._context.judgements()
        entries = select_entries(snapshot.entries, partition=several(partition))
        accepted = accept(entries, log, several(rule), reason.strip(), datetime.now(UTC))
        log.write()
        return accepted

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
        context = self._context
        snapshot, configuration = context.begun()
        entries, log = select_entries(snapshot.entries), context.judgements()
        nightly, last = context.nightly(snapshot, configuration), newest(snapshot.entries)
        failing, undecided = log.failing(entries, last), log.undecided(entries, last)
        named = several(partition) or [*failing, *undecided]
        stored = nightly.stored

        def metrics(entry: Entry) -> Sequence[Scalar]:
            return nightly.grouped([[entry]], {})[0] if configuration.options["unit"] else ()

        def shapes(entry: Entry) -> dict[str, float]:
            return context.computed(shapes_of, stored.of(entry))

        def slices(entry: Entry) -> dict[str, float]:
            return context.computed(slice_facts, stored.of(entry))

        diagnoses = []
        for entry in select_entries(snapshot.entries, partition=named) if named else []:
            usual, rules = usual_nights(entry, entries, failing), log.closing(entry, last)
            diagnosis = diagnose_night(entry, usual, configuration.readable, rules, metrics, shapes, slices)
            rose = costs(context, configuration, entry, usual) if entry.rows and usual else ()
            diagnoses.append(replace(diagnosis, costs=rose))
        return tuple(diagnoses)
