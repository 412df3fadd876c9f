"""The metrics by their definitions, in exact fractions; shares no code with the library."""

from __future__ import annotations

import math
from collections import defaultdict
from fractions import Fraction
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

Row = tuple[Any, int, Fraction]  # score, label, weight
Group = tuple[Fraction, Fraction]  # positive and negative weight of one score


def pairs_auc(rows: Sequence[Row], *, half: bool = False) -> Fraction | None:
    """Share of (positive, negative) pairs won; ties, and pairs with a NaN under `half`, count one half."""
    won = total = Fraction(0)
    for score, label, weight in rows:
        for other, against, beside in rows:
            if label == 1 and against == 0:
                undecided = half and (is_missing(score) or is_missing(other))
                share = Fraction(1, 2) if undecided or score == other else Fraction(int(score > other))
                won += weight * beside * share
                total += weight * beside
    return won / total if total else None


def is_missing(score: Any) -> bool:
    """Whether a score is null or NaN."""
    return score is None or score != score


def groups_of(rows: Sequence[Row]) -> list[Group]:
    """Positive and negative weight of each distinct score, in descending order."""
    sums: dict[Any, list[Fraction]] = defaultdict(lambda: [Fraction(0), Fraction(0)])
    for score, label, weight in rows:
        sums[score][label] += weight
    return [(sums[score][1], sums[score][0]) for score in sorted(sums, reverse=True)]


def groups_auc(groups: Sequence[Group]) -> Fraction | None:
    """AUC of groups in descending order: every positive beats the negatives after it, and half of those beside it."""
    P, N = (sum((group[side] for group in groups), Fraction(0)) for side in (0, 1))
    won = F = Fraction(0)
    for p, n in groups:
        won += p * (N - F - n / 2)
        F += n
    return won / (P * N) if P and N else None


def curve_truth(groups: Sequence[Group]) -> dict[str, Fraction | None]:
    """Average precision, PR AUC, maximum informedness and Kolmogorov-Smirnov by walking down the groups."""
    P, N = (sum((group[side] for group in groups), Fraction(0)) for side in (0, 1))
    T = F = steps = trapezoids = best = widest = Fraction(0)
    for p, n in groups:
        before = T / (T + F) if T + F else Fraction(1)
        T, F = T + p, F + n
        if p:
            steps += p * T / (T + F)
            trapezoids += p * (before + T / (T + F)) / 2
        if P and N:
            best, widest = max(best, T / P - F / N), max(widest, abs(T / P - F / N))
    return {
        "average_precision": steps / P if P else None,
        "pr_auc": trapezoids / P if P else None,
        "max_informedness": best if P and N else None,
        "ks": widest if P and N else None,
    }


def lift_truth(clusters: Sequence[tuple[int, int]], threshold: float) -> Fraction:
    """AUL of (size, positives), walked cluster by cluster from the largest."""
    by_size: dict[int, list[int]] = defaultdict(list)
    for size, positives in clusters:
        by_size[size].append(positives)
    area = height = h = Fraction(0)
    for size in sorted(by_size, reverse=True):
        mean = Fraction(sum(by_size[size]), len(by_size[size]))
        for positives in by_size[size]:
            h += mean
            area += size * h
            height += size if size > threshold else positives
    return area / (sum(size for size, _ in clusters) * height) if height else Fraction(0)  # where none is assumed


def agrees(value: float, truth: Fraction | None, *, exactly: bool = False) -> bool:
    """Whether a value is the truth, to the last bit or to 1e-12."""
    if truth is None:
        return math.isnan(value)
    return value == float(truth) if exactly else math.isclose(value, float(truth), rel_tol=1e-12, abs_tol=1e-15)


def gain_truth(groups: Sequence[Group], rows: Sequence[int], truncate: float, *, ratio: bool) -> Fraction | None:
    """Normalised area under the gain curve cut at a truncation; `rows` are the points of each group."""
    P, N = (sum((group[side] for group in groups), Fraction(0)) for side in (0, 1))
    due = math.ceil(Fraction(str(float(truncate))) * sum(rows)) if truncate <= 1 else min(truncate, sum(rows))
    A = U = T = Fraction(0)
    points = 0
    for (p, n), count in zip(groups, rows, strict=True):
        if points >= due:
            break
        A += (p + n) * (T + p / 2)
        T, U, points = T + p, U + p + n, points + count
    if not P or not U or (not ratio and not N):
        return None
    R = U**2 * P / (2 * (P + N))
    M = P**2 / 2 + (U - P) * P if P <= U else U**2 / 2
    if ratio:
        return A / M
    return (A - R) / (M - R)


def point_truth(groups: Sequence[Group], rows: Sequence[int], kind: str, at: float) -> Fraction | None:
    """The value at one operating point, by walking down the groups."""
    P, N = (sum((group[side] for group in groups), Fraction(0)) for side in (0, 1))
    limit = Fraction(str(at))
    T = F = best = Fraction(0)
    points = 0
    for (p, n), count in zip(groups, rows, strict=True):
        T, F, points = T + p, F + n, points + count
        if kind == "fpr":
            best = max(best, T / P) if P and N and limit >= F / N else best
        elif kind == "recall" and P and limit <= T / P:
            return T / (T + F)
        elif kind == "k" and points >= min(at, sum(rows)):
            return T / (T + F) if T + F else None
    return best if kind == "fpr" and P and N else None


def size_auc_truth(clusters: Sequence[tuple[int, int]]) -> Fraction | None:
    """ROC AUC with a cluster's size as the score of each of its rows."""
    sums: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    for size, positives in clusters:
        sums[size][0] += positives
        sums[size][1] += size - positives
    return groups_auc([(Fraction(p), Fraction(n)) for _, (p, n) in sorted(sums.items(), reverse=True)])
