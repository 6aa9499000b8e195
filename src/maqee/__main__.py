"""`python -m maqee` is the command `maqee`."""

from maqee.cli import main

main()
