"""The commands of a store.

Heavy modules are imported inside the functions that use them, which keeps ``--help`` fast.
"""

from __future__ import annotations

import os
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast

import click

from streameval.cli import console
from streameval.cli.console import PLAIN, Output, as_json, emit, is_piped, note, progress_bar, stack_tables, table
from streameval.cli.options import SELECTION, options, toml_of
from streameval.errors import OptionError
from streameval.options import verb_options
from streameval.wording import few, plural, shell, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rich.console import RenderableType

    from streameval.store import Check, Store, Update
    from streameval.store.nights.diagnosis import Diagnosis
    from streameval.store.nights.history import Histories


_STORE = click.argument("store")
_DATA = click.argument("data", nargs=-1, required=True)
_RUN = ("memory", "spill", "threads", "client", "scheduler_timeout")


def reads_store(verb: str, formats: Sequence[str] = console.PAGES) -> Callable[[Callable[..., None]], click.Command]:
    """Declare a command that reads a store, from the function that runs it and shows the results.

    The function is called with the open store, the destinations and the options that were given; with ``--plan``, the
    command prints instead what would be read.

    Parameters
    ----------
    verb : name of the command
    formats : suffixes of the files of ``--out``
    """

    def declare(function: Callable[..., None]) -> click.Command:
        @click.command(verb)
        @click.argument("store")
        @options(verb)
        @wraps(function)
        def command(store: str, plan_only: bool = False, **asked: object) -> None:
            to = Output.take(asked, formats)
            opened = open_store(store, asked)
            if plan_only and {"accepted", "why"} & asked.keys():
                raise OptionError(
                    "plan_only=True would change nothing: accepting reads no data; leave it out", "plan_only"
                )
            if plan_only:
                tell_plan(opened, verb, {name: asked[name] for name in asked if name in verb_options(verb)}, to)
            else:
                function(opened, to, **asked)

        return command

    return declare


def open_store(path: str, asked: dict[str, Any], progress: Callable[..., None] | None = None) -> Store:
    """Open the store; the options of its constructor are removed from `asked`."""
    from streameval.store import Store

    storage = _storage(asked.pop("storage_options", ()))
    return Store(
        path, storage_options=storage, progress=progress, **{name: asked.pop(name) for name in _RUN if name in asked}
    )


def _storage(texts: Sequence[str]) -> dict[str, str]:
    """Parse the ``KEY=VALUE`` pairs of ``--storage``."""
    pairs = [text.partition("=") for text in texts]
    for key, equals, _ in pairs:
        if not equals:
            raise click.BadParameter(f"{key}: write KEY=VALUE", param_hint="--storage")
    return {key: value for key, _, value in pairs}


def add_storage(data: Sequence[str], asked: dict[str, Any]) -> tuple[str, ...]:
    """Add the options of ``--storage`` to the URIs of the inputs; they are removed from `asked`."""
    from streameval.evaluation.files import with_storage

    storage = _storage(asked.pop("storage_options", ()))
    return tuple(with_storage(data, storage)) if storage else tuple(data)


def store_named(
    data: tuple[str, ...], asked: dict[str, Any], progress: Callable[..., None] | None = None
) -> Store | None:
    """The store that is named in place of data; None if the first input is data.

    The options of the store's constructor are removed from `asked`.

    Raises
    ------
    OptionError
        If nights are selected but the first input is not a store.
    """
    from streameval.evaluation.files import is_pattern

    first, store = data[0], None
    if not _is_local_data(first):
        with suppress(OptionError):  # a store is on a local disk or on S3
            store = None if is_pattern(first) else open_store(first, dict(asked), progress)
    if store is None or not store.exists():
        if name := next((name for name in SELECTION if name in asked), ""):
            raise OptionError(
                f"{first}: {name}=… selects nights of a store, and this is not a store; name files, or a store", name
            )
        return None
    for name in (*_RUN, "storage_options"):
        asked.pop(name, None)
    return store


