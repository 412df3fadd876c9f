"""Types that every room shares."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
ArrayLike = Iterable[Any]  # lists, NumPy arrays, columns of pandas, polars and Arrow; of two dimensions, rows of these
