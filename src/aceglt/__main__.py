"""`python -m aceglt`."""

from aceglt.cli import main

main()