def _is_local_data(path: str) -> bool:
    """Whether a local path is not a store; decided without importing the store's modules.

    A path that may not be read is data, whose reader says so. A table named ledger may be another one than a store's.
    """
    folder = Path(path)
    with suppress(RuntimeError):  # ~name, if no user has that name
        folder = folder.expanduser()
    with suppress(PermissionError):
        log = Path(os.path.normpath(folder.absolute()), "ledger", "_delta_log")
        newest = sorted(log.glob("*.json"))[-3:]  # the last one may be damaged
        own = not newest or any(b"streameval" in commit.read_bytes() for commit in newest)
        return "://" not in path and not (log.is_dir() and own)
    return True


@click.command()
@_STORE
@click.argument("data", nargs=-1)
@options("update")
def update(**asked: Any) -> None:
    """Fold new and changed partitions of DATA into STORE, and labels that arrive later (--labels).

    The first update names the columns and options; later updates need none.
    """
    if not ("data" in asked or "labels" in asked):
        raise click.UsageError("name DATA, or files of labels (--labels)")
    _change("update", **asked)


@click.command()
@_STORE
@_DATA
@options("replace")
def replace(**asked: Any) -> None:
    """Fold corrected partitions of DATA into STORE again."""
    _change("replace", **asked)


@click.command()
@_STORE
@click.argument("names", metavar="[PARTITION]...", nargs=-1)
@options("remove")
def remove(**asked: Any) -> None:
    """Remove partitions, such as night=2026-01-11, or columns from STORE.

    A later update that finds the files of a partition folds them again.
    """
    if not ("names" in asked or "columns" in asked):
        raise click.UsageError("name a PARTITION, or a column (--column)")
    _change("remove", **asked)


@click.command()
@_STORE
@click.argument("data", nargs=-1)
@options("add")
def add(**asked: Any) -> None:
    """Add columns or metrics to STORE; only new columns are folded.

    DATA names the files of the nights, if they have moved.
    """
    _change("add", **asked)


@click.command()
@_STORE
@options("vacuum")
def vacuum(store: str, quiet: bool = False, **asked: Any) -> None:
    """Delete files that STORE no longer needs, and merge old nights."""
    opened = open_store(store, asked)
    done = opened.vacuum(**asked)
    if not quiet:
        note(f"{opened.name}: {done}")


def _change(verb: str, store: str, quiet: bool = False, plan_only: bool = False, **asked: Any) -> None:
    """Run a verb that changes partitions or columns of a store, and print a summary on stderr."""
    with progress_bar(quiet) as advance:
        opened = open_store(store, asked, advance)
        if "data" in asked:
            asked["data"] = list(asked["data"])
        if plan_only:
            tell_plan(opened, verb, asked, Output(quiet=quiet))
            return
        done: Update = getattr(opened, verb)(**asked)
    if quiet:
        return
    rows = f"; {plural(done.rows, 'row')} folded" if done.rows else ""
    version = f"version {done.version}" if done.version >= 0 else "no store yet"
    would = "would do: " if verb == "update" and asked.get("dry_run") else ""
    note(f"{opened.name}: {would}{done}{rows}; {version}")
    if done.keeps:
        note(f"{opened.name} {done.keeps}")


def tell_plan(store: Store, verb: str, asked: Mapping[str, object], to: Output) -> None:
    """Print what a verb would read and keep."""
    plan = store.plan(verb, **asked)
    to.deliver(lambda: as_json(plan.to_dict()), lambda: str(plan))


@reads_store("show")
def show(store: Store, to: Output, **asked: Any) -> None:
    """Evaluate nights of STORE from their states, without reading the data.

    By default all nights are evaluated together; --by night adds each night.
    """
    found = store.evaluate(**asked)
    there = {one.of for one in found.results}
    for cluster in asked.get("cluster", ()):
        if "metrics" in asked and cluster not in there:
            refuse_cluster(cluster)
    to.deliver_evaluation(found)


def refuse_cluster(name: str) -> NoReturn:
    """Raise `OptionError` for a cluster column of which nothing is computed."""
    raise OptionError(
        f"cluster={name!r} would change nothing: none of its metrics was asked for; leave it out, or add one "
        "(--metric aul)",
        "cluster",
    )


