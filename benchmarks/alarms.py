"""Simulated years of nights for rules that are read every night: false alarms, and nights until an alarm.

Run by ``python benchmarks/year.py --alarms``. The units of a night lie in 128 blocks by their numbers; each night is
the mean of its units' effects, on the scale of an AUC of 0.8, and its replicates leave out a block. With `carry`, the
effect of a unit is an AR(1) series over nights, as of campaigns that last. All columns (years and slices) are judged
together, night by night, by `streameval.evaluation.alarms`. The seeds are the numbers from 0 on.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from scipy.stats import beta

from streameval.evaluation.alarms import WINDOWS, End, Series, judged_end, level_of, windows

ALPHA, BOUND, SPREAD, BLOCKS = 0.05, 0.8, 0.05, 128
NIGHTS = 365
FACTS = "days", "values", "squares", "freedom", "units"


@dataclass(frozen=True)
class Case:
    """One shape of data: years, slices of the rule, units of a night, and how much of an effect the next night has."""

    years: int
    slices: int
    units: int
    carry: float = 0.0
    fall: float = 0.0  # in standard errors of a night, from night 60 on
    nights: int = NIGHTS


def alarms(case: Case, seed: int = 0, signs: tuple[int, ...] = (1, -1)) -> dict[int, np.ndarray]:
    """The first night with an alarm of each year, by the side of the bound; the number of nights without one."""
    rng, columns = np.random.default_rng(seed), case.years * case.slices
    block = rng.integers(0, BLOCKS, case.units)
    held = (block[:, None] == np.arange(BLOCKS)).astype(float)
    rows = np.broadcast_to(held.sum(axis=0), (columns, BLOCKS))
    effects = rng.normal(size=(columns, case.units))
    first = {sign: np.full(case.years, case.nights) for sign in signs}
    level, past = level_of(ALPHA, case.slices), list[Series]()
    floors = np.empty((0, columns))
    for night in range(case.nights):
        if night:
            new = rng.normal(size=effects.shape)
            effects = case.carry * effects + np.sqrt(1 - case.carry**2) * new
        shift = case.fall / np.sqrt(case.units) if night >= 60 else 0.0
        mean = effects.mean(axis=1)
        left = np.where(rows > 0, (mean[:, None] * case.units - effects @ held) / (case.units - rows), np.nan)
        around = (SPREAD * (left - mean[:, None])).astype(np.float32)
        value = BOUND + SPREAD * (mean - shift)
        past = [*past[-28:], Series.of(np.array([night]), value[None], around[None], rows[None])]
        facts = [np.concatenate([getattr(one, name) for one in past]) for name in FACTS]
        recent = [np.stack([getattr(one, name)[0] for one in past[-28:]]) for name in ("replicates", "rows")]
        series = Series(*facts, *recent)
        floors = np.vstack((floors, series.floors(len(past) - 1)[-1:]))[-29:]
        ends = windows(series, np.ones(len(past), bool), floors, level)
        for sign, found in first.items():
            near = np.any([sign * (one.value - BOUND) < 0 for one in ends.values()], axis=0) & ~np.isnan(floors[-1])
            for column in np.flatnonzero(near).tolist():
                year = column // case.slices
                if found[year] == case.nights and any(
                    isinstance(end, End) and sign * (end.end - BOUND) < 0
                    for end in (judged_end(ends[w], column, "logit", BOUND, sign) for w in WINDOWS)
                ):
                    found[year] = night
    return first


def share(first: np.ndarray, nights: int) -> tuple[float, float]:
    """The share of years with an alarm, and its one-sided lower limit at 99 % (Clopper and Pearson)."""
    hit, years = int((first < nights).sum()), first.size
    return hit / years, float(beta.ppf(0.01, hit, years - hit + 1)) if hit else 0.0


def report(years: int, wide: int) -> bool:
    """Print false alarms and delays; whether all meet their limits."""
    good = True
    for slices, number in ((1, years), (20, wide)):
        for units in (30, 128):
            for carry in (0.0, 0.5):
                begin, case = time.perf_counter(), Case(number, slices, units, carry)
                for sign, first in alarms(case).items():
                    found, least = share(first, case.nights)
                    good &= least <= ALPHA and found <= 0.06
                    side = "falls" if sign > 0 else "rises"
                    print(
                        f"S={slices:<3} units={units:<4} AR={carry:g} {side}: {100 * found:.2f} % of {number} years "
                        f"(at least {100 * least:.2f} %), {time.perf_counter() - begin:.0f} s",
                        flush=True,
                    )
    for units, limits in ((128, (20, 8, 3)), (30, (28, 11.2, 4.2))):
        for fall, limit in zip((1.0, 2.0, 4.0), limits, strict=True):
            case = Case(max(20, years // 10), 1, units, fall=fall, nights=120)
            delay = float(np.median(alarms(case, signs=(1,))[1] - 59))
            good &= delay <= limit
            print(f"S=1 units={units:<4} fall of {fall:g} se: {delay:g} nights (at most {limit:g})", flush=True)
    return good
