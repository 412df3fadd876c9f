"""Clustering metrics by their definitions, in exact fractions and 50 digits; shares no code with the library."""

from collections.abc import Sequence
from fractions import Fraction
from math import comb
from typing import Any

import mpmath

mpmath.mp.dps = 50
Cells = dict[tuple[int, int], int]  # rows of each (class, cluster), none of them 0


def ratio(a: Any, b: Any) -> Any:
    """A quotient; None where the denominator is 0."""
    return a / b if b else None


def harmonic(a: Any, b: Any) -> Any:
    """Harmonic mean; None where a side is undefined."""
    if a is None or b is None:
        return None
    return 2 * a * b / (a + b) if a + b else a


def real(x: Fraction) -> Any:
    """A fraction in 50 digits."""
    return mpmath.mpf(x.numerator) / x.denominator


def entropy(sizes: Sequence[int], total: int) -> Any:
    """In nats."""
    return -sum((real(Fraction(s, total)) * mpmath.log(real(Fraction(s, total))) for s in sizes), mpmath.mpf(0))


def expected_information(rows: Sequence[int], columns: Sequence[int], total: int) -> Any:
    """Mean mutual information of all tables with these margins (hypergeometric)."""
    mean = mpmath.mpf(0)
    for a in rows:
        for b in columns:
            for n in range(max(1, a + b - total), min(a, b) + 1):
                chance = Fraction(comb(b, n) * comb(total - b, a - n), comb(total, a))
                mean += real(chance * Fraction(n, total)) * mpmath.log(real(Fraction(n * total, a * b)))
    return mean


def best_matching(cells: Cells, rows: int, columns: int) -> int:
    """By trying them all: the best of each set of columns that the rows so far may have."""
    if rows < columns:
        return best_matching({(j, i): n for (i, j), n in cells.items()}, columns, rows)
    best = {frozenset[int](): 0}
    for i in range(rows):
        found = dict(best)  # the row has no column
        for taken, total in best.items():
            for j in set(range(columns)) - taken:
                more = taken | {j}
                found[more] = max(found.get(more, 0), total + cells.get((i, j), 0))
        best = found
    return max(best.values())


def clustering_truth(cells: Cells) -> dict[str, Any]:
    """Every metric that is computed by default, and the assignment score; None where it is not defined."""
    a, b = {}, {}
    for (i, j), n in cells.items():
        a[i], b[j] = a.get(i, 0) + n, b.get(j, 0) + n
    N, V, R, C = sum(cells.values()), len(cells), len(a), len(b)
    pairs, TP = comb(N, 2), sum(comb(n, 2) for n in cells.values())
    same_class, same_cluster = (sum(comb(s, 2) for s in sizes.values()) for sizes in (a, b))
    chance = ratio(Fraction(same_class * same_cluster), pairs)
    mean, geometric = Fraction(same_class + same_cluster, 2), mpmath.sqrt(same_class * same_cluster)
    HA, HB = entropy(list(a.values()), N), entropy(list(b.values()), N)
    MI = sum(
        (real(Fraction(n, N)) * mpmath.log(real(Fraction(n * N, a[i] * b[j]))) for (i, j), n in cells.items()),
        mpmath.mpf(0),
    )
    VI, logs = HA + HB - 2 * MI, mpmath.log(R) + mpmath.log(C)
    EMI = expected_information(list(a.values()), list(b.values()), N)
    homogeneity, completeness = (MI / HA if R > 1 else mpmath.mpf(1)), (MI / HB if C > 1 else mpmath.mpf(1))
    maxima = sum(max(n for (i, _), n in cells.items() if i == k) for k in a)
    maxima += sum(max(n for (_, j), n in cells.items() if j == k) for k in b)
    split_join = Fraction(N, R) + Fraction(N, C)
    precision = sum(Fraction(n * n, b[j]) for (_, j), n in cells.items()) / N
    recall = sum(Fraction(n * n, a[i]) for (i, _), n in cells.items()) / N
    muc = ratio(Fraction(N - V), N - C), ratio(Fraction(N - V), N - R)
    chi = N * (sum(Fraction(n * n, a[i] * b[j]) for (i, j), n in cells.items()) - 1)
    numbers = {i: k for k, i in enumerate(a)}, {j: k for k, j in enumerate(b)}
    matching = best_matching({(numbers[0][i], numbers[1][j]): n for (i, j), n in cells.items()}, R, C)
    null = Fraction(N, max(R, C))
    FPFN = same_class + same_cluster - 2 * TP
    return {
        "adjusted_rand_index": ratio(TP - chance, mean - chance) if chance is not None else None,
        "rand_index": ratio(Fraction(pairs - FPFN), pairs),
        "fowlkes_mallows": ratio(TP, geometric),
        "adjusted_fowlkes_mallows": ratio(TP - real(chance), geometric - real(chance)) if chance is not None else None,
        "mirkin_match_coeff": 1 - Fraction(2 * FPFN, N * N),
        "mirkin_mismatch_coeff": Fraction(2 * FPFN, N * N),
        "mutual_info_score": MI,
        "adjusted_mutual_info": ratio(MI - EMI, max(HA, HB) - EMI),
        "homogeneity": homogeneity,
        "completeness": completeness,
        "v_measure": harmonic(homogeneity, completeness),
        "vi_distance": ratio(VI, mpmath.log(N)),
        "vi_similarity": ratio(logs - VI, logs),
        "split_join_distance": Fraction(2 * N - maxima, 2 * N),
        "split_join_similarity": ratio(maxima - split_join, 2 * N - split_join),
        "bcubed_precision": precision,
        "bcubed_recall": recall,
        "bcubed_fscore": harmonic(precision, recall),
        "muc_precision": muc[0],
        "muc_recall": muc[1],
        "muc_fscore": harmonic(*muc),
        "talburt_wang_index": mpmath.sqrt(R * C) / V,
        "chisq_score": chi,
        "g_score": 2 * N * MI,
        "assignment_score": ratio(matching - null, N - null),
    }
