"""Run the command line as `python -m innerloop` or `innerloop`."""

from __future__ import annotations

import signal
import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line, without a traceback for Ctrl-C during start and end."""
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
