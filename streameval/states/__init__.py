"""States: immutable, mergeable, serialisable counts; and the builders that fold batches into them."""

from streameval._submodules import import_when_named

import_when_named(__name__)
