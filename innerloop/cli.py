"""The command line: register all commands and run the one that the user names."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperOption

from innerloop import __version__
from innerloop.commands.build import build
from innerloop.commands.check import check
from innerloop.commands.compile import compile_
from innerloop.commands.exact import exact
from innerloop.commands.fit import fit
from innerloop.commands.identify import identify
from innerloop.commands.lab import lab
from innerloop.commands.list import list_
from innerloop.commands.play import play
from innerloop.commands.plot import plot
from innerloop.commands.report import report
from innerloop.commands.runs import runs
from innerloop.commands.show import show
from innerloop.commands.train import train
from innerloop.commands.verify import verify
from innerloop.errors import InputError
from innerloop.guard import run_guarded
from innerloop.output import print_error, print_text

app = typer.Typer(
    help="innerloop finds the algorithm inside a transformer. It builds and verifies transformers "
    "whose forward pass runs a known algorithm, trains transformers, identifies their algorithms, "
    "and tests statements of papers. In place of a name you can write module:attribute or "
    "file.py:attribute to use your own code; it is imported, which runs its code.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _print_version(is_requested: bool | None) -> None:
    if is_requested:
        print_text(f"innerloop {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool | None,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = None,
) -> None:
    del version  # its callback has done the work


class StrictCommand(TyperCommand):
    """A command that rejects repeated options and empty arguments instead of ignoring them."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not all(args):
            raise InputError("an argument is empty; check whether a shell variable is unset")
        _, _, order = self.make_parser(ctx).parse_args(list(args))
        for option in order:
            single = isinstance(option, TyperOption) and not (option.multiple or option.is_flag)
            if single and order.count(option) > 1:
                raise InputError(f"{option.opts[-1]} is repeated")
        return super().parse_args(ctx, args)


for _name, _command in {
    "list": list_,
    "show": show,
    "build": build,
    "compile": compile_,
    "exact": exact,
    "verify": verify,
    "train": train,
    "runs": runs,
    "plot": plot,
    "identify": identify,
    "play": play,
    "fit": fit,
    "check": check,
    "report": report,
    "lab": lab,
}.items():
    app.command(_name, cls=StrictCommand)(_command)


def _print_warning(message: Warning | str, category: type[Warning], *place: Any, **_: Any) -> None:
    """Print a warning of this package as one line, and other warnings as Python does."""
    if category.__module__.startswith("innerloop."):
        print_error(str(message))
    else:
        with contextlib.suppress(OSError):  # nobody can be told
            sys.stderr.write(warnings.formatwarning(message, category, *place[:2]))


def main() -> NoReturn:
    """Run the command line; a user's mistake is one line on standard error and exit code 2."""
    # One thread unless asked otherwise: the matrices are small, on a busy machine more threads wait
    # for each other, and numbers are the same whatever the machine.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    warnings.showwarning = _print_warning
    raise SystemExit(run_guarded(lambda: app(standalone_mode=False, prog_name="innerloop")))
