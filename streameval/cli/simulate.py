"""Commands that need no data: ``simulate`` and ``demo``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from streameval.cli.console import Output, note, piped, progress_bar, tell
from streameval.cli.options import options_of
from streameval.options import FLAG, NAMES, Kind, Option, choice, honoured, real_number, whole_number
from streameval.wording import plural


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
    honoured("simulate")["threads"],
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
    from pathlib import Path

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
    tell(render(evaluation, plain=piped()))
    note("Your own data: streameval evaluate DATA --label label --score score_a --cluster cluster")


COMMANDS = (simulate, demo)
