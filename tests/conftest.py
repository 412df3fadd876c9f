"""Hypothesis profiles: reproducible on a shared machine, wider by hand with ``HYPOTHESIS_PROFILE=wide``."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]

settings.register_profile("ci", deadline=None, derandomize=True, database=None, suppress_health_check=_SLOW)
settings.register_profile("wide", deadline=None, max_examples=500, suppress_health_check=_SLOW)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
