"""Metrics of a score."""

from streameval._submodules import import_when_named

import_when_named(__name__)
