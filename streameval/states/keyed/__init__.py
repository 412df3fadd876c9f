"""The core of exact states: counts of keys in segments that are sorted on demand."""

from streameval._submodules import import_when_named

import_when_named(__name__)
