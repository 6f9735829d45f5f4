"""The `isobudget` command."""
