"""`python -m innerloop` is the command line."""

from innerloop.cli import main

main()
