"""Simulated nights: false alarms and delays of rules that are read every night, and the size of the tests of drift.

Run by ``python benchmarks/year.py --alarms`` and ``--drift``. The units of a night lie in 128 blocks by their numbers;
each night is the mean of its units' effects, on the scale of an AUC of 0.8, and its replicates leave out a block. With
`carry`, the effect of a unit is an AR(1) series over nights, as of campaigns that last. Some years are judged together,
night by night, by `streameval.evaluation.alarms`, on arrays that stay in the caches of a processor; their seed is the
number of this share of the years. Shares of all cases take turns and are appended to a file, which a later run goes on
with.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.special import logit
from scipy.stats import beta

from streameval.evaluation.alarms import (
    PAST,
    WINDOWS,
    Drift,
    End,
    Series,
    Window,
    distances,
    find_end,
    level_of,
    units_of_blocks,
    variance,
    windows,
    with_error,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ALPHA, BOUND, SPREAD, BLOCKS = 1 - 0.95, 0.8, 0.05, 128
NIGHTS, BEFORE = 365, 60  # BEFORE: nights before a fall
COLUMNS = 80  # years times slices of one share
DELAYS = {1.0: (20, 30), 2.0: (8, 10), 4.0: (3, 5)}  # most nights to an alarm by the fall, for 1 and 1,000 slices


@dataclass(frozen=True)
class Case:
    """One shape of data: slices, units of a night, and how much of an effect the next night has."""

    slices: int
    units: int
    carry: float = 0.0
    fall: float = 0.0  # in standard errors of a night, lasting
    nights: int = NIGHTS
    unmoved: int = 0  # slices of the rule that are not simulated

    def __str__(self) -> str:
        moved = f" fall of {self.fall:g} se" if self.fall else ""
        return f"S={self.slices + self.unmoved:<4} units={self.units:<4} AR={self.carry:<3g}{moved}"


class Share(NamedTuple):
    """Some years of a case."""

    case: Case
    seed: int
    years: int


def nights_of(share: Share) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Of each night the values of the columns, years and slices; those without each block; and the rows of blocks."""
    case, rng, columns = share.case, np.random.default_rng(share.seed), share.years * share.case.slices
    held = (rng.integers(0, BLOCKS, case.units)[:, None] == np.arange(BLOCKS)).astype(float)
    rows = held.sum(axis=0)
    effects = rng.normal(size=(columns, case.units))
    for night in range(case.nights):
        if night:
            effects = case.carry * effects + np.sqrt(1 - case.carry**2) * rng.normal(size=effects.shape)
        moved = effects - (case.fall / np.sqrt(case.units) if night >= BEFORE else 0.0)
        total = moved.sum(axis=1)
        left = (total[:, None] - moved @ held) / (case.units - rows)
        yield BOUND + SPREAD * total / case.units, np.where(rows > 0, BOUND + SPREAD * left, np.nan), rows


def judged(share: Share) -> Iterator[tuple[dict[int, Window], np.ndarray]]:
    """Of each night the windows, and which columns have the floor that judgements need."""
    case, columns = share.case, share.years * share.case.slices
    level = level_of(ALPHA, case.slices + case.unmoved)
    days, (values, squares, freedom, units, floors) = np.arange(case.nights), np.full((5, case.nights, columns), np.nan)
    around = np.full((case.nights, columns, BLOCKS), np.nan, np.float32)
    for night, (value, left, rows) in enumerate(nights_of(share)):
        apart = left - value[:, None]
        values[night], around[night], units[night] = value, apart, units_of_blocks(rows)
        squares[night], freedom[night] = variance(apart)
        past, recent = (slice(max(0, night + 1 - nights), night + 1) for nights in (PAST + 1, PAST))
        facts = (each[past] for each in (days, values, squares, freedom, units))
        series = Series(*facts, around[recent], np.broadcast_to(rows.astype(np.float32), around[recent].shape))
        floors[night] = series.floors(len(series.days) - 1)[-1]
        yield windows(series, np.ones(len(series.days), bool), floors[past], level), ~np.isnan(floors[night])


