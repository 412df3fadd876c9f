"""Options are data: one table defines every option, and all code that handles options is driven by it.

Its rows drive the checks of arguments (`complete_options`), the options of the command line
(`streameval.cli.options`), those that a store keeps (`kept_options`) and that results record (`record_options`), and
the keys of cached results (`result_key`). To add an option, add its row to `OPTIONS`, its parameter to
`streameval.evaluate`, and the code that uses it. A test checks that the signature and the table agree.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from streameval import kinds
from streameval.errors import OptionError
from streameval.kinds import OTHERS, ByColumn, texts
from streameval.wording import few, shell, text_of_bytes, unknown_column

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True)
class Kind:
    """The values that an option takes.

    Attributes
    ----------
    check : called with the option's name and a value; returns the value in plain form or raises `OptionError`
    word : type of a value on the command line; ``bool`` for a flag
    many : whether the option takes several values
    choices : the allowed values, if they are enumerated
    """

    check: Callable[[str, Any], Any]
    word: type = str
    many: bool = False
    choices: tuple[str, ...] = ()


ANY, BINS, CALLBACK, COLUMN = Kind(kinds.single), Kind(kinds.bins), Kind(kinds.callback), Kind(kinds.column)
UNIT = Kind(kinds.unit)
DIRECTORY, FILTER, FLAG = Kind(kinds.directory), Kind(kinds.row_filter), Kind(kinds.flag, bool)
FILE, INPUTS, MOMENT = Kind(kinds.file), Kind(kinds.inputs, many=True), Kind(kinds.moment)
LEVEL, NUMBERS = Kind(kinds.level, float), Kind(kinds.numbers, float, many=True)
SPAN, AGES, ZONE = Kind(kinds.days), Kind(kinds.ages), Kind(kinds.zone)
NAMES, METRICS = Kind(kinds.texts, many=True), Kind(kinds.metrics, many=True)


def choice(*allowed: str) -> Kind:
    """One of several words."""
    return Kind(partial(kinds.one_of, allowed=allowed), choices=allowed)


def one_unit(verb: str) -> Kind:
    """The column of a sampling unit."""
    return Kind(partial(kinds.single_unit, verb=verb))


def whole_number(what: str, least: float = -math.inf, most: float = math.inf) -> Kind:
    """An integer of at least `least` and at most `most`."""
    return Kind(partial(kinds.whole, what=what, least=least, most=most), int)


def real_number(what: str, least: float = -math.inf) -> Kind:
    """A finite number of at least `least`."""
    return Kind(partial(kinds.number, what=what, least=least), float)


@dataclass(frozen=True)
class Option:
    """One option.

    Attributes
    ----------
    name : name in Python
    kind : the values that it takes
    default : default in the signature
    verbs : commands that take it; ``evaluate`` stands for `streameval.evaluate` and `explain`, ``show`` for
        `Store.evaluate`, other verbs for the method of that name
    decides : what it affects: the states that are built, the values that are computed from them, or nothing
    help : help text of the command line
    needs : input without which it has no effect, a key of `NEEDS`
    idle : values without effect if that input is missing; None for all values except the default
    flag : spelling on the command line, without dashes, if it differs from `name`
    metavar : placeholder in the help text
    required : whether the command requires it
    bare : value if the command line names the option without one; None if a value is required
    kept : whether a store keeps the value; False if it applies to one update only
    of : option that names the columns which may each have a value, as a mapping or as ``COLUMN=VALUE``; see `ByColumn`
    """

    name: str
    kind: Kind
    default: Any
    verbs: tuple[str, ...]
    decides: Literal["state", "value", "nothing"]
    help: str
    needs: str = ""
    idle: tuple[Any, ...] | None = None
    flag: str = ""
    metavar: str | None = None
    required: bool = False
    kept: bool = True
    of: str = ""
    bare: Any = None

    @property
    def spelling(self) -> str:
        """The option on the command line.

        Examples
        --------
        >>> [option.spelling for option in OPTIONS if option.name in ("metrics", "assignment_cells")]
        ['--metric', '--assignment-cells']
        """
        return f"--{self.flag or self.name.replace('_', '-')}"

    def plain(self, given: object) -> Any:
        """A value in plain form.

        Raises
        ------
        OptionError
            If the option does not take this value.
        """
        return self.rest if given is self.default else self._checked(given)

    @cached_property
    def rest(self) -> Any:
        """The default in plain form."""
        return self._checked(self.default)

    def _checked(self, given: object) -> object:
        if given is None and self.default is None and not self.kind.many:
            return None
        if self.of and isinstance(given, ByColumn):
            given = given.to_dict()
        if self.of and isinstance(given, Mapping):
            values = {str(column): self.plain(value) for column, value in given.items()}
            return ByColumn.of(values, values.pop(OTHERS, self.rest))
        value = self.kind.check(self.name, given)
        if value is None and self.default is not None:
            raise OptionError(f"{self.name}={given!r} must be the name of a column")
        return value

    def idles(self, value: object) -> bool:
        """Whether a plain value would change nothing without the input that the option needs."""
        return value != self.rest if self.idle is None else value in self.idle


NEEDS = {
    "scores": ("score", "name a score column (--score)"),
    "clusters": ("cluster", "name a cluster column (--cluster)"),
    "classes": ("classes", "name a column of classes (--classes)"),
    "a scheduler": ("client", "name one (--scheduler)"),
    "groups": ("mean_over", "name their column (--mean-over)"),
    "labels": ("label", "name a column of labels (--label)"),  # slices read `label` by default
    "labels of clusters": ("label", "name a column of labels (--label)"),
    "ids of labels": ("on", "name their column (--on)"),
    "late labels": ("labels", "name their table (--labels)"),
    "a score": ("score", "name a score column (--score)"),
    "slices": ("by", "name the slicing column (--by)"),
    "classes or an earlier clustering": ("classes", "name its column (--classes or --changed-from)"),
    "a column of examples": ("examples", "name one (--examples)"),
    "the sampled gain area": ("approx_agc", "set approx_agc=True (--approx-agc)"),
}

_EVALUATE = ("evaluate",)
_FOLD = ("evaluate", "update")
_IDS = (*_FOLD, "attribute")
_LOOK = ("evaluate", "update", "show")
_RUN = (
    "evaluate", "attribute", "update", "show", "replace", "remove", "add", "vacuum", "history", "check", "diagnose",
    "maturity",
)  # fmt: skip
_STORE = (*_RUN[2:], "info")
_CLUSTER = ("evaluate", "attribute", "update", "replace", "add", "show", "history", "check", "diagnose", "sketch")
_HERE = ("churn", "drift", "plan_labels")
_READ = ("evaluate", "attribute", "update", "replace", "add", "sketch", "churn", "plan_labels")
_CHOSEN = ("show", "history")
_SAMPLE = "the sampled gain area"
_LATE, _LABELS = ("evaluate", "attribute"), "late labels"
_TIMES = "Column of times in the labels: the latest label of an id counts."
_CONFLICTS = (
    "Different labels of an id at one time: refuse them, take the file that came last, or leave the id unlabelled."
)

OPTIONS = (
    # attribute
    Option("cluster", COLUMN, None, ("attribute",), "state", "Cluster id column: merges, splits, impure clusters."),
    Option("score", COLUMN, None, ("attribute",), "state", "Score column: slices that fall short.", needs="slices"),
    Option("by", NAMES, None, ("attribute",), "state", metavar="COLUMN,…",
           help="Rank slices by how far they fall short of the whole: country or country,channel or 'hour(sent_at)'.",
           needs="a score"),
    Option("adjust", choice("false_coverage", "family"), "false_coverage", ("attribute",), "value", needs="slices",
           help="What widened intervals promise: few of those shown miss the true value, or none of all slices does."),
    Option("ci", LEVEL, None, ("attribute",), "value", metavar="[LEVEL]", bare=0.95, needs="slices",
           help="Sampling intervals of slices, widened because the worst are selected; --unit implies 0.95."),
    Option("unit", one_unit("attribute"), None, ("attribute",), "state", metavar="COLUMN", needs="slices",
           help="Column of the sampling unit for --ci, such as the campaign: rows with the same value are sampled "
                "together. [default: each row is a unit]"),
    Option("classes", COLUMN, None, ("attribute",), "state",
           "Column of the clusters' true classes: merges and splits."),
    Option("changed_from", COLUMN, None, ("attribute",), "state",
           "Column of an earlier clustering, in place of classes: what was merged and split since."),
    Option("label", COLUMN, None, ("attribute",), "state", "Column of labels: impure clusters."),
    Option("pos_label", ANY, None, ("attribute",), "state",
           "Positive label; without it, numbers above zero are positive.", needs="labels"),
    Option("metric", ANY, None, ("attribute",), "value",
           "Metric: a pair or B-cubed metric for gains, a metric of a score for slices. "
           "[default: adjusted_rand_index and roc_auc]"),
    Option("aul_threshold", real_number("a cluster size, a number of at least 1", 1), 1, ("attribute",), "value",
           "Clusters with more rows count as all positive.", needs="labels of clusters"),
    Option("top", whole_number("a number of groups between 1 and 1,000,000", 1, 10**6), 20, ("attribute",), "value",
           "Number of clusters and classes to show in each table."),
    Option("examples", COLUMN, None, ("attribute",), "value",
           "Column whose values to show as examples, such as texts."),
    Option("examples_per", whole_number("a number of values between 1 and 1,000", 1, 1000), 3, ("attribute",), "value",
           "Maximum number of examples of each class in a cluster.", needs="a column of examples"),
    # churn
    Option("cluster", COLUMN, None, ("churn",), "state", "Cluster id column.", required=True),
    Option("from_", COLUMN, None, ("churn",), "state", "Column of the earlier cluster ids.", flag="from",
           metavar="COLUMN", required=True),
    Option("least", whole_number("a cluster size, a whole number of at least 1", 1), 2, ("churn",), "value",
           "Count clusters of at least this size; rows are of all clusters."),
    Option("unit", one_unit("churn"), None, ("churn",), "state", metavar="COLUMN",
           help="Column of the sampling unit, such as the campaign: adds an interval of the share of rows kept."),
    Option("ci", LEVEL, None, ("churn",), "value", metavar="[LEVEL]", bare=0.95,
           help="Level of this interval; --unit implies 0.95."),
    # plan_labels
    Option("id", COLUMN, None, ("plan_labels",), "value", "Column of unique ids of rows.", required=True),
    Option("score", COLUMN, None, ("plan_labels",), "state", "Score column.", required=True),
    Option("for_", NAMES, None, ("plan_labels",), "value", flag="for", metavar="METRIC", required=True,
           help="Metric to narrow, such as precision@threshold=0.8; repeat for several."),
    Option("pilot", ANY, None, ("plan_labels",), "state", metavar="STORE",
           help="Store whose labels are a uniform sample, the pilot (update --sampled-by uniform). [default: DATA has "
                "its labels]"),
    Option("label", COLUMN, "label", ("plan_labels",), "state",
           "Column of the pilot: labels of a uniform sample, null for other rows."),
    Option("budget", whole_number("a number of labels of at least 1", 1), 1000, ("plan_labels",), "value",
           "Number of labels.", metavar="N"),
    # drift
    Option("score", COLUMN, None, ("drift",), "value", "Score column.", required=True),
    Option("against", ANY, None, ("drift",), "value", metavar="FROM..TO", required=True,
           help="Dates of the nights to compare with, such as 2026-01-01..2026-01-07; one date stands for that night."),
    Option("since", ANY, None, ("drift",), "value", "Only nights from this date on.", metavar="DATE"),
    Option("until", ANY, None, ("drift",), "value", "Only nights up to the end of this date.", metavar="DATE"),
    Option("unit", one_unit("drift"), None, ("drift",), "state", metavar="COLUMN",
           help="Column of DATA with the sampling unit, such as the campaign; a store has its own."),
    # maturity
    Option("metric", ANY, None, ("maturity",), "value", "Metric, such as roc_auc.", required=True),
    Option("of", COLUMN, None, ("maturity",), "value", "Column of the metric, if there are several."),
    Option("ages", AGES, (1, 3, 7, 14, 30, 60, 90), ("maturity",), "value", metavar="DAYS,…",
           help="Ages of labels in days after the end of their night; a closed night keeps the default ones. "
                "[default: 1,3,7,14,30,60,90]"),
    # quantile_sketch
    Option("column", NAMES, None, ("sketch",), "state", "Column of numbers; repeat for several.", required=True),
    Option("compression", whole_number("a whole number of at least 1", 1), 1000, ("sketch",), "state",
           "Size of the sketch: about 44 bytes times this number."),
    # inputs and what is computed
    Option("label", COLUMN, "label", _FOLD, "state", "Column of true classes."),
    Option("score", NAMES, None, (*_LOOK, "add"), "state", "Score column (or p.values[1]); repeat."),
    Option("cluster", NAMES, None, (*_LOOK, "add"), "state", "Cluster id column; repeat for several."),
    Option("sketch", NAMES, None, (*_LOOK, "add"), "state",
           "Column of numbers whose quantiles to estimate; repeat for several."),
    Option("classes", COLUMN, None, (*_FOLD, "add"), "state",
           "Column of the clusters' true classes, such as campaigns.", needs="clusters"),
    Option("weight", COLUMN, None, (*_FOLD, "add"), "state", "Column of weights, for score metrics.", needs="scores"),
    Option("pos_label", ANY, None, (*_FOLD, "plan_labels"), "state",
           "Positive label; without it, numbers above zero are positive."),
    Option("classes_of_label", NAMES, None, _EVALUATE, "state", metavar="all|CLASS,…",
           help="Several classes, each against the rest: the class of each --score, in order; or those of a pattern "
           "such as --score 'p_{class}'. [default: all that have a column]", needs="scores"),
    Option("metrics", METRICS, None, (*_LOOK, "add"), "value",
           "Metric: a name, a glob, or a family such as ranking, thresholds, calibration, lift or pairwise; repeat for "
           "several. streameval metrics lists them all and marks the defaults.", flag="metric"),
    Option("truncate", NUMBERS, (), (*_LOOK, "add"), "value",
           "Truncate the gain curve: a share in (0, 1] or a number of points, counted without weights; repeat for "
           "several.", needs="scores",
           of="score"),
    Option("aul_threshold", real_number("a cluster size, a number of at least 0", 0), 1, (*_LOOK, "add"), "value",
           "aul: clusters with more rows count as all positive.", needs="clusters", of="cluster"),
    Option("assignment_cells", whole_number("a whole number of cells, at least 0", 0), 1_000_000, _LOOK, "value",
           "assignment_score: larger components are bounded, not solved.", needs="classes"),
    Option("at", NAMES, (), (*_LOOK, "add"), "value",
           "Operating point: fpr=1e-4, tpr=0.9, recall=0.9, precision=0.95, k=1000, share=0.01 or threshold=0.8; "
           "repeat for several.", needs="scores"),
    Option("clip", real_number("a probability above 0 and below 0.5"), None, _LOOK, "value",
           "log_loss: clip scores to [clip, 1 − clip] first, such as 1e-15.", needs="scores"),
    Option("nan", choice("error", "drop", "half"), "error", (*_FOLD, "add"), "state",
           "How to treat NaN and null scores.",
           needs="scores", of="score"),
    Option("nulls", choice("error", "drop", "singleton"), "error", (*_IDS, "add"), "state",
           "How to treat null ids of clusters and classes.", needs="clusters", of="cluster"),
    Option("unlabelled", choice("error", "drop", "size"), "error", (*_FOLD, "add"), "state",
           "How to treat rows without a label; size counts them in cluster sizes, and values are then estimates.",
           needs="clusters", idle=("size",)),
    Option("nan", choice("error", "drop"), "error", ("attribute",), "state",
           "How to treat NaN and null scores.", needs="slices"),
    Option("unlabelled", choice("error", "drop"), "error", ("attribute",), "state",
           "How to treat rows without a label.", needs="labels"),
    Option("labels", INPUTS, None, (*_LATE, "update"), "state", metavar="FILE", kept=False,
           help="Labels in another table, matched by --on; repeat for several files, in the order of their arrival."),
    Option("on", NAMES, None, _LATE, "state", metavar="ID", needs=_LABELS,
           help="Id column of DATA and labels: id or a,b (both must agree) or data_id=label_id."),
    Option("label_time", COLUMN, None, _LATE, "state", metavar="COLUMN", needs=_LABELS,
           help=_TIMES),
    Option("on", NAMES, None, ("update", "add"), "state", metavar="ID",
           help="Id column of DATA and labels, which then arrive any time: id, or a,b (both must agree), or "
                "data_id=label_id."),
    Option("label_time", COLUMN, None, ("update", "add"), "state", metavar="COLUMN", needs="ids of labels",
           help=_TIMES),
    Option("labels_open", SPAN, "90d", ("update", "add"), "state", metavar="SPAN", needs="ids of labels",
           help="Close nights that are older than the newest by this span; later labels for them do not count."),
    Option("labels_as_of", MOMENT, None, _LATE, "state", metavar="TIME", needs=_LABELS,
           help="Use labels up to this time or the end of this date (UTC)."),
    Option("label_conflicts", choice("error", "latest", "drop"), "error", _LATE, "state", needs=_LABELS,
           help=_CONFLICTS),
    Option("label_conflicts", choice("error", "latest", "drop"), "error", ("update", "add"), "state",
           needs="ids of labels", help=_CONFLICTS),
    Option("rejects", FILE, None, _LATE, "nothing", metavar="FILE", needs=_LABELS,
           help="Write labels that were not used to a .csv or .parquet file, with the reason."),
    Option("rejects", FILE, None, ("update",), "nothing", metavar="FILE", needs=_LABELS,
           help="Write new labels that were not used to a .csv or .parquet file, with the reason; those that came "
                "before are not listed again."),
    Option("allow_unmatched", FLAG, False, (*_LATE, "update"), "nothing", needs=_LABELS,
           help="Accept labels of which none has the id of a row."),
    Option("sampled_by", ANY, None, _FOLD, "state", metavar="DESIGN", needs="scores",
           help="Estimate all rows from a sample of labels (null: not labelled), drawn uniform, strata=COLUMN (uniform "
                "in each) or size (whole units by their rows, with --unit)."),
    Option("label_probability", COLUMN, None, _FOLD, "state", metavar="COLUMN", needs="scores",
           help="Estimate all rows from a sample of labels, drawn with the recorded probabilities in this column."),
    Option("classes_sampled", COLUMN, None, _EVALUATE, "state", metavar="DESIGN", needs="classes",
           help="Estimate from a sample of classes, drawn uniform, by size (their rows), or with the probabilities in "
                "this column; classes outside it are null."),
    Option("clusters_sampled", COLUMN, None, _EVALUATE, "state", metavar="DESIGN", needs="classes",
           help="Estimate precisions from a sample of clusters, of which all rows have a class; beside sampled classes "
                "with the COLUMN of both."),
    Option("cluster_scope", choice("global", "partition"), "global", _IDS, "state",
           "Whether a cluster id means the same cluster everywhere, or only within its partition.", needs="clusters"),
    Option("common_rows", FLAG, False, _FOLD, "state",
           "Compare columns on common rows: leave out rows that lack one of the scores or cluster ids."),
    Option("where", FILTER, None, ("evaluate", "attribute", "update", "churn", "plan_labels"), "state",
           "Evaluate only rows that meet this SQL condition, such as \"country = 'DE' AND n_chars > 5\".",
           metavar="SQL"),
    Option("where", FILTER, None, ("show",), "value", metavar="SQL",
           help="Evaluate only these rows, such as \"country = 'DE'\"; uses the slices that the store keeps."),
    Option("by", NAMES, None, (*_FOLD, "add"), "state",
           "Evaluate each slice as well: country or country,channel or 'hour(sent_at)' or length=0,20,80; "
           "repeat for several.",
           metavar="COLUMN,…"),
    Option("timezone", ZONE, None, ("evaluate", "attribute"), "state", metavar="ZONE", needs="slices",
           help="Time zone of slices by hour, day, week or month, such as Europe/Berlin; times without a zone are UTC. "
           "[default: that of the column]"),
    Option("timezone", ZONE, None, ("update", "add"), "state", metavar="ZONE",
           help="Time zone of slices by hour, day, week or month, such as Europe/Berlin; times without a zone are UTC. "
           "Nights of several zones in the first update need it. [default: that of the column in the first night]"),
    Option("mean_over", COLUMN, None, _EVALUATE, "state",
           "Average score metrics over the groups of this column, such as users (GAUC).", needs="scores"),
    Option("mean_weight", choice("rows", "positives", "equal"), "rows", _EVALUATE, "value",
           "Weight of a group in the mean.", needs="groups"),
    Option("max_slices", whole_number("a whole number of at least 1", 1), 10_000, _EVALUATE, "nothing",
           "Refuse a slicing with more slices than this.", metavar="N", needs="slices"),
    Option("max_slices", whole_number("a whole number of at least 1", 1), 10_000, ("update",), "state",
           "Refuse a slicing with more slices than this, in a night or over nights.", metavar="N"),
    Option("max_slices", whole_number("a whole number of at least 1", 1), None, ("add",), "state", metavar="N",
           help="Refuse a slicing with more slices than this, from now on. [default: as the store]"),
    Option("ci", LEVEL, None, (*_LOOK, "add"), "value", metavar="[LEVEL]", bare=0.95,
           help="Sampling intervals at this level, by default 0.95; --unit, --baseline and --against imply it."),
    Option("ci", LEVEL, None, ("history",), "value", metavar="[LEVEL]", bare=0.95,
           help="Sampling intervals at this level. [default: as the store]"),
    Option("unit", UNIT, None, _EVALUATE, "state", metavar="COLUMN[,COLUMN]",
           help="Column of the sampling unit for --ci, such as the campaign: rows with the same value are sampled "
                "together; or two crossed ones, a,b. [default: each row is a unit]"),
    Option("unit", UNIT, None, ("update", "add"), "state", metavar="COLUMN",
           help="Column of the sampling unit for --ci, such as the campaign. Evaluate also takes two "
                "crossed ones, a,b."),
    Option("baseline", NAMES, None, _EVALUATE, "value", metavar="COLUMN",
           help="Compare the other score or cluster columns with this one; repeat for several."),
    Option("baseline", NAMES, None, ("show",), "value", metavar="COLUMN",
           help="Compare the other score or cluster columns with this one; repeat for several. To compare clusterings "
                "by aul, evaluate the files: a store does not keep the units of each cluster."),
    Option("against", choice("rest"), None, _EVALUATE, "value", needs="slices",
           help="Compare each of the 100 largest slices with all other rows."),
    Option("resample_bins", BINS, "2048", _EVALUATE, "state", metavar="N|exact",
           help="Number of score bins in which intervals count the blocks of units; exact keeps every score."),
    Option("approx", FLAG, False, _FOLD, "state",
           "Count scores in fixed bins: bounded memory, and bounds that contain the exact values.", needs="scores"),
    Option("approx_agc", FLAG, False, _FOLD, "state",
           "Add agc_approx: gain areas estimated from a sample in quantile bins.", needs="scores"),
    Option("sample", real_number("a share in (0, 1]"), 1.0, _FOLD, "state",
           "agc_approx: share of the rows to draw.", needs=_SAMPLE),
    Option("quantiles", whole_number("a number of bins from 1 to 1,000,000", 1, 10**6), 100, _LOOK, "value",
           "agc_approx: number of bins.", needs=_SAMPLE),
    Option("sample_by", choice("rows", "row_groups"), "rows", _EVALUATE, "state",
           "agc_approx: draw rows, or whole row groups; these read less, but are less precise if their rows are "
           "alike.", needs=_SAMPLE),
    Option("sample_seed", whole_number("a whole number"), 0, _FOLD, "state",
           "agc_approx: random seed of the sample.", needs=_SAMPLE),
    Option("passes", whole_number("1 or 2", 1), None, _EVALUATE, "state",
           "agc_approx: how often to read the data. [default: 2 where scores repeat or all rows are drawn]",
           needs=_SAMPLE),
    # stores
    Option("partition", NAMES, (), ("show", "check", "diagnose"), "value",
           "Only this partition, such as night=2026-01-15; repeat for several."),
    Option("against", ANY, None, ("show",), "value", metavar="FROM..TO|rest",
           help="Compare with the nights of these dates, such as 2026-01-01..2026-01-07, paired by units; or compare "
           "each of the 100 largest kept slices with all other rows."),
    Option("since", ANY, None, (*_CHOSEN, "add"), "value", "Only nights from this date on.", metavar="DATE"),
    Option("since", ANY, None, ("check",), "value", metavar="DATE",
           help="Also judge nights from this date on that were folded before a rule existed."),
    Option("until", ANY, None, _CHOSEN, "value", "Only nights up to the end of this date.", metavar="DATE"),
    Option("last", whole_number("a whole number of at least 1", 1), None, _CHOSEN, "value",
           "Only the last N of the selected partitions.", metavar="N"),
    Option("as_of", ANY, None, _CHOSEN, "value", "Use the content of the store at this time or version.",
           metavar="DATE|VERSION"),
    Option("verify", FLAG, False, ("update",), "nothing", "Read all files again and fold those that differ."),
    Option("verify", FLAG, False, ("info",), "nothing", "Read every file of the store and list damaged ones."),
    Option("dry_run", FLAG, False, ("update",), "nothing", "Only print what would be done."),
    Option("dry_run", FLAG, False, ("vacuum",), "nothing", "Only print what would be deleted and lost."),
    Option("keep", ANY, None, ("vacuum",), "state", metavar="SPAN",
           help="Turn exact scores of nights older than this, such as 90d, into histograms; "
           "earlier versions lose them."),
    Option("versions", ANY, None, ("vacuum",), "nothing", metavar="SPAN",
           help="Forget versions of STORE that were replaced longer ago than this, such as 90d."),
    Option("forget", ANY, None, ("vacuum",), "nothing", metavar="SPAN",
           help="Delete states that only versions need which were replaced longer ago than this, such as 30d."),
    Option("grace", ANY, "1d", ("vacuum",), "nothing", "Keep files younger than this.", metavar="SPAN"),
    Option("metric", NAMES, None, ("history",), "value", required=True,
           help="Metric, such as roc_auc or agc@0.01; repeat for several."),
    Option("of", NAMES, None, ("history",), "value",
           "Column of the metric; repeat for several. [default: all that have it]"),
    Option("by", NAMES, None, ("show",), "value", metavar="KEY,…",
           help="Also evaluate each slice that the store keeps, such as country; each night; or each value of another "
           "key in the partitions' names."),
    Option("by", NAMES, None, ("history",), "value", metavar="COLUMN,…",
           help="Show each slice that the store keeps, such as country."),
    Option("rules", NAMES, None, ("check",), "value", flag="rule",
           help="Rule, such as 'roc_auc[score] >= 0.97', or with --accept the name of one; repeat for several."),
    Option("again", FLAG, False, ("check",), "nothing", "Also judge nights that were judged before."),
    Option("mature", ANY, None, ("check",), "value", metavar="SPAN",
           help="Leave rules on labels pending for nights that ended less than this ago, such as 3d."),
    Option("allow_incomplete", FLAG, False, ("check",), "nothing", "Pass nights from which files were left out."),
    Option("columns", NAMES, None, ("remove",), "nothing", flag="column", metavar="NAME",
           help="Column to remove, with everything computed from it; repeat for several."),
    Option("storage_options", NAMES, None, (*_STORE, "drift"), "nothing", flag="storage", metavar="KEY=VALUE",
           help="Option of the S3 storage of STORE, such as AWS_ENDPOINT_URL=…; options for DATA go into its URI."),
    # how to run
    Option("memory", ANY, None, (*_RUN, *_HERE), "nothing",
           "Memory limit, such as 2GiB; on a cluster, for each worker. [default: a quarter of memory]"),
    Option("spill", DIRECTORY, None, (*_RUN, *_HERE), "nothing",
           "Directory for states that exceed --memory. [default: $TMPDIR or /var/tmp]", metavar="DIRECTORY"),
    Option("on_error", choice("raise", "skip"), "raise", (*_EVALUATE, "attribute"), "state",
           "What to do with files that cannot be read."),
    Option("delta_version", whole_number("a version of a Delta table, a whole number of at least 0", 0), None, _READ,
           "state", metavar="N", kept=False, help="Version of the Delta tables among DATA. [default: the current one]"),
    Option("snapshot", whole_number("the id of a snapshot, a whole number", 0), None, _READ, "state",
           metavar="ID", kept=False, help="Snapshot of the Iceberg tables among DATA. [default: the current one]"),
    Option("on_error", choice("raise", "skip"), "raise", ("update", "replace"), "nothing",
           "What to do with files that cannot be read: fail their night, or leave them out and mark the night "
           "incomplete. Refused values, such as nulls without a policy, always fail the night."),
    Option("threads", whole_number("a whole number of at least 1", 1), None,
           (*_RUN, "sketch", "simulate", *_HERE), "nothing",
           "Threads on this machine. [default: one per processor]"),
    Option("client", ANY, None, _CLUSTER,
           "nothing", "Run on the workers of this Dask scheduler, tcp://host:8786.", flag="scheduler",
           metavar="ADDRESS"),
    Option("scheduler_timeout", real_number("a number of seconds, at least 0", 0), 10.0,
           _CLUSTER, "nothing",
           metavar="SECONDS",
           help="Seconds to wait for the scheduler, and then for a first worker.", needs="a scheduler"),
    Option("progress", CALLBACK, None, (), "nothing", "Called with the rows folded and the total number of rows."),
)  # fmt: skip


@cache
def verb_options(verb: str) -> Mapping[str, Option]:
    """The options of a verb, by their names in Python.

    Examples
    --------
    >>> list(verb_options("vacuum"))
    ['dry_run', 'keep', 'versions', 'forget', 'grace', 'storage_options', 'memory', 'spill', 'threads']
    """
    in_python = verb == "evaluate"  # also takes options that no command has, such as progress
    return {option.name: option for option in OPTIONS if verb in option.verbs or (in_python and not option.verbs)}


def kept_options() -> dict[str, Option]:
    """The options that a store keeps: they determine its states, or the values computed from them by default."""
    return {name: option for name, option in verb_options("update").items() if _decides(option) and option.kept}


def complete_options(given: Mapping[str, object], verb: str = "evaluate") -> dict[str, Any]:
    """All options of a verb in plain form; those not given have their defaults.

    Raises
    ------
    OptionError
        If an option is unknown, has an invalid value, or has no effect because the input that it needs is not named.

    Examples
    --------
    >>> found = complete_options({"score": "score_lr"})
    >>> found["score"], found["nan"]
    (('score_lr',), 'error')
    >>> complete_options({"score": "score_lr", "aul_threshold": 2})
    Traceback (most recent call last):
    ...
    streameval.errors.OptionError: aul_threshold would change nothing without clusters: ...
    """
    for name in given:
        if name not in verb_options(verb):
            refuse(verb, name)
    options = {name: option.plain(given.get(name, option.default)) for name, option in verb_options(verb).items()}
    if verb == "evaluate" and not any(options[source] for source in ("score", "cluster", "sketch")):
        raise OptionError(
            "nothing to evaluate: name a score or a cluster column (--score, --cluster), or one to sketch (--sketch)"
        )
    check_policies(options, options, verb_options(verb))
    for need, idle in _idle(options, verb).items():
        if idle:
            remedy = NEEDS[need][1]
            named = [f"{o.name}={options[o.name]!r}" if o.idle else o.name for o in idle]
            raise OptionError(
                f"{' and '.join(named)} would change nothing without {need}: {remedy}", *(o.name for o in idle)
            )
    return options


def check_policies(given: Mapping[str, object], options: Mapping[str, object], known: Mapping[str, Option]) -> None:
    """Raise `OptionError` if a given option has a value for a column that is not among those of all options."""
    for option, value in ((known[name], value) for name, value in given.items() if isinstance(value, ByColumn)):
        columns = texts(option.of, options[option.of])
        for name, _ in value.columns:
            if columns and name not in columns:
                raise OptionError(
                    f"{option.name}: {unknown_column(name, columns, f'the columns of {option.of} are')}", option.name
                )


def active(options: Mapping[str, Any], verb: str = "evaluate") -> dict[str, Any]:
    """Plain options, with defaults for options without effect and without values for columns that are not evaluated.

    `verb` is the one whose rows say what has an effect: a store keeps ``max_slices`` for slices that are added later.

    Examples
    --------
    >>> active({"score": (), "cluster": ("id",), "approx": True, "aul_threshold": 2})
    {'score': (), 'cluster': ('id',), 'approx': False, 'aul_threshold': 2}
    >>> active({"by": (), "max_slices": 50}), active({"by": (), "max_slices": 50}, "update")
    ({'by': (), 'max_slices': 10000}, {'by': (), 'max_slices': 50})
    """
    options = {
        name: value.only(options[verb_options(verb)[name].of]) if isinstance(value, ByColumn) else value
        for name, value in options.items()
    }
    idle = {option.name: option.rest for several in _idle(options, verb).values() for option in several}
    return active({**options, **idle}, verb) if idle else dict(options)  # options that needed a reset one are idle now


def record_options(options: Mapping[str, object], verb: str = "evaluate") -> dict[str, object]:
    """The plain options that affect results and differ from their default, for `Evaluation.to_dict`.

    Examples
    --------
    >>> record_options(complete_options({"score": "a", "truncate": 0.1, "memory": "1GiB"}))
    {'score': ['a'], 'truncate': [0.1]}
    """
    return {
        name: as_json(value)
        for name, value in options.items()
        if _decides(verb_options(verb)[name]) and value != verb_options(verb)[name].rest
    }


def command(verb: str, data: Iterable[str], options: Mapping[str, object]) -> str:
    """The shell command that runs a verb with these plain options; options that do not affect results are omitted.

    Empty if the command line cannot express a value, such as a user-defined metric.

    Examples
    --------
    >>> command("evaluate", ["data"], complete_options({"score": "a b", "truncate": 0.1, "approx": True, "threads": 2}))
    "streameval evaluate data --score 'a b' --truncate 0.1 --approx"
    """
    spelled = words(verb, options)
    return "" if spelled is None else shell(["streameval", verb, *data, *spelled])


def words(verb: str, options: Mapping[str, object]) -> list[str] | None:
    """Plain options as command-line words; None if the command line cannot express a value."""
    spelled: list[str] = []
    for name, value in options.items():
        option = verb_options(verb)[name]
        if not _decides(option) or value == option.rest:
            continue
        for prefix, one in _split_prefixes(value, option.rest):
            if not isinstance(one, str | int | float):
                return None
            spelled += [option.spelling] if one is True else [option.spelling, f"{prefix}{as_json(one)}"]
    return spelled


def _split_prefixes(value: object, rest: object) -> list[tuple[str, object]]:
    """Pairs of ``COLUMN=`` prefix (empty for all columns) and value, one for each occurrence of the option."""
    if isinstance(value, ByColumn):
        others = [] if value.others == rest else _split_prefixes(value.others, rest)
        return others + [(f"{name}=", one) for name, own in value.columns for _, one in _split_prefixes(own, rest)]
    return [("", one) for one in (value if isinstance(value, tuple) else (value,))]


def result_key(options: Mapping[str, object]) -> str:
    """The part of a cached result's key that depends on options: all plain options that affect results.

    Examples
    --------
    >>> one, other = complete_options({"score": "a"}), complete_options({"score": "a", "truncate": 0.1})
    >>> result_key(one) == result_key(complete_options({"score": ["a"], "threads": 1})) != result_key(other)
    True
    """
    deciding = {name: as_json(value) for name, value in options.items() if _decides(verb_options("evaluate")[name])}
    return json.dumps(deciding, sort_keys=True)


def refuse(verb: str, name: str, names: Iterable[str] | None = None, where: str = "") -> NoReturn:
    """Raise `OptionError` for an option that a verb does not have; the message suggests a similar one.

    Parameters
    ----------
    verb, name : the verb and the unknown option
    names : the options of the verb, by default those of the table
    where : prefix of the message, such as a file

    Examples
    --------
    >>> refuse("evaluate", "trunkate")
    Traceback (most recent call last):
    ...
    streameval.errors.OptionError: evaluate takes no option 'trunkate'; did you mean 'truncate'?
    """
    from difflib import get_close_matches

    names = list(verb_options(verb) if names is None else names)
    verbs = dict.fromkeys(v for option in OPTIONS if option.name == name for v in option.verbs)
    msg = f"{where}{verb} takes no option {name!r}"
    if close := get_close_matches(name, names, 1, 0.9 if verbs else 0.6):
        msg += f"; did you mean {close[0]!r}?"
    else:
        msg += f", which belongs to {few(list(verbs))}" if verbs else ""
        msg += f"; it takes {', '.join(names)}"
    raise OptionError(msg)


def _idle(options: Mapping[str, object], verb: str) -> dict[str, list[Option]]:
    """The options without effect, by the absent input that they need."""
    table = verb_options(verb)
    named = [table[name] for name, value in options.items() if table[name].idles(value)]
    there = {need: options.get(source) for need, (source, _) in NEEDS.items()}
    there["labels"] = there["labels"] or (verb == "attribute" and options.get("by"))
    absent = [need for need, value in there.items() if not value]
    return {need: [option for option in named if option.needs == need] for need in absent}


def _decides(option: Option) -> bool:
    return option.decides != "nothing"


def as_json(value: object) -> object:
    """A plain value as a JSON value: 2 for 2.0, text for bytes, and the name of a metric object."""
    if isinstance(value, ByColumn):
        return {name: as_json(item) for name, item in value.to_dict().items()}
    if isinstance(value, tuple):
        return [as_json(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str | bytes):  # text may stand for bytes, see `LabelSpec.pos_label`
        raw = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value
        return text_of_bytes(raw)
    if value is None or isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return str(getattr(value, "name", value))
