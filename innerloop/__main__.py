"""Run the command line as `python -m innerloop` or `innerloop`."""

from __future__ import annotations

import signal
import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line; Ctrl-C during imports or at the exit prints no traceback."""
    try:
        from innerloop.cli import main as run

        run()
    except KeyboardInterrupt:
        print("innerloop: stopped", file=sys.stderr)
        raise SystemExit(130) from None
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    main()
