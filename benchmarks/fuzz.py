"""Random tables, options and histories against exact fractions; damaged stores; commands and arguments without sense.

    python benchmarks/fuzz.py --seconds 60 --seed 1
    python benchmarks/fuzz.py --cuts 100                # as root

Prints the numbers of cases and refusals by kind, and every wrong number with its seed; ``--only KIND`` runs cases of
one kind, and ``--only KIND SEED`` that case again. Instead of these, ``--cuts`` cuts the power after and during each
verb that writes (`fuzzing.cuts`), and ``--corpora`` reads public files (`fuzzing.corpora`). The status is 1 if there is
a wrong number, or an error other than a `StreamevalError`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from fuzzing.arguments import arguments_case
from fuzzing.attributions import attribution_case
from fuzzing.batches import batches_case
from fuzzing.cases import Tally
from fuzzing.command_lines import command_case
from fuzzing.corpora import judge_all
from fuzzing.cuts import cut_all
from fuzzing.pages import pages_case
from fuzzing.pruning import pruning_case
from fuzzing.selections import client_case, close_client, selection_case, version_case
from fuzzing.settings import settings_case
from fuzzing.slices import mean_case, slice_case, units_case, where_case
from fuzzing.stores import damage_case, history_case
from fuzzing.stores_by_slice import sliced_history_case
from fuzzing.tables import table_case

KINDS = {  # with how many there are of each
    "table": (table_case, 12),
    "slices": (slice_case, 4),
    "where": (where_case, 3),
    "means": (mean_case, 3),
    "units": (units_case, 2),
    "attribution": (attribution_case, 3),
    "batches": (batches_case, 3),
    "settings": (settings_case, 1),
    "history": (history_case, 1),
    "sliced history": (sliced_history_case, 1),
    "damage": (damage_case, 1),
    "selection": (selection_case, 1),
    "version": (version_case, 2),
    "client": (client_case, 3),
    "command": (command_case, 6),
    "arguments": (arguments_case, 12),
    "pruning": (pruning_case, 12),
    "pages": (pages_case, 4),
}


def run(seconds: float, seed: int, only: str | None = None, single: int | None = None) -> Tally:
    """Run cases of all kinds, or of one, for `seconds`; the seed of each follows from `seed`, or is a single one."""
    tally, end, number = Tally(), time.monotonic() + seconds, seed * 1_000_000
    dealt = [kind for kind, (_, often) in KINDS.items() for _ in range(often) if only in (None, kind)]
    dealt = [dealt[7 * i % len(dealt)] for i in range(len(dealt))]  # all kinds early
    while time.monotonic() < end:
        number += 1
        kind = dealt[number % len(dealt)]
        number = number if single is None else single
        with tempfile.TemporaryDirectory(prefix="streameval-fuzz-") as folder:
            before = len(tally.wrong)
            try:
                KINDS[kind][0](number, Path(folder), tally)
            except Exception as error:  # any unexpected error is a finding
                tally.wrong.append(f"{type(error).__name__}: {error}")
            tally.wrong[before:] = [f"{kind!r} {number}: {text}" for text in tally.wrong[before:]]
        tally.cases[kind] += 1
        if single is not None:
            break
    close_client()
    return tally


def main() -> None:
    """Run, and print the findings."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", metavar=("KIND", "SEED"), help="cases of one kind, or one case again")
    parser.add_argument("--cuts", type=int, help="power cuts of each verb")
    parser.add_argument("--corpora", nargs="+", type=Path, metavar="FOLDER", help="public files instead")
    given = parser.parse_args()
    if given.corpora:
        sys.exit(not judge_all(given.corpora))
    if given.cuts:
        sys.exit(not cut_all(given.cuts, given.seed))
    tally = run(given.seconds, given.seed, *(given.only or [])[:1], *map(int, (given.only or [])[1:2]))
    for title, counts in (("cases", tally.cases), ("refusals", tally.refusals)):
        print(f"{title}: {counts.total():,}")
        for kind, count in counts.most_common():
            print(f"  {count:6,}  {kind}")
    print(f"files with edited footers: {tally.files:,}")
    print(f"wrong: {len(tally.wrong):,}")
    for text in tally.wrong:
        print(f"  {text}")
    sys.exit(bool(tally.wrong))


if __name__ == "__main__":
    main()
