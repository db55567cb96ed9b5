"""The command line of the attacks: `python -m tools.torture --help`."""

from __future__ import annotations

import argparse
import math
import os
import shlex
import signal
import sys
from pathlib import Path
from typing import Any, NoReturn

from innerloop.errors import unknown_name_error
from innerloop.terminal import progress_bar
from tools.torture.attack import Attack
from tools.torture.runner import load_attacks, run_attack
from tools.torture.table import print_rows, read_finished, read_others, write_record

RECORD = Path(__file__).resolve().parents[2] / "results" / "torture.json"


def main() -> None:
    """Run the attacks that the command line selects; exit with code 1 if there are defects."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    signal.signal(signal.SIGTERM, end_by_signal)
    known = load_attacks()
    options = parse_options(list(known))
    for name in options.only or ():
        if name not in known:
            sys.exit(f"torture: {unknown_name_error('attack', name, known)}")
    chosen = [known[name] for name in options.only or known]
    chosen = [attack for attack in chosen if choose_numbers(attack, options)]
    rows: list[dict[str, Any]] = []
    finished = read_finished(options.output, options.seed) if options.resume else {}
    others: list[dict[str, Any]] = []
    settings = {name: getattr(options, name) for name in ("seed", "share", "tries", "workers")}
    command = shlex.join(
        ["python", "-m", "tools.torture", *(word for word in sys.argv[1:] if word != "--resume")]
    )
    if options.only and options.output is not None and options.output.exists():
        others, settings, command = read_others(options.output, {each.name for each in chosen})
        if settings["seed"] != options.seed:
            sys.exit(
                f"torture: {options.output} has seed {settings['seed']}: use it, or another -o"
            )
    costs = [attack.cost * len(choose_numbers(attack, options)) for attack in chosen]
    with progress_bar("torture") as bar:
        for k, attack in enumerate(chosen):

            def report(share: float, doing: str, k: int = k) -> None:
                bar((sum(costs[:k]) + share * costs[k]) / sum(costs), doing)

            report(0.0, attack.name)
            numbers = choose_numbers(attack, options)
            row = finished.get((attack.name, len(numbers)))
            if row is None:
                row = run_attack(
                    attack, numbers, options.seed, workers=options.workers, progress=report
                ).as_dict()
            rows.append(row)
            bar.notice(f"{attack.name}: {row['tries']} tries, {row['defects']} defects")
            if options.output is not None:
                write_record(options.output, [*others, *rows], settings, command)
    print_rows(rows)
    if options.output is not None:
        print(f"recorded in {options.output}")
    sys.exit(1 if any(row["defects"] for row in rows) else 0)


def end_by_signal(number: int, frame: object) -> NoReturn:
    """Exit by an exception, so that the worker processes end and their folders are removed."""
    sys.exit(128 + number)


def parse_options(names: list[str]) -> argparse.Namespace:
    """Parse the command line; a part of the attacks is recorded only if `--output` names a file."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.torture", description="Attack the package, and count what breaks."
    )
    parser.add_argument("--only", action="append", metavar="NAME", help=", ".join(names))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tries", type=int, help="of each attack; by default its own number")
    parser.add_argument("--share", type=float, default=1.0, help="of each attack's own number")
    parser.add_argument("--sample", action="store_true", help="only what the tests try")
    parser.add_argument("--first", type=int, help="repeat this try; with --tries, begin with it")
    parser.add_argument(
        "--resume", action="store_true", help="keep the attacks that the output has without defect"
    )
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        help=f"by default, for a whole run, {RECORD}; with --only, rows of other attacks stay",
    )
    options = parser.parse_args()
    part = options.only or options.tries or options.sample or options.first is not None
    if options.share == 1 and not part and options.output is None:
        options.output = RECORD
    if options.output is not None:
        options.output = options.output.resolve()
    if options.resume and (options.output is None or options.first is not None):
        parser.error("--resume goes on with a table: give the file with -o, and no --first")
    return options


def choose_numbers(attack: Attack, options: argparse.Namespace) -> range:
    """Return the numbers of the tries; each number has its own random numbers."""
    first = options.first or 0
    count = options.tries or (1 if options.first is not None else None)
    if options.sample:
        count = attack.sample
    elif count is None:
        count = math.ceil(attack.tries * options.share)
    return range(first, first + count)


if __name__ == "__main__":
    main()
