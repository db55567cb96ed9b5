"""The command line with the small claims of `toys.py`, for tests that kill it."""

import signal
import sys

import toys

from innerloop.claims import loading
from innerloop.ledger import checking, run

if __name__ == "__main__":
    # Where tests run in the background of a shell, interrupts are ignored, and this would be by us.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for module in (loading, checking, run):
        setattr(module, "load_claims", lambda: toys.CLAIMS)  # noqa: B010
    sys.argv[0] = "innerloop"
    from innerloop.cli import main

    main()
