"""Simulated inputs whose rows come in units: what `interval_coverage.py` draws its samples from.

Units are drawn anew in every sample:

- `zipf`: unit sizes with P(s) ∝ s^−2.2, at most 200 rows; the rows of a unit share their label and most of their score;
- `equal`: units of 5 rows, otherwise the same;
- `rows`: every row is a unit.

There are as many units that the rarer class has the wanted number of effective units in the mean; for classes, which
have no labels, the number is by rows. Kinds of input:

- `scores`: two exchangeable scores of equal worth, so that their true difference is 0;
- `clusters`: the unit is the cluster, larger clusters are more often positive;
- `classes`: the unit is the class. A class has its own cluster, or shares one with others; some rows stand elsewhere.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np

MOST, EXPONENT = 200, 2.2  # rows of a unit, and the exponent of their distribution
PREVALENCE = 0.3
SHARED = 0.9  # share of a score's variance that the rows of a unit have in common
SEPARATION = 1.5

Columns = dict[str, np.ndarray]


@cache
def chances() -> tuple[np.ndarray, float]:
    """Distribution of the unit sizes 1 … `MOST`, and E[s]²/E[s²]."""
    sizes = np.arange(1, MOST + 1.0)
    chance = sizes**-EXPONENT / np.sum(sizes**-EXPONENT)
    return chance, float((chance @ sizes) ** 2 / (chance @ sizes**2))


def drawn(kind: str, design: str, units: int, rng: np.random.Generator) -> Columns:
    """Columns of a sample; `label` is one of them."""
    equal = chances()[1] if design == "zipf" else 1.0
    rarer = 1.0 if kind == "classes" else PREVALENCE
    count = round(units / equal / rarer)
    sizes = np.full(count, 1 if design == "rows" else 5)
    if design == "zipf":
        sizes = rng.choice(MOST, count, p=chances()[0]) + 1
    return {"scores": _scores, "clusters": _clusters, "classes": _classes}[kind](sizes, rng)


def _scores(sizes: np.ndarray, rng: np.random.Generator) -> Columns:
    unit = np.repeat(np.arange(sizes.size), sizes)
    label = rng.random(sizes.size) < PREVALENCE
    common = rng.normal(size=sizes.size)
    made = {"unit": _named(unit, rng), "label": label[unit].astype(np.uint8)}
    for name in ("v1", "v2"):
        own = SEPARATION * label + math.sqrt(SHARED / 2) * (common + rng.normal(size=sizes.size))
        made[name] = own[unit] + math.sqrt(1 - SHARED) * rng.normal(size=unit.size)
    return made


def _clusters(sizes: np.ndarray, rng: np.random.Generator) -> Columns:
    rate = np.clip(PREVALENCE * (0.7 + 0.3 * np.log2(sizes)), 0, 0.95)
    pure = rng.random(sizes.size) < rate
    cluster = np.repeat(np.arange(sizes.size), sizes)
    label = np.where(rng.random(cluster.size) < 0.1, rng.random(cluster.size) < PREVALENCE, pure[cluster])
    return {"cluster": _named(cluster, rng), "label": label.astype(np.uint8)}


def _classes(sizes: np.ndarray, rng: np.random.Generator) -> Columns:
    count = sizes.size
    merged = rng.random(count) < 0.3
    home = np.where(merged, count + rng.integers(0, max(1, count // 10), count), np.arange(count))
    unit = np.repeat(np.arange(count), sizes)
    astray = rng.random(unit.size) < 0.1
    cluster = np.where(astray, 2 * count + unit, home[unit])
    return {"unit": _named(unit, rng), "cluster": cluster, "label": np.ones(unit.size, np.uint8)}


def _named(unit: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Ids that differ between samples, so that their blocks do."""
    return unit + (int(rng.integers(1 << 40)) << 20)
