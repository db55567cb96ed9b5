"""Random bad command lines, and a judgement of the command line's answer to each.

make_bad_command(chance)   return a command line with a mistake in it, as words
judge(code, out, err)      return a description of the defect in the answer, or an empty text
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import shlex
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

CODES = (0, 1, 2, 130, 141, 143)
"""The documented exit codes."""
MAX_LINES, MAX_WIDTH = 3, 2500
"""The largest number of lines on standard error (warnings, then the mistake), and of characters
each.
"""
OWN_CODE = {
    "raises.py": "raise ValueError('a\\x1b[31mred\\nsecond line')\n",
    "exits.py": "import sys\nsys.exit(3)\n",
    "recursive.py": "def f():\n    return f()\nf()\n",
    "mistyped.py": "def f(:\n",
    "base.py": "class Stop(BaseException): ...\nraise Stop('now')\n",
    "mute.py": "class Mute(Exception):\n    def __str__(self): raise OSError\nraise Mute\n",
    "talks.py": "import sys\nprint('hello', file=sys.stderr)\nmodel = 3\n",
    "lazy.py": "def __getattr__(name):\n    raise KeyError(name)\n",
    "models.py": (
        "import torch\n"
        "number, text, nothing = 3, 'text', None\n"
        "def fails(X, y, x_query): return 1 / 0\n"
        "def alloc(X, y, x_query): raise RuntimeError('cannot alloc a buffer of mine')\n"
        "def leaves(X, y, x_query): raise SystemExit(0)\n"
        "def one(X): return X\n"
        "def strange(X, y, x_query): return 'a'\n"
        "def wide(X, y, x_query): return torch.zeros(2, 3, 4)\n"
        "def needy(): return 1 / 0\n"
        "def nan(X, y, x_query): return x_query.sum(-1) / 0 * 0\n"
    ),
    "binary.py": "\0\0",
}
"""User-defined modules, each with a different mistake."""
MEMBERS = ("newton", "gd-plus-plus", "lloyd", "linear-regression", "uniform", "ridge", "lista")
BAD_NAMES = (
    *("", " ", "newtn", "NEWTON", "newton\0", "new\nton", "new\x1b[31mton", "\udcff\udcfe", "\x9b"),
    *(
        "a" * 256,
        "é" * 200,
        "x/" * 3000,
        "../" * 50,
        "a:b",
        ":",
        "a:",
        ":b",
        "a:b:c",
        "..:x",
        ".:x",
    ),
    *("os:nothing", "math:pi", "json:loads", "no_such_module:f", "construction/", "/newton", "x/y"),
    *(
        "construction/newtn",
        "kind/newton",
        "-",
        "--",
        "[]",
        "{}",
        "%s%n",
        "$HOME",
        "~",
        "\u202enotwen",
    ),
    *(
        "innerloop.cli:main",
        "innerloop.cli:app",
        "sys:exit",
        "os:abort",
        "builtins:print",
        "this:s.x",
    ),
    *(
        "os.path",
        "torch:ones",
        "torch:nn.Linear",
        "/dev/null",
        "/dev/zero",
        "/",
        ".",
        "CON",
        "nul\0",
    ),
)
BAD_VALUES = (
    *("", " ", "nan", "-nan", "inf", "-inf", "1e400", "-1e400", "1e308", "-0", "0", "-1", "1.5"),
    *("true", "null", "none", "None", "[]", "{}", "[[]]", "[1", '"', "'", "\\", "\0", "\x1b[31m"),
    *("[" * 100, "[" * 100 + "]" * 100, "[" * 100_000, "[" * 990 + "1" + "]" * 990),
    *("{" * 1000, '{"a":' * 5000, "1" * 1_000_000, "-" + "9" * 5000, "0x10", "1_000", "٣", "1e3"),
    *("[1,2,3]", "[[1,2],[3]]", "[[1e400]]", '["a"]', "[null]", "[true]", "[{}]", "1,2", "1 2"),
    *("99999999999999999999", str(2**63), str(2**64), str(10**17), "[[NaN]]", "\udcff", "9" * 400),
)
BAD_NUMBERS = (
    *("", "x", "-1", "1.5", "nan", "inf", "1e3", str(2**31), str(2**63), str(2**64), str(10**17)),
    *("9" * 5000, "٣", "0x10", "--1", "\0", "\x1b[0m", "true", "[1]", "- 1", "+"),
)
SETTINGS = ("d", "n", "steps", "noise", "kappa", "covariance", "alpha", "step_size", "dd", "", "=")


def make_bad_command(chance: random.Random) -> list[str]:
    """Return a command line with a mistake, which ends soon if it is refused.

    Paths are relative to the current folder, in which `write_traps` writes the files.
    """
    makers: tuple[Callable[[random.Random], list[str]], ...] = (
        *(_make_usage_mistake, _make_list, _make_show, _make_build, _make_build, _make_verify),
        *(_make_train, _make_identify, _make_identify, _make_check, _make_report),
    )
    words = chance.choice(makers)(chance)
    for option in ("--json", "--json --json", "--seed 1 --seed 2", "--help", "--nonsense"):
        if chance.random() < 0.04:
            words += option.split()
    return words


def write_traps(folder: Path) -> None:
    """Write the files that bad command lines name: modules, a FIFO, folders, damaged weights."""
    for name, text in OWN_CODE.items():
        (folder / name).write_text(text)
    (folder / "folder").mkdir()
    (folder / "folder.py").mkdir()
    (folder / "empty.safetensors").write_bytes(b"")
    (folder / "text.safetensors").write_text("no weights")
    (folder / "huge.safetensors").write_bytes((2**62).to_bytes(8, "little") + b"{}")
    (folder / "secret.safetensors").write_bytes(b"x")
    (folder / "secret.safetensors").chmod(0)
    (folder / "loop").symlink_to("loop")
    if hasattr(os, "mkfifo"):
        os.mkfifo(folder / "fifo")
        os.mkfifo(folder / "fifo.py")


PATHS = (
    *("folder", "folder.py", "fifo", "fifo.py", "loop", "empty.safetensors", "text.safetensors"),
    *(
        "huge.safetensors",
        "secret.safetensors",
        "missing",
        "missing/deeper",
        "/dev/null",
        "/dev/full",
    ),
    *(
        "/proc/self/mem",
        "/proc/nowhere/x",
        "a" * 300,
        "nul\0",
        "line\nbreak",
        "\x1b[31mred",
        "\udcff",
    ),
    *("", ".", "..", "/", "~nobody_at_all/x", "models.py/x", "x/" * 3000),
)


def _choose_name(chance: random.Random) -> str:
    """Return a name: usually a bad one, sometimes one of a user-defined module."""
    if chance.random() < 0.3:
        module = chance.choice([*OWN_CODE, *PATHS])
        attribute = chance.choice(["f", "model", "number", "text", "nothing", "needy", "a.b", ""])
        return f"{module}:{attribute}"
    return chance.choice(BAD_NAMES)


def _choose_settings(chance: random.Random) -> list[str]:
    words: list[str] = []
    for _ in range(chance.randint(1, 3)):
        key, value = chance.choice(SETTINGS), chance.choice(BAD_VALUES)
        words += ["-s", chance.choice([f"{key}={value}", f"{key} = {value}", key, value])]
    return words


def _choose_options(chance: random.Random, numbers: str, paths: str = "") -> list[str]:
    """Return one bad option: a number or a path."""
    if paths and chance.random() < 0.5:
        return [chance.choice(paths.split()), chance.choice(PATHS)]
    option, value = chance.choice(numbers.split()), chance.choice(BAD_NUMBERS)
    return [f"{option}={value}"] if chance.random() < 0.3 else [option, value]


def _make_usage_mistake(chance: random.Random) -> list[str]:
    return chance.choices(
        [*BAD_NAMES, "build", "--seed", "-s", "-o", "--bild"], k=chance.randint(1, 4)
    )


def _make_list(chance: random.Random) -> list[str]:
    return ["list", _choose_name(chance)]


def _make_show(chance: random.Random) -> list[str]:
    if chance.random() < 0.5:
        return ["show", _choose_name(chance)]
    return ["show", f"construction/{chance.choice(MEMBERS)}", *_choose_settings(chance)]


def _make_build(chance: random.Random) -> list[str]:
    if chance.random() < 0.3:
        return ["build", _choose_name(chance)]
    words = ["build", chance.choice(("newton", "gd-plus-plus")), "-s", "steps=0"]
    if chance.random() < 0.5:
        return words[:2] + _choose_settings(chance) + words[2:]
    return words + _choose_options(chance, "--instances --seed --dtype", "-o --output")


def _make_verify(chance: random.Random) -> list[str]:
    words = ["verify", chance.choice(PATHS)]
    return words + (["--definition", _choose_name(chance)] if chance.random() < 0.3 else [])


def _make_train(chance: random.Random) -> list[str]:
    if chance.random() < 0.3:
        return ["train", _choose_name(chance)]
    words = ["train", "linear-attention", "-s", "blocks=0"]
    if chance.random() < 0.5:
        return words + _choose_settings(chance)
    return words + _choose_options(chance, "--seed --seeds", "-o --results")


def _make_identify(chance: random.Random) -> list[str]:
    if chance.random() < 0.3:
        return ["identify", chance.choice([*PATHS, *BAD_NAMES])]
    functions = ("fails", "alloc", "leaves", "one", "strange", "wide", "needy", "number", "nothing")
    words = ["identify", f"models.py:{chance.choice(functions)}", "--candidate", "ridge"]
    if chance.random() < 0.7:
        words += ["--problem", "linear-regression", "-s", "d=2", "-s", "n=4", "--prompts", "8"]
    else:
        words += ["--problem", _choose_name(chance)]
    if chance.random() < 0.3:
        words += _choose_settings(chance)
    if chance.random() < 0.4:
        words += _choose_options(chance, "--prompts --steps --seed", "--figure")
    if chance.random() < 0.2:
        words += [chance.choice(["--candidate", "--definition"]), _choose_name(chance)]
    return words


def _make_check(chance: random.Random) -> list[str]:
    name = _choose_name(chance)
    words = ["check", "none" if name in ("", "--") else name]  # no name at all checks everything
    if chance.random() < 0.5:
        return words
    return words + _choose_options(chance, "--preset --seed --workers --engine", "--results")


def _make_report(chance: random.Random) -> list[str]:
    words = ["report", "--preset", chance.choice(["", "quik", "\0", "fulll"])]
    return words + _choose_options(
        chance, "--seed --workers --engine", "-o --figures --results --runs"
    )


def judge(code: int, out: str, err: str) -> str:
    """Return a description of the defect in an answer, or an empty text if there is none."""
    if "Traceback (most recent call last)" in err:
        return f"traceback: {err.strip().splitlines()[-1][:200]}"
    if code not in CODES:
        return f"exit code {code}"
    return _judge_errors(code, out, err) or _judge_output(code, out, err)


def _judge_errors(code: int, out: str, err: str) -> str:
    """Check that standard error has one line or a few, of a readable length."""
    lines = err.splitlines()
    if code == 2 and "Usage" not in out:
        if not lines:
            return "exit code 2 without a word"
        if len(lines) > MAX_LINES:
            return f"{len(lines)} lines of errors: {err[:200]!r}"
    if any(len(line) > MAX_WIDTH for line in lines):
        return f"an error line of more than {MAX_WIDTH} characters"
    return ""


def _judge_output(code: int, out: str, err: str) -> str:
    """Check that the output contains nothing that would confuse a terminal or a parser."""
    unsafe = [c for c in out + err if (ord(c) < 32 and c not in "\n\t") or 0x7F <= ord(c) < 0xA0]
    if unsafe:
        return f"control characters in the output: {unsafe[:3]}"
    if code == 0 and out.startswith(("{", "[")):
        try:
            json.loads(out)
        except ValueError as error:
            return f"the output is not JSON: {error}"
    return ""


def run_here(words: list[str]) -> tuple[int, str, str]:
    """Run a command line in this process.

    Return exit code, output, and errors with any traceback.
    """
    from innerloop.cli import main

    out, err = io.StringIO(), io.StringIO()
    before, sys.argv, code = sys.argv, ["innerloop", *words], 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        except BaseException:
            code = 1
            traceback.print_exc(file=err)
        finally:
            sys.argv = before
    return code, out.getvalue(), err.getvalue()


FAULTS = (
    *("{}", "{} >/dev/full", "{} >&-", "{} 2>&-", "{} 2>/dev/full", "{} <&-", "{} | true", "{} >/"),
    *("PYTHONIOENCODING=ascii {}", "PYTHONUTF8=0 PYTHONCOERCECLOCALE=0 LC_ALL=C {}"),
    *("unset HOME; {}", "HOME=/nowhere {}", "INNERLOOP_RESULTS=/dev/null {}", "ulimit -f 0; {}"),
    *("INNERLOOP_RESULTS=~nobody_at_all {}", "mkdir -p gone; cd gone; rmdir ../gone; {}"),
)
"""Environments with a fault, as lines of a shell around a command."""


def run_apart(words: list[str], fault: str) -> tuple[int, str, str]:
    """Run a command line as a process in an environment with a fault, for at most a minute."""
    line = shlex.join([sys.executable, "-m", "innerloop", *words])
    done = subprocess.run(
        ["bash", "-c", fault.format(line if "|" in fault or "env " in fault else f"exec {line}")],
        capture_output=True,
        timeout=300,
        check=False,
    )
    out, err = (text.decode(errors="surrogateescape") for text in (done.stdout, done.stderr))
    has_errors = not any(broken in fault for broken in ("2>", ">/", "| true"))
    return done.returncode, out, err if err or has_errors else "innerloop: standard error is broken"
