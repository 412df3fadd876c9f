"""What `fuzz.py` draws, and what it compares with."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))  # where the exact truths are
