"""Calibration: whether a score can be read as a probability."""

from __future__ import annotations

from streameval._submodules import import_when_named

import_when_named(__name__)
