"""The one exception for data that cannot be analysed; light to import for whoever catches it."""

from __future__ import annotations


class AnalysisError(Exception):
    """The data given cannot be analysed: what was found, and what would be right."""

    def __init__(self, what: str, right: str = "", where: str = ""):
        self.what, self.right, self.where = what, right, where
        told = f"{what}; {right}" if right else what
        super().__init__(f"{where}: {told}" if where else told)