def alarms(share: Share, signs: tuple[int, ...] = (1, -1)) -> dict[int, np.ndarray]:
    """The first night with an alarm of each year, by the side of the bound; the number of nights without one."""
    case, slices = share.case, share.case.slices
    first = {sign: np.full(share.years, case.nights) for sign in signs}
    for night, (recent, floored) in enumerate(judged(share)):
        for sign, found in first.items():
            far = [logit(w.value) + sign * w.reach / (w.value * (1 - w.value)) - logit(BOUND) for w in recent.values()]
            near = np.any([sign * end < 1e-9 for end in far], axis=0) & floored  # the others cannot fail
            for column in np.flatnonzero(near & np.repeat(found == case.nights, slices)).tolist():
                ends = (find_end(recent[width], column, "logit", BOUND, sign) for width in WINDOWS)
                if any(isinstance(end, End) and sign * (end.end - BOUND) < 0 for end in ends):
                    found[column // slices] = min(night, found[column // slices])
        if all((found < case.nights).all() for found in first.values()):
            break
    return first


def run(share: Share) -> dict[str, Any]:
    """The alarms of a share, as its line in the file."""
    first = alarms(share, signs=(1,) if share.case.fall else (1, -1))
    own = {("falls" if sign > 0 else "rises"): nights.tolist() for sign, nights in first.items()}
    return {"case": asdict(share.case), "seed": share.seed, **own}


def shares_of(years: int, wide: int) -> list[Share]:
    """The shares of all cases, in turns."""
    cases = {
        Case(slices, units, carry): n
        for slices, n in ((1, years), (20, wide))
        for units in (30, 128)
        for carry in (0.0, 0.5)
    }
    some = max(20, years // 10)
    cases |= {
        Case(1, units, fall=fall, nights=120, unmoved=more): some
        for more in (0, 999)
        for units in (30, 128)
        for fall in DELAYS
    }
    shares = []
    for case, number in cases.items():
        each = max(1, COLUMNS // case.slices)
        shares += [Share(case, seed, min(each, number - begin)) for seed, begin in enumerate(range(0, number, each))]
    return sorted(shares, key=lambda share: share.seed * share.years * share.case.slices)


def report(years: int, wide: int, seconds: float, out: Path) -> bool:
    """Simulate what the file lacks for at most some seconds; print false alarms and delays; whether all limits hold."""
    shares = {(share.case, share.seed): share for share in shares_of(years, wide)}
    lines = map(json.loads, out.read_text().splitlines()) if out.exists() else ()
    known = {(Case(**line["case"]), line["seed"]): line for line in lines}
    missing = [share for key, share in shares.items() if key not in known]
    until = time.monotonic() + seconds
    os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"  # of the processes of the pool
    with multiprocessing.get_context("spawn").Pool() as pool, out.open("a") as file:
        for line in pool.imap_unordered(run, missing) if missing else ():
            known[Case(**line["case"]), line["seed"]] = line
            file.write(json.dumps(line) + "\n")
            file.flush()
            if time.monotonic() > until:
                break
    good = True
    for case in dict.fromkeys(case for case, _ in shares):
        own = [line for key, line in known.items() if key in shares and key[0] == case]
        good &= len(own) == sum(key[0] == case for key in shares)
        for side in ("falls", "rises"):
            first = np.array([night for line in own for night in line.get(side, ())])
            if first.size:
                text, fine = _delay(case, first) if case.fall else _false_alarms(first)
                good &= fine
                print(f"{case} {side}: {text}")
    return good


def _false_alarms(first: np.ndarray) -> tuple[str, bool]:
    """The share of years with an alarm, and its one-sided lower limit at 99 % (Clopper and Pearson)."""
    hits, years = int((first < NIGHTS).sum()), first.size
    least = float(beta.ppf(0.01, hits, years - hits + 1)) if hits else 0.0
    text = f"{100 * hits / years:.2f} % of {years} years (at least {100 * least:.2f} %)"
    return text, least <= 0.05 and hits / years <= 0.06


def _delay(case: Case, first: np.ndarray) -> tuple[str, bool]:
    """The median of the nights to an alarm, and nine tenths of them."""
    delays = first - (BEFORE - 1)
    limit = DELAYS[case.fall][case.unmoved > 0] * (1 if case.units >= BLOCKS else 1.4)
    text = (
        f"{np.median(delays):g} nights (90 %: {np.quantile(delays, 0.9):g}), at most {limit:g}, of {first.size} years"
    )
    return text, bool(np.median(delays) <= limit)


BINS = np.linspace(-4, 4, 129)


def drawn(rng: np.random.Generator, sizes: np.ndarray, shift: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Scores of campaigns with a correlation of 0.7, and their table of bins and blocks."""
    campaign = np.repeat(np.arange(sizes.size), sizes)
    scores = np.sqrt(0.7) * rng.normal(size=sizes.size)[campaign] + np.sqrt(0.3) * rng.normal(size=campaign.size)
    scores = np.clip(np.round(scores + shift, 2), -4, 4)
    table = np.zeros((128, BLOCKS), np.int64)
    block = rng.integers(0, BLOCKS, sizes.size)[campaign]
    np.add.at(table, (np.minimum(np.searchsorted(BINS, scores, "right") - 1, 127), block), 1)
    return scores, table


def compared(rng: np.random.Generator, sizes: np.ndarray, shift: float = 0.0) -> tuple[Drift, np.ndarray, np.ndarray]:
    """The drift between two draws, and their scores."""
    (one, table), (other, against) = drawn(rng, sizes, shift), drawn(rng, sizes)
    counts = [np.unique(side, return_counts=True) for side in (one, other)]
    ks, w1, psi, edges = distances(counts[0], counts[1])
    drift = Drift("s", one.size, other.size, ks, w1, psi, edges=edges)
    return with_error(drift, table, against, (BINS[:-1], BINS[1:]), "campaign"), one, other


def report_drift(draws: int) -> bool:
    """Print how often the tests of drift, at 5 %, see one that is not there; whether that is in 2 to 8 % of draws."""
    good = True
    for campaigns, largest in ((120, 8), (200, 12), (600, 12), (2000, 40)):
        rng = np.random.default_rng(campaigns)
        sizes = np.minimum(rng.zipf(2.0, campaigns), largest)
        found = [compared(rng, sizes)[0] for _ in range(draws)]
        shares = [float(np.mean([p < 0.05 for p in ps])) for ps in zip(*((d.ks_p, d.w1_p) for d in found), strict=True)]
        units = np.median([d.effective_units for d in found])
        good &= all(0.02 <= share <= 0.08 for share in shares)
        print(f"{units:.0f} effective units: KS {100 * shares[0]:.1f} %, W1 {100 * shares[1]:.1f} % of {draws} draws")
    return good
