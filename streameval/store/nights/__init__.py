"""Nights: find, fold and merge the partitions of a store."""

from streameval._submodules import import_when_named

import_when_named(__name__)
