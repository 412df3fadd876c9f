"""Labels that are late or few: statements in tables of their own, designs of samples, and plans of what to label."""

from streameval._submodules import import_when_named

import_when_named(__name__)
