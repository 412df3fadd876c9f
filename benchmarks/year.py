"""A year of nights as a scheduler would run it, by the command line: alarms compared with planted faults.

    python benchmarks/year.py [--nights 365] [--rows 2000]
    python benchmarks/year.py --alarms [--years 2000] [--wide 400] [--seconds 100] [--out alarms.jsonl]
    python benchmarks/year.py --drift [--draws 400]
    python benchmarks/year.py --labels [--nights 365] [--rows 200000]

Each night is written, folded by ``update --on-error skip`` and judged by ``check``; a check that fails is retried once,
and then, as a person would, the night is repaired (the planted fault is removed) or accepted. The planted faults are a
missing night, late nights, corrected labels, a damaged file, a column that joins the schema, a score that breaks for
three nights, a killed update, and two concurrent updates. The status is 1 if an alarm is missing, lost by the retry, or
false. With ``--alarms``, years are simulated instead, for rules that end in ``always`` (`alarms.py`): the status is 1
if false alarms or delays exceed their limits, or years are missing; run again, it goes on. With ``--drift``, draws
without drift are compared: the status is 1 if the tests at 5 % see one in less than 2 or more than 8 % of them. With
``--labels``, labels come late (`late_year.py`): the status is 1 if a state differs from that of the joined files.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import alarms
import late_year
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from click.testing import CliRunner

from streameval.cli import main

RULES = {
    "auc_floor": "roc_auc[score] >= 0.85",
    "auc_drop": "roc_auc[score] drop <= 0.05 or undecided",
    "rows_drop": "rows drop <= 50% or undecided",
    "gap": "missing == 0",
}
BROKEN = 3  # nights in a row


def run(*words: object) -> Any:
    """Run a command in this process."""
    return CliRunner().invoke(main, [str(word) for word in words])


def words_of(*words: object) -> list[str]:
    """A command for a separate process."""
    return [sys.executable, "-m", "streameval", *map(str, words)]


def write(night: str, data: Path, rows: int, *, broken: bool = False, extra: bool = False) -> None:
    """A night in two files; labels, a score that tells them apart (or does not), clusters."""
    rng = np.random.default_rng(int.from_bytes(night.encode()[-8:], "little"))
    label = rng.random(rows) < 0.1
    score = rng.normal(label * (0.0 if broken else 2.2), 1.0)
    columns = {"label": label, "score": score, "cluster": rng.integers(0, rows // 3, rows)}
    columns |= {"country": rng.integers(0, 5, rows)} if extra else {}
    (data / night).mkdir(parents=True, exist_ok=True)
    table = pa.table(columns)
    for i in (0, 1):
        pq.write_table(table.slice(i * rows // 2, rows // 2), data / night / f"part-{i}.parquet")


def plan(nights: int) -> dict[str, Any]:
    """Planted faults by the number of the night."""
    at = {name: round(nights * share) for name, share in (("missing", 0.2), ("bad file", 0.35), ("broken", 0.55))}
    quiet = {name: round(nights * share) for name, share in (("late", 0.28), ("labels", 0.42), ("column", 0.7))}
    return at | quiet | {"kill": round(nights * 0.78), "twice": round(nights * 0.88)}


def replay(nights: int, rows: int, folder: Path) -> tuple[list[tuple[str, str]], list[tuple[str, str]], list[float]]:
    """Run the nights; returns (night, rule) planted and found, and seconds of each night's update and check."""
    data, store, rules, due = folder / "data", folder / "store", folder / "rules.toml", plan(nights)
    rules.write_text("".join(f'{name} = "{text}"\n' for name, text in RULES.items()))
    planted, found, took = list[tuple[str, str]](), list[tuple[str, str]](), list[float]()
    update = (
        "update",
        store,
        data,
        "--label",
        "label",
        "--score",
        "score",
        "--cluster",
        "cluster",
        "--on-error",
        "skip",
    )
    rng = np.random.default_rng(1)
    for i in range(nights):
        night = f"night={date(2026, 1, 1) + timedelta(days=i)}"
        if i in (due["missing"], due["late"]):
            later = f"night={date(2026, 1, 2) + timedelta(days=i)}"
            planted.append((later, "gap"))  # noticed when the next night is there
            continue
        write(night, data, rows, broken=0 <= i - due["broken"] < BROKEN, extra=i >= due["column"])
        if i == due["bad file"]:
            (data / night / "part-1.parquet").write_bytes(b"PAR1")
            planted.append((night, "complete"))
        if 0 <= i - due["broken"] < BROKEN:
            planted += [(night, "auc_floor"), (night, "auc_drop")]
        if i == due["labels"]:
            write(f"night={date(2026, 1, 1) + timedelta(days=i - 3)}", data, rows)
        if i == due["kill"]:
            process = subprocess.Popen(words_of(*update), stderr=subprocess.DEVNULL)
            time.sleep(float(rng.uniform(0.2, 1.5)))
            process.send_signal(signal.SIGKILL)
            process.wait()
        if i == due["twice"]:
            both = [subprocess.Popen(words_of(*update), stderr=subprocess.DEVNULL) for _ in range(2)]
            assert sorted(process.wait() for process in both)[0] == 0
        began = time.perf_counter()
        done = run(*update)
        assert done.exit_code == 0, done.stderr
        judged = run("check", store, "--rules", rules)
        took.append(time.perf_counter() - began)
        if judged.exit_code == 0:
            continue
        retried = run("check", store, "--rules", rules)
        assert retried.exit_code == 3, "the retry opened the gate"
        failing = [line.split() for line in judged.stdout.splitlines() if line.startswith("FAIL")]
        found += [(line[1], line[2]) for line in failing]
        repair(i, night, due, data, rows, {line[1] for line in failing}, store)
        assert run(*update).exit_code == 0
        assert run("check", store, "--rules", rules).exit_code == 0, run("check", store, "--rules", rules).stdout
    return planted, found, took


