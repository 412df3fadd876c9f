"""Verbs on data: ``attribute``, ``churn``, ``plan-labels`` and ``sketch``; ``simulate`` and ``demo`` make their own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streameval.cli.console import PLAIN, Output, is_piped, note, progress_bar, table, tell
from streameval.cli.options import options, options_of
from streameval.cli.store import add_storage, store_named, tell_plan
from streameval.errors import OptionError
from streameval.options import FLAG, NAMES, Kind, Option, choice, real_number, verb_options, whole_number
from streameval.saving import check_writable
from streameval.wording import plural

if TYPE_CHECKING:
    from rich.console import RenderableType

    from streameval.states.scores.quantile_sketch import QuantileSketch

    Sketches = dict[tuple[str, str | None], QuantileSketch]  # by column and class, None for both classes

_QUANTILES = (0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1)


@click.command()
@click.argument("data", nargs=-1, required=True)
@options("attribute")
def attribute(
    data: tuple[str, ...], out: tuple[str, ...] = (), with_examples: bool = False, plan_only: bool = False, **asked: Any
) -> None:
    """Rank the clusters, classes and slices that cost most, in DATA or in a store.

    Merges and splits need --classes or --changed-from, impure clusters need --label, slices need --score and --by.
    If the first DATA is a store, the others are the files of its nights. They are needed for examples and to print
    string ids, of which a store keeps only hashes.
    """
    from streameval.evaluation.attribution import attribute as run
    from streameval.evaluation.attribution import forecasts
    from streameval.evaluation.cost_tables import check_target

    to = Output.take(asked)
    for path in out:
        check_target(Path(path))
    check_writable(*(path for path in out if Path(path).suffix and not Path(path).is_dir()))
    if with_examples and not ("examples" in asked and any(path.lower().endswith(".html") for path in out)):
        raise OptionError(
            "with_examples=True would change nothing without a page and examples: --out FILE.html --examples COLUMN"
        )
    data = add_storage(data, asked)
    with progress_bar(to.quiet) as advance:
        store = store_named(data, asked, advance)
        if plan_only:
            if store is not None:
                tell_plan(store, "attribute", asked, to)
            else:
                to.deliver_forecasts(forecasts(list(data), **asked))
            return
        if store is None:
            losses = run(list(data), progress=advance, **asked)
        else:
            losses = store.attribute(data=list(data[1:]) or None, **asked)
    for path in out:
        losses.save(path, with_examples=with_examples)
    to.deliver(lambda: losses.to_json(indent=2), lambda: losses.render(plain=is_piped()))


@click.command()
@click.argument("data", nargs=-1, required=True)
@options("churn")
def churn(data: tuple[str, ...], **asked: Any) -> None:
    """Count which clusters of an earlier clustering continue, and where their rows went.

    Rows of DATA have both ids. A pair of clusters is continued if each is the other's largest part. Another old cluster
    is absorbed if more than half of it went to one new cluster, else dispersed; another new one is split off if more
    than half of it came from one old cluster, else formed. ARI and V-measure: evaluate --classes with the earlier ids.
    """
    from streameval.evaluation.churn import churn as run

    to = Output.take(asked, PLAIN)
    with progress_bar(to.quiet) as advance:
        result = run(list(add_storage(data, asked)), progress=advance, **asked)
    facts = result.to_dict()
    to.deliver_rows(
        facts,
        lambda: [dict(zip(("fact", "value"), line, strict=True)) for line in result.lines()],
        lambda: result.render(plain=is_piped()),
    )


@click.command("plan-labels")
@click.argument("data", nargs=-1, required=True)
@options("plan_labels")
def plan_labels(data: tuple[str, ...], **asked: Any) -> None:
    """Plan which rows of DATA to label, so that metrics of all rows get narrow intervals.

    DATA, or the store of --pilot, has the labels of a pilot: a uniform sample of rows. Join the written probabilities
    to DATA by id, and evaluate the labels with --label-probability.
    """
    from streameval.store.label_plan import plan_labels as run

    to = Output.take(asked, PLAIN)
    with progress_bar(to.quiet) as advance:
        plan = run(list(add_storage(data, asked)), progress=advance, **asked)
    to.deliver_rows(plan.to_dict(), plan.ids.to_pylist, lambda: plan.render(plain=is_piped()))


@click.command()
@click.argument("data", nargs=-1, required=True)
@options("sketch")
def sketch(
    data: tuple[str, ...],
    column: tuple[str, ...],
    quantiles: tuple[float, ...] = _QUANTILES,
    by_label: bool = False,
    label: str | None = None,
    pos_label: str | None = None,
    plan_only: bool = False,
    **asked: Any,
) -> None:
    """Estimate quantiles of columns of numbers.

    NaN and nulls are counted separately.
    """
    from streameval.evaluation.quantile_sketch import forecasts, quantile_sketch, sketches_by_label
    from streameval.states.labels import LabelSpec

    to = Output.take(asked, PLAIN)
    for share in quantiles:
        if not 0 <= share <= 1:
            raise OptionError(f"--quantile {share:g} is not in [0, 1]")
    if not by_label and (label or pos_label):
        raise click.UsageError("--label and --pos-label need --by-label; add it")
    places, labels = list(add_storage(data, asked)), (label or "label", pos_label)
    if plan_only:
        spec = LabelSpec(*labels, "drop") if by_label else None
        to.deliver_forecasts(forecasts(places, column, spec, **asked))
        return
    sketches: Sketches = {}
    for name in column:
        with progress_bar(to.quiet) as advance:
            sketches[name, None] = quantile_sketch(places, name, progress=advance, **asked)
            classes = sketches_by_label(places, name, *labels, progress=advance, **asked) if by_label else {}
            sketches |= {(name, side): one for side, one in classes.items()}
    if to.plot is not None:
        from streameval.plots.comparisons import plot_quantiles

        shares = [i / 500 for i in range(501)]
        plot_quantiles({_name(key): (shares, one.quantile(shares)) for key, one in sketches.items()}, save_to=to.plot)
    values = {key: list(map(float, one.quantile(list(quantiles)))) for key, one in sketches.items()}
    facts = [
        {"column": key[0], **({"class": key[1]} if key[1] else {}), "count": one.count, "nan": one.nan}
        | {"quantiles": [{"q": q, "value": _finite(x)} for q, x in zip(quantiles, values[key], strict=True)]}
        for key, one in sketches.items()
    ]
    rows = [
        {"column": key[0], "class": key[1], "count": one.count, "nan": one.nan, "q": q, "value": None if x != x else x}
        for key, one in sketches.items()
        for q, x in zip(quantiles, values[key], strict=True)
    ]

    def shown() -> RenderableType:
        names = list(map(_name, sketches))
        lines = [
            [f"{q:g}", *(f"{x:.6g}" for x in line)]
            for q, line in zip(quantiles, zip(*values.values(), strict=True), strict=True)
        ]
        counts = ["rows", *(f"{one.count:,.0f}" for one in sketches.values())]
        return table(["quantile", *names], [*lines, counts], names)

    to.deliver_rows(facts, lambda: rows, shown)


def _name(key: tuple[str, str | None]) -> str:
    return " ".join(filter(None, key))


def _finite(value: float) -> float | str | None:
    """A number as a JSON value: NaN becomes null, an infinity becomes text."""
    return value if abs(value) < float("inf") else None if value != value else str(value)


def _row(name: str, kind: Kind, default: object, text: str, *, required: bool = False) -> Option:
    return Option(name, kind, default, ("simulate",), "value", text, required=required)


_DEMO_ROWS = 200_000
_WHOLE, _REAL = whole_number("a whole number"), real_number("a number")
SIMULATION = (
    _row("rows", _WHOLE, None, "Messages to write, such as 10_000_000.", required=True),
    _row("partitions", _WHOLE, 16, "Number of nights, one file each."),
    _row("seed", _WHOLE, 0, "Random seed."),
    _row("sizes", choice("gamma", "pareto"), "gamma", "Distribution of campaign sizes."),
    _row("shape", _REAL, None, "Shape of that distribution. [default: 0.5 for gamma, 1.5 for pareto]"),
    _row("mean", _REAL, 50.0, "Mean campaign size."),
    _row("positives", _REAL, 0.25, "Share of messages that are spam."),
    _row("lone_positives", _REAL, None,
         "Share of spam among messages outside any campaign. [default: at least a fifth of --positives]"),
    _row("label_error", _REAL, 0.0, "Share of labels flipped."),
    _row("singletons", _REAL, 0.3, "Share of messages outside any campaign."),
    _row("split", _REAL, 0.1, "Share of campaigns split into several clusters."),
    _row("join", _REAL, 0.05, "Share of campaigns joined with another."),
    _row("noise", _REAL, 0.01, "Share of campaign messages in a wrong cluster."),
    _row("missed", _REAL, 0.05, "Share of campaign messages left as singletons."),
    _row("auc_a", _REAL, 0.95, "ROC AUC of score_a."),
    _row("auc_b", _REAL, 0.85, "ROC AUC of score_b."),
    verb_options("simulate")["threads"],
    Option("overwrite", FLAG, False, ("simulate",), "nothing", "Replace an earlier simulation in OUT."),
    Option("quiet", FLAG, False, ("simulate",), "nothing", "Print no progress or summary."),
)  # fmt: skip
DEMO = (
    Option("rows", _WHOLE, _DEMO_ROWS, ("demo",), "value", "Messages to simulate."),
    Option("out", NAMES, (), ("demo",), "nothing", metavar="FILE",
           help="Write everything to a .json, .csv, .parquet or .html file; repeat for several."),
)  # fmt: skip


@click.command()
@click.argument("out")
@options_of(SIMULATION)
def simulate(out: str, rows: int, quiet: bool = False, **asked: Any) -> None:
    """Write simulated spam-clustering data to OUT.

    OUT becomes a directory of Hive-partitioned Parquet.
    """
    from streameval.simulation import simulate as run

    with progress_bar(quiet, rows) as advance:
        done = run(out, rows=rows, progress=advance, **asked)
    if not quiet:
        speed = f"{done.rows / max(done.seconds, 1e-9) / 1e6:.1f} M rows/s"
        size = f"{plural(done.rows, 'row')}, {done.bytes / 1e6:,.1f} MB"
        note(f"{done.path}: {size} in {done.seconds:.1f} s ({speed})")


@click.command()
@options_of(DEMO)
def demo(rows: int = _DEMO_ROWS, **asked: object) -> None:
    """Simulate a small data set, evaluate it, and print the table.

    With --out, the scores are compared as well: intervals over campaigns, differences and verdicts.
    """
    import tempfile

    from streameval.evaluation import evaluate as run
    from streameval.report.terminal import render
    from streameval.results import Source
    from streameval.simulation import simulate as make

    out = Output.take(asked).out
    with tempfile.TemporaryDirectory(prefix="streameval-demo-") as folder, progress_bar(False) as advance:
        made = make(Path(folder) / "data", rows=rows, partitions=14, singletons=0.7, lone_positives=0.02)
        more: dict[str, Any] = {"unit": "campaign", "baseline": "score_b"} if out else {}
        evaluation = run(made.path, score=["score_a", "score_b"], cluster="cluster", progress=advance, **more)
    messages, command = plural(made.rows, "simulated message"), f"streameval demo --rows {made.rows} --out FILE"
    for path in out:
        replace(evaluation, source=Source((messages,), 0, command)).save(path)
    note(f"{messages} in {made.partitions} nightly partitions, {made.bytes / 1e6:.1f} MB of Parquet")
    tell(render(evaluation, plain=is_piped()))
    note("Your own data: streameval evaluate DATA --label label --score score_a --cluster cluster")


COMMANDS = (attribute, churn, plan_labels, sketch, simulate, demo)