@reads_store("info", PLAIN)
def info(store: Store, to: Output, with_versions: bool = False, **asked: Any) -> None:
    """Show the content of STORE, incomplete nights and failures.

    --versions lists past changes with their times (UTC), newest first. --verify reads every file and exits with
    status 1 if one is damaged.
    """
    content = store.info(**asked)
    facts, lines, parts = content.to_dict(), list(content.lines()), [content.render(plain=is_piped())]
    if with_versions:
        facts["versions"] = [
            fact | {"when": fact["when"].isoformat(timespec="milliseconds").replace("+00:00", "Z")}
            for fact in store.versions()
        ]
        rows = [[str(fact["version"]), fact["when"], fact["action"]] for fact in facts["versions"]]
        parts.append(table(["version", "when", "action"], rows, ["version"]))
        lines += [(f"version {number}", f"{when} {action}") for number, when, action in rows]
    to.deliver_rows(
        facts, lambda: [{"fact": name, "value": value} for name, value in lines], lambda: stack_tables(*parts)
    )
    if content.damaged:
        if not to.shows:
            note(f"damaged: {'; '.join(content.damaged)}")
        raise SystemExit(1)


@reads_store("history")
def history(store: Store, to: Output, nightly: bool = False, **asked: Any) -> None:
    """Show metrics of STORE night by night.

    Each night's value is followed by the value over all nights up to it, starting at --since or --last if given.
    """
    histories = cast("Histories", store.history(**asked, cumulative=not nightly))  # options that repeat are sequences
    results = histories if len(histories.series) > 1 else histories.series[0]
    for path in to.out:
        results.save(path)
    if to.plot is not None:
        histories.plot(to.plot)
    if to.csv_to is not None:
        emit(to.csv_to, results.to_csv())
    to.deliver(lambda: results.to_json(indent=2), lambda: histories.render(plain=is_piped()))


COMMANDS = (update, show, replace, remove, info, history, add, vacuum)


@reads_store("check", console.JUDGED)
def check(
    store: Store,
    to: Output,
    rules: tuple[str, ...] = (),
    rules_file: str | None = None,
    accepted: tuple[str, ...] = (),
    why: str | None = None,
    **asked: Any,
) -> None:
    """Judge new, changed and failed nights of STORE by rules; exit with status 3 unless all pass.

    'metric[column] >= x' (or >, <=, <) bounds a metric. 'metric[column] drop <= x' (or rise, change; x or x%) bounds
    how far a night may lie from the median of the last 7 good nights. Other rules bound rows, positives,
    nulls[column], age, missing nights, and how far scores moved: drift_ks[column] (also drift_w1, drift_psi).
    '{country=*}' after the column judges every slice.

    Slices stand in braces: 'roc_auc[score]{country=NG} >= 0.9', or {country=*} for each. 'a[x] - a[y] >= -0.01'
    compares two columns. A rule that ends in 'or undecided' passes where it cannot be judged, as in a new store.

    A rule that ends in '@95%' fails only if its whole sampling interval lies on the wrong side; one that ends in
    'proven @95%' fails unless the whole interval lies on the right side. Without an interval, such a rule is
    undecided. One that ends in 'always @95%' may be read every night: with a probability of at most 5 %, it fails in
    a year in which no night was truly beyond its bound, over all slices and all such rules ('always @95% each': this
    rule alone). It judges the means of the last 1, 7 and 28 nights; a pass prints what it would have shown.

    The usual value takes nights that passed, were accepted, or failed ten nights ago; --accept begins it anew.
    A night that failed keeps failing until it is replaced, removed or accepted.

    Exit status: 0 all rules pass; 1 the store or the run is at fault; 2 usage; 3 a rule failed or is undecided.
    """
    if accepted or why is not None:
        if to.out:
            raise OptionError("out=… would change nothing: accepting writes no results; leave it out")
        others = [*asked, *["rules_file"] * (rules_file is not None)]
        if not accepted or why is None or others:
            also = f"; {others[0]}= would change nothing" if others else ""
            raise OptionError(
                f"accepting takes --accept NIGHT and --reason TEXT, and --rule NAME to accept only some rules{also}"
            )
        judgements = store.accept(accepted, why, rules)
        lines = [f"accepted {one.partition}: {one.rule}" for one in judgements]
        to.deliver(lambda: as_json([one.to_dict() for one in judgements]), lambda: "\n".join(map(visible, lines)))
        return
    from streameval.report.nights import rule_lines

    outcome = store.check(read_rules(rules, rules_file), **asked)
    for path in to.out:
        outcome.save(path)
    nights = asked.get("partition", ())
    lines = rule_lines(outcome.judgements, with_night=len(nights) != 1)
    shown = [*lines, *outcome.notes, *_closing(store, outcome, nights)]
    to.deliver(lambda: as_json(outcome.to_dict()), lambda: "\n".join(map(visible, shown)))
    failures = rule_lines([one for one in outcome.judgements if not one.passed], with_night=len(nights) != 1)
    leave(outcome.passed, failures, to)


