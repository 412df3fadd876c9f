"""Which files a path, a pattern, a URI or a table names."""

from streameval._submodules import import_when_named

import_when_named(__name__)
