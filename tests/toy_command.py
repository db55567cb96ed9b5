"""The command line with the toys for claims: something to be killed."""

import sys

import toys

from innerloop.claims import base
from innerloop.ledger import run

if __name__ == "__main__":
    base.claims = run.claims = lambda: toys.CLAIMS
    sys.argv[0] = "innerloop"
    from innerloop.cli import main

    main()