def leave(passed: bool, failures: Sequence[str], to: Output) -> None:
    """Exit with status 3 unless all rules passed; failures go to stderr if no table was printed to stdout."""
    for line in () if to.shows else failures:
        note(line)
    if not passed:
        raise SystemExit(3)


def imply_options(named: Mapping[str, str], asked: Mapping[str, Any]) -> dict[str, object]:
    """Options that rules imply; raises `OptionError`, before anything is read, if a rule's metric is not computed."""
    from streameval.evaluation.request import Request
    from streameval.evaluation.result import check_computed, complete_options, rules_of_data

    rules = rules_of_data(dict(named))
    columns = [*asked.get("score", ()), *asked.get("cluster", ())]
    for rule in rules:
        if rule.level is not None and rule.than not in (None, *columns):
            raise OptionError(f"{rule.text!r}: {rule.than!r} is not evaluated; name it as well (--score, --cluster)")
    more = complete_options(rules, asked)
    check_computed(rules, Request.checked({**asked, **more}))
    return more


def read_rules(texts: Sequence[str], path: str | None) -> dict[str, str]:
    """The rules of the command line and of a file, by name."""
    from streameval.rules import Rule

    rules = {" ".join(text.split()): text for text in texts}
    for name, text in (toml_of(path, "--rules") if path is not None else {}).items():
        if not isinstance(text, str):
            raise OptionError(f"--rules {path}: {name} must be a rule in quotes, such as 'roc_auc[score] >= 0.97'")
        try:
            Rule.read(text, name)
        except OptionError as error:
            raise OptionError(f"--rules {path}: {name}: {error}") from None
        rules[name] = text
    return rules


def _closing(store: Store, found: Check, named: Sequence[str]) -> list[str]:
    """Closing lines: other unusual facts of the newest failing night, and the next command to run."""
    absent = ("present", "folded")  # rules that nights fail which the store lacks
    there = list(dict.fromkeys(one.partition for one in found.judgements if not one.passed and one.rule not in absent))
    which, name = f"{there[-1]}: " if there and len(named) != 1 else "", shell([store.name])
    lines = [which + "; ".join(found.odd)] if found.odd else []
    pending = {one.partition for one in found.judgements if one.outcome == "pending"}
    if not found.judged and found.passed:
        covered = f"{plural(found.nights - len(pending), 'night')} up to {found.partition}"
        waiting = f"; labels of {plural(len(pending), 'night')} are not mature" if pending else ""
        lines.append(f"nothing new to judge in {covered}{waiting}")
    if len(there) > 1:
        failed = {one.partition for one in found.judgements if one.outcome == "failed"}
        verb = "fail" if failed.issuperset(there) else "fail or are undecided" if failed & {*there} else "are undecided"
        lines.append(f"{len(there)} nights {verb} ({few(there)}): streameval diagnose {name} explains all")
    if undecided := {one.partition for one in found.judgements if one.outcome == "undecided" and not one.passed}:
        lines.append(
            f"undecided: {plural(len(undecided), 'night')}, too few earlier nights or no interval to judge by; a rule "
            "that ends in 'or undecided' lets them pass"
        )
    if there:
        lines.append(f"next: streameval diagnose {name} --partition {shell([there[-1]])}")
    elif not found.passed:
        unfolded = [one.partition for one in found.judgements if one.rule == "folded" and not one.passed]
        accept = f", or {_accepting(name, unfolded[-1])}" if unfolded else ""
        lines.append(f"next: streameval update {name} DATA{accept}")
    return lines


