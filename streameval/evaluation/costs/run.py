"""A run of `attribute` over data: fold the states once, then look up ids and examples in one more scan.

That scan is narrowed to the row groups that can hold rows of a few ids, by their statistics: if data are sorted by id,
only a few row groups hold the ids that are shown.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce
from operator import or_
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streameval import scan
from streameval.errors import CorruptFileError, MissingInputError, OptionError, SchemaError
from streameval.evaluation.costs.attributed import Attribution
from streameval.evaluation.costs.sweep import Sweep
from streameval.evaluation.costs.tables import Ids, not_there
from streameval.evaluation.families import FAMILIES, MetricRequest
from streameval.evaluation.files import Files
from streameval.evaluation.run import check_labels
from streameval.evaluation.source import source_of
from streameval.kinds import of_column
from streameval.metrics.contingency.attribution import check_gain
from streameval.options import checked, honoured, recorded
from streameval.scan import Where
from streameval.states.clusters.counts import ClusterSpec
from streameval.states.contingency.counts import ContingencySpec
from streameval.states.labels import LabelSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from streameval.engine import Engine
    from streameval.engine.fold import Folded
    from streameval.evaluation.costs.sweep import LookUp, Values
    from streameval.scan import Scan
    from streameval.states.values import IdColumn, ValuesSpec


_MOST = 256  # most ids to test; each is compared with the statistics of every row group
_DTYPES = {"signed": np.int64, "unsigned": np.uint64}


def narrowed(found: Scan, wanted: Iterable[ValuesSpec]) -> Scan:
    """Prune row groups that hold no row of the wanted ids.

    The scan is unchanged if ids are hashed, are scoped to partitions, or are more than 256.

    Raises
    ------
    OptionError
        If the column's type cannot represent an id.
    """
    ids: dict[IdColumn, set[int]] = {}
    for spec in wanted:
        first = spec.keys[0]
        if first.type not in _DTYPES or first.scope != "global":
            return found
        ids.setdefault(first, set()).update(spec.wanted[:, 0].view(_DTYPES[first.type]).tolist())
    if not ids or sum(map(len, ids.values())) > _MOST:
        return found
    test = Where.of(reduce(or_, (_equals(found, key, one) for key, several in ids.items() for one in several)))
    return scan.prune(found, test.bound(found.schema))[0]


def _equals(found: Scan, key: IdColumn, one: int) -> Any:
    kind = found.schema.field(key.name).type
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    try:
        return pc.field(key.name) == pa.scalar(one, plain)
    except (pa.ArrowInvalid, OverflowError):  # the type is narrower than that of the column that was counted
        raise not_there(key.name) from None


def checked_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Options in plain form; `classes` is set to `changed_from` if that is given.

    Raises
    ------
    OptionError
        If an option is invalid, conflicts with another, has no effect, or nothing is named to attribute.
    """
    columns = ("cluster", "classes", "changed_from", "label", "by")
    given = {**given, **{name: honoured("attribute")[name].kind.check(name, given.get(name)) for name in columns}}
    classes, earlier = given.get("classes"), given.get("changed_from")
    if classes and earlier:
        raise OptionError(
            "classes and changed_from exclude each other: compare with one column at a time", "classes", "changed_from"
        )
    compared = {**given, "classes": classes or earlier}
    paired, labelled = bool(compared["classes"]), bool(given.get("label"))
    if not (given.get("cluster") and (paired or labelled)) and not given.get("by"):
        raise OptionError(
            "nothing to attribute: merges and splits need a cluster column (--cluster) with classes or an earlier "
            "clustering (--classes, --changed-from), impure clusters need it with a label (--label), slices need a "
            "score and a slicing column (--score, --by)"
        )
    if paired and not given.get("cluster"):
        raise OptionError(
            "classes and changed_from would change nothing without a cluster column: name one (--cluster)", "cluster"
        )
    options = checked(compared, "attribute")
    metric, sliced = options["metric"], bool(options["by"])
    if metric is not None and not sliced and not paired:
        raise OptionError(
            "metric would change nothing without classes or slices: name a column (--classes, --changed-from, --by)",
            "metric",
        )
    if metric is not None and not sliced:
        check_gain(str(metric))
    return options


