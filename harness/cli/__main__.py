"""`python -m harness.cli`, the same as `isobudget`."""

from harness.cli.app import main

main()