@reads_store("diagnose", PLAIN)
def diagnose(store: Store, to: Output, with_all: bool = False, **asked: Any) -> None:
    """Report what is unusual in nights of STORE, by default in those that fail or are undecided.

    Rows, positives, nulls by column and by file, quantiles of scores and sizes of clusters are compared with the median
    of the last 7 good nights, largest change first. If the store keeps slices, those whose share or metric
    moved most are listed as well; if it keeps a unit, metrics of all rows, with intervals. The clusters and classes
    whose cost rose most follow.
    """
    nights = store.diagnose(**asked)
    facts = [night.to_dict() for night in nights]
    to.deliver_rows(
        facts,
        lambda: [{"partition": night["partition"]} | finding for night in facts for finding in night["findings"]],
        lambda: stack_tables(
            *(part for night in nights for part in _diagnosis_parts(store, night, None if with_all else _MOST_FACTS)),
            *[] if nights else ["no night fails; name one with --partition"],
        ),
    )


def _accepting(name: str, night: str) -> str:
    """The command that accepts the failures of a night."""
    return f"streameval check {name} --accept {shell([night])} --reason '…'"


_MOST_FACTS = 10


def _diagnosis_parts(store: Store, one: Diagnosis, most: int | None) -> list[RenderableType]:
    """A diagnosis with at most `most` facts, and the remedy."""
    from streameval.store.nights.judgements import is_live

    name = shell([store.name])
    accept = _accepting(name, one.partition)
    live = one.fails and all(map(is_live, one.rules))
    lasting = f"{f'fold newer nights (streameval update {name} DATA)' if live else 'replace or remove the night'}, or "
    remedy = f"next: {lasting * bool(one.fails)}{accept}"
    if one.undecided:
        remedy += "; a rule that ends in 'or undecided' lets such nights pass"
    return [one.render(plain=is_piped(), most=most), *([remedy] if one.fails or one.undecided else [])]


@click.command()
@click.argument("data", metavar="STORE|DATA...", nargs=-1, required=True)
@options("drift")
def drift(data: tuple[str, ...], plan_only: bool = False, **asked: Any) -> None:
    """Compare the scores of nights of STORE, or of files, with those of other nights, without labels.

    ks is the largest difference of the distribution functions, w1 the area between them in units of the score, psi the
    population stability index over ten bins of the nights --against. Rows count once, whatever their weight. With a
    unit, ks and w1 have a p-value and a lower end at 95 %, and psi the value that it has without drift. Of a store
    that leaves out unlabelled rows, the labelled ones are compared. The night of a file is the date of its folder
    (night=2026-01-31), or in its name.
    """
    from streameval.store.store import drift as compare

    to = Output.take(asked, PLAIN)
    store = store_named(data, {name: asked[name] for name in asked if name not in SELECTION})
    if plan_only and store is None:
        raise OptionError("plan_only=True: only nights of a store are planned; leave it out", "plan_only")
    if store is not None and len(data) > 1:
        raise click.UsageError("name one STORE, or files")
    if store is not None and plan_only:
        tell_plan(store, "drift", {name: asked[name] for name in asked if name in verb_options("drift")}, to)
        return
    source = list(add_storage(data, asked)) if store is None else data[0]
    if "storage_options" in asked:
        asked["storage_options"] = _storage(asked["storage_options"])
    with progress_bar(to.quiet) as advance:
        result = compare(source, progress=advance, **asked)
    facts = result.to_dict()
    to.deliver_rows(facts, lambda: [facts], lambda: result.render(plain=is_piped()))


@reads_store("maturity", (*PLAIN, "html"))
def maturity(store: Store, to: Output, **asked: Any) -> None:
    """Show what a metric of each night of STORE was while its late labels arrived.

    For each night and age: the share of rows that had a label, the share of these that are positive, the metric with
    the labels up to that age, and its change to today. The age of a label is its time, or else the end of the newest
    night at its arrival, less the end of its night. A night has reached an age once the newest night ended, or the
    latest label was given, that much later. The last rows are of all nights that reached the largest age: shares of all
    their rows, and means over the nights with a value at every age. A night that closed for late labels keeps the
    values of the store's metrics at the default ages up to then.
    """
    result = store.maturity(**asked)
    for path in to.out:
        result.save(path)
    if to.plot is not None:
        result.plot(to.plot)
    to.deliver(lambda: result.to_json(indent=2), lambda: result.render(plain=is_piped()))


GATES = (check, diagnose, drift, maturity)