def repair(i: int, night: str, due: dict[str, Any], data: Path, rows: int, failing: set[str], store: Path) -> None:
    """The actions of a person: fetch the late night, repair the file, accept what cannot be repaired."""
    repaired = i in (due["late"] + 1, due["bad file"])
    if i == due["late"] + 1:
        write(f"night={date(2026, 1, 1) + timedelta(days=i - 1)}", data, rows)
    if i == due["bad file"]:
        write(night, data, rows)
    if not repaired:
        for name in failing:
            done = run("check", store, "--accept", name, "--reason", "known")
            assert done.exit_code == 0, done.stderr


def report(planted: list[tuple[str, str]], found: list[tuple[str, str]], took: list[float]) -> bool:
    """Print alarms beside what was planted; whether they agree."""
    for night, rule in sorted({*planted, *found}):
        state = ("planted" if (night, rule) in planted else "FALSE", "found" if (night, rule) in found else "LOST")
        print(f"{night}  {rule:10}  {state[0]:8}  {state[1]}")
    edge = max(1, len(took) // 10)
    first, last = sorted(took[1 : edge + 1])[edge // 2 - 1], sorted(took[-edge:])[edge // 2 - 1]
    print(f"{len(took)} nights; update and check took {first:.2f} s at first and {last:.2f} s at last (medians)")
    return set(planted) == set(found)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nights", type=int, default=365)
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--alarms", action="store_true", help="simulate rules that end in always")
    parser.add_argument("--labels", action="store_true", help="labels that come late, in other files")
    parser.add_argument("--years", type=int, default=2000, help="simulated years of one slice")
    parser.add_argument("--wide", type=int, default=400, help="simulated years of 20 slices")
    parser.add_argument("--seconds", type=float, default=3600, help="stop simulating years after this time")
    parser.add_argument("--out", type=Path, default=Path("alarms.jsonl"), help="simulated years, to go on with")
    parser.add_argument("--drift", action="store_true", help="simulate drift where there is none")
    parser.add_argument("--draws", type=int, default=400, help="simulated draws of each number of units")
    options = parser.parse_args()
    if options.drift:
        sys.exit(0 if alarms.report_drift(options.draws) else 1)
    if options.alarms:
        sys.exit(0 if alarms.report(options.years, options.wide, options.seconds, options.out) else 1)
    place = Path(tempfile.mkdtemp())
    try:
        if options.labels:
            agrees = late_year.replay(options.nights, options.rows, place)
        else:
            agrees = report(*replay(options.nights, options.rows, place))
    finally:
        shutil.rmtree(place)
    sys.exit(0 if agrees else 1)
