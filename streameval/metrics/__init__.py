"""Metrics: pure functions of states. `streameval.metrics.catalogue` lists them."""

from streameval._submodules import import_when_named

import_when_named(__name__)
