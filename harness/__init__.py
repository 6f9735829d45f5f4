"""isobudget: from a preregistration to records. `analysis` turns the records into judgement."""

__version__ = "0.1.0"
