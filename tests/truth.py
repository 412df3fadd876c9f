"""The metrics by their definitions, in exact fractions; shares no code with the library."""

import math
from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

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
    """AUC of groups in descending order: a positive beats the negatives after it, and half of those tied with it."""
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


def lift_truth(clusters: Sequence[tuple[int, int]], threshold: float) -> Fraction | None:
    """AUL of (size, positives), walked cluster by cluster from the largest; None without clusters."""
    if not clusters:
        return None
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
    if kind == "recall":
        return choice_truth(groups, "precision@recall", at)
    P, N = (sum((group[side] for group in groups), Fraction(0)) for side in (0, 1))
    limit = Fraction(str(at))
    T = F = best = Fraction(0)
    points = 0
    for (p, n), count in zip(groups, rows, strict=True):
        T, F, points = T + p, F + n, points + count
        if kind == "fpr":
            best = max(best, T / P) if P and N and limit >= F / N else best
        elif kind == "k" and points >= min(at, sum(rows)):
            return T / (T + F) if T + F else None
    return best if kind == "fpr" and P and N else None


def choice_truth(groups: Sequence[Group], kind: str, at: float) -> Fraction | None:
    """``fpr@tpr``, ``recall@precision``, ``f1_max`` and so on: the best of all thresholds, tried one by one."""
    P, N = (sum((group[side] for group in groups), Fraction(0)) for side in (0, 1))
    limit, T, F, found = Fraction(str(at)), Fraction(0), Fraction(0), []
    for p, n in groups:
        T, F = T + p, F + n
        if kind == "fpr@tpr" and P and N and limit <= T / P:
            found.append(-F / N)
        elif kind == "precision@recall" and P and limit <= T / P:
            found.append(T / (T + F))
        elif kind == "recall@precision" and P and T and limit <= T / (T + F):
            found.append(T / P)
        elif kind == "fbeta" and P:
            found.append((1 + limit**2) * T / (limit**2 * P + T + F))
    return abs(max(found)) if found else None


def cost_truth(groups: Sequence[Group], fp: Fraction, fn: Fraction) -> Fraction | None:
    """Least expected cost over all thresholds, and flagging nothing."""
    P, N = (sum((group[side] for group in groups), Fraction(0)) for side in (0, 1))
    T = F = Fraction(0)
    costs = [fn * P]
    for p, n in groups:
        T, F = T + p, F + n
        costs.append(fp * F + fn * (P - T))
    return min(costs) / (P + N) if P + N else None


def partial_auc_truth(groups: Sequence[Group], at: float) -> Fraction | None:
    """Area of the ROC curve's trapezoids up to a false positive rate, standardised."""
    P, N = (sum((group[side] for group in groups), Fraction(0)) for side in (0, 1))
    if not P or not N:
        return None
    limit, x, y, area = Fraction(str(at)), Fraction(0), Fraction(0), Fraction(0)
    for p, n in groups:
        right, top = x + n / N, y + p / P
        if right > limit:
            top = y + (top - y) * (limit - x) / (right - x)
            right = limit
        area += (right - x) * (y + top) / 2
        x, y = right, top
        if x == limit and n:
            break
    return (1 + (area - limit**2 / 2) / (limit - limit**2 / 2)) / 2


def isotonic_truth(groups: Sequence[Group]) -> list[Fraction]:
    """The isotonic fit of every group of descending score: c_k = min over a ≤ k of max over b ≥ k of the mean of a..b.

    The min-max formula, not pooling.
    """

    def mean(a: int, b: int) -> Fraction:
        total = sum((p + n for p, n in groups[a : b + 1]), Fraction(0))
        return sum((p for p, _ in groups[a : b + 1]), Fraction(0)) / total

    last = len(groups)
    return [min(max(mean(a, b) for b in range(k, last)) for a in range(k + 1)) for k in range(last)]


def calibration_truth(rows: Sequence[Row], bins: Sequence[int] = (10,)) -> dict[str, Fraction | None]:
    """Every rational number on calibration, from its definition row by row; log loss in floating point."""
    size = sum((weight for *_, weight in rows), Fraction(0))
    sums: dict[Fraction, list[Fraction]] = defaultdict(lambda: [Fraction(0), Fraction(0)])
    for score, label, weight in rows:
        sums[Fraction(score)][label] += weight
    filled = {s: g for s, g in sums.items() if g[0] + g[1]}
    brier = sum((w * (Fraction(s) - y) ** 2 for s, y, w in rows), Fraction(0)) / size
    down = sorted(filled, reverse=True)
    fit = isotonic_truth([(filled[s][1], filled[s][0]) for s in down])
    fitted = sum(
        (filled[s][1] * (1 - c) ** 2 + filled[s][0] * c**2 for s, c in zip(down, fit, strict=True)), Fraction(0)
    )
    share = sum((g[1] for g in sums.values()), Fraction(0)) / size
    steps = [Fraction(0)]
    for s in sorted(sums):
        steps.append(steps[-1] + (sums[s][1] - (sums[s][0] + sums[s][1]) * s) / size)
    found = {
        "brier_score": brier,
        "corp.unc": share * (1 - share),
        "corp.dsc": share * (1 - share) - fitted / size,
        "corp.mcb": brier - fitted / size,
        "ecce_mad": max(map(abs, steps)),
        "ecce_range": max(steps) - min(steps),
        "calibration_bias": -steps[-1],
        "log_loss": _log_loss(rows, size),
    }
    ranks = sorted(score for score, *_ in rows)
    for b in bins:
        edges = [i * (1 / b) for i in range(b)] + [1.0]
        wide = [sum(s > edge for edge in edges[1:-1]) for s, *_ in rows]
        even = [b * ranks.index(s) // len(rows) for s, *_ in rows]
        for name, cells in ((f"ece@{b}", wide), (f"ece@{b}/equal_count", even)):
            found[name], largest = _binned(rows, cells, size)
            if name == "ece@10":
                found["ece"], found["mce"] = found[name], largest
    return found


def _log_loss(rows: Sequence[Row], size: Fraction) -> Fraction | None:
    """As a fraction of floats; None stands for infinity."""
    sure = [Fraction(s) if y else 1 - Fraction(s) for s, y, w in rows if w]
    if not all(sure):
        return None
    terms = [-math.log(x.numerator / x.denominator) for x in sure]
    return sum((w * Fraction(t) for w, t in zip((w for *_, w in rows if w), terms, strict=True)), Fraction(0)) / size


def _binned(rows: Sequence[Row], cells: Sequence[int], size: Fraction) -> tuple[Fraction, Fraction]:
    """Mean and largest distance of mean score and share of positives."""
    gaps, sizes = defaultdict(Fraction), defaultdict(Fraction)
    for (s, y, w), cell in zip(rows, cells, strict=True):
        gaps[cell] += w * (y - Fraction(s))
        sizes[cell] += w
    largest = max(abs(gaps[c]) / sizes[c] for c in gaps if sizes[c])
    return sum(map(abs, gaps.values()), Fraction(0)) / size, largest


def size_auc_truth(clusters: Sequence[tuple[int, int]]) -> Fraction | None:
    """ROC AUC with a cluster's size as the score of each of its rows."""
    sums: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    for size, positives in clusters:
        sums[size][0] += positives
        sums[size][1] += size - positives
    return groups_auc([(Fraction(p), Fraction(n)) for _, (p, n) in sorted(sums.items(), reverse=True)])
