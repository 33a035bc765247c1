"""`python -m pegboard`."""

from pegboard.cli.main import main

main()