@dataclass(frozen=True)
class Run:
    """A planned run.

    Attributes
    ----------
    data : as given by the user
    options : see `checked_options`
    files : the data, after pruning by the filter
    filtered : text of the filter; empty without one
    """

    data: Any
    options: Mapping[str, Any]
    files: Files
    filtered: str = ""

    @classmethod
    def of(cls, data: Any, options: Mapping[str, Any], engine: Engine) -> Run:
        """Plan a run.

        Parameters
        ----------
        data : see `streameval.evaluate`
        options : see `checked_options`
        engine : where to run

        Raises
        ------
        DataError
            If an input or a column is missing or has a type that cannot be used.
        OptionError
            If the data do not support an option.
        """
        cluster, classes, label, examples = (options[name] for name in ("cluster", "classes", "label", "examples"))
        where = None if options["where"] is None else Where.of(getattr(options["where"], "value", options["where"]))
        folded = dict.fromkeys(name for name in (label, cluster, classes, *(where.columns if where else ())) if name)
        found = scan.plan(
            data,
            list(dict.fromkeys((*folded, *([examples] if examples else [])))),
            on_error=options["on_error"],
            delta_version=options["delta_version"],
            threads=engine.budget.threads,
            compute=engine.compute,
        )
        labels = LabelSpec(label, options["pos_label"], options["unlabelled"]) if label else None
        files = Files.of(engine, found, labels, where, skip=options["on_error"] == "skip")
        if examples:
            _check_examples(files.scan, examples)
        if options["cluster_scope"] == "partition" and not all(piece.partition for piece in files.scan.pieces):
            raise OptionError(
                "cluster_scope='partition' needs data in files: tables in memory have no partitions; use global ids"
            )
        schema = pa.schema([files.scan.schema.field(name) for name in folded])
        run = cls(data, options, replace(files, plan=replace(files.plan, schema=schema)), where.text if where else "")
        return replace(run, files=run.files.folding(run.requests))

    @cached_property
    def clusters(self) -> Ids:
        """The ids of clusters."""
        return self._ids(self.options["cluster"], self.options["cluster_scope"])

    @cached_property
    def classes(self) -> Ids | None:
        """The ids of classes; None without classes."""
        return self._ids(self.options["classes"]) if self.options["classes"] else None

    def _ids(self, column: str, scope: str = "global") -> Ids:
        try:
            return Ids.of(self.files.scan, column, scope)
        except SchemaError as error:
            raise SchemaError(f"{self.files.names[0]}: {error}") from None

    @property
    def requests(self) -> list[MetricRequest]:
        """The states to fold: a contingency table if there are classes, cluster sizes if there are labels."""
        one, scope = self.clusters.column, self.options["cluster_scope"]
        policies = scope, of_column(self.options["nulls"], self.options["cluster"])
        found: list[MetricRequest] = []
        if self.classes is not None:
            other = self.classes.column
            table = ContingencySpec(other.name, one.name, other.type, one.type, *policies)
            found.append(MetricRequest(FAMILIES["classes"], one.name, table, ()))
        if self.options["label"]:
            sizes = ClusterSpec(one.name, one.type, *policies)
            found.append(MetricRequest(FAMILIES["cluster"], one.name, sizes, ()))
        return found

    def finish(self) -> Attribution:
        """Read the data and compute the tables."""
        files = self.files
        folded = files.fold()
        states = [folded.states[spec] for spec in files.plan.specs]
        self._check(folded)
        options = dict(self.options) | ({"classes": None} if self.options["changed_from"] else {})  # as given
        result = Attribution(
            states[0].totals().rows, None, None, None, None, {}, dropped=self._dropped(folded), skipped=folded.skipped,
            options=recorded(options, "attribute"),
            source=source_of(self.data, files.scan.pieces, options, "attribute"),
        )  # fmt: skip
        table = states[0] if self.classes is not None else None
        sizes = states[-1] if files.plan.label is not None else None
        look_up = self.look_up(folded.skipped)
        return Sweep(self.options, files.engine, self.clusters, self.classes, look_up).added(result, table, sizes)

    def look_up(self, skipped: Sequence[tuple[str, str]] = ()) -> LookUp | None:
        """A function that reads values from the data; None if the data are a reader, which can be read only once.

        Parameters
        ----------
        skipped : (file, reason) of files that were not counted

        Raises
        ------
        OptionError
            If examples were requested from a reader.
        """
        if self.files.scan.splittable:
            return partial(self._looked_up, dict(skipped))
        if self.options["examples"]:
            raise OptionError(
                "examples read the data twice, and a reader can be read only once: name files or a table", "examples"
            )
        return None

    def _looked_up(self, skipped: Mapping[str, str], wanted: Mapping[str, ValuesSpec]) -> Values:
        """The values of a few groups, from one more scan.

        Raises
        ------
        CorruptFileError
            If a file that was counted cannot be read again.
        """
        files = self.files
        found = narrowed(files.scan, wanted.values())
        plan = replace(files.plan, schema=files.scan.schema, specs=tuple(dict.fromkeys(wanted.values())))
        folded = files.engine.read(found.pieces, found.rows, plan)
        for name, why in folded.skipped:
            if name not in skipped:
                raise CorruptFileError(f"{name}: its rows were counted, and cannot be read again: {why}; run again")
        return {name: folded.states[spec].lists() for name, spec in wanted.items()}

    def _check(self, folded: Folded) -> None:
        """Raise if the labels cannot be evaluated, or no row is in a cluster."""
        names, label, skipped = self.files.names, self.files.plan.label, folded.skipped
        where = f"{names[0]} and the other files" if len(set(names)) > 1 else names[0]
        if label is not None:
            self.files.check_found(folded)
            check_labels(folded.states[label], where, skipped, self.filtered)
        if not any(folded.states[spec].totals().rows for spec in self.files.plan.specs):
            reason = f"; skipped {skipped[0][0]}: {skipped[0][1]}" if skipped else ""
            msg = f"{where}: there are no rows in clusters{reason}"
            if self.filtered:
                msg = f"{where}: no row in a cluster meets where: {self.filtered}"
            raise MissingInputError(msg)

    def _dropped(self, folded: Folded) -> tuple[tuple[str, int], ...]:
        """Rows left out, by reason."""
        found = {}
        if (label := self.files.plan.label) is not None:
            found["null label"] = folded.states[label].null
        for wanted in self.requests:
            for reason, rows in wanted.family.counted(wanted, folded.states[wanted.spec]).dropped:
                found.setdefault(reason, rows)  # both states leave out null clusters
        return tuple((reason, rows) for reason, rows in found.items() if rows)


def _check_examples(found: scan.Scan, column: str) -> None:
    """Raise `SchemaError` if the values of a column cannot be shown."""
    kind = found.schema.field(column).type
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    binary = pa.types.is_binary(plain) or pa.types.is_large_binary(plain) or pa.types.is_fixed_size_binary(plain)
    if binary or pa.types.is_nested(plain) or pa.types.is_null(plain):
        raise SchemaError(
            f"{found.pieces[0].name}: examples column {column!r} has type {plain}; "
            "examples are texts, numbers, booleans or times: cast it"
        )
