"""The command line with closed or full standard streams, and in a deleted folder."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from innerloop.errors import InputError
from innerloop.output import MAX_LINE, escape_text, print_error, print_json, print_text
from innerloop.results import find_results

INNERLOOP = f"{sys.executable} -m innerloop"
CONTROLS = "a\x1b[31m\x07\x9b\x7f\u202e\u2028\udcff\r"


def run_shell(line: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a line of a shell."""
    return subprocess.run(
        ["bash", "-c", line],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        errors="surrogateescape",
        check=False,
    )


@pytest.mark.parametrize(
    ("redirection", "message"),
    [
        (">/dev/full", "innerloop: cannot write to standard output: No space left on device\n"),
        (">&-", "innerloop: standard output is closed: send it to a file, or to /dev/null\n"),
        ("2>/dev/full >/dev/full", ""),
        ("2>&- >&-", ""),
    ],
)
def test_unwritable_output_is_one_line(redirection: str, message: str) -> None:
    found = run_shell(f"{INNERLOOP} --version {redirection}")
    assert (found.returncode, found.stderr, found.stdout) == (2, message, "")


@pytest.mark.parametrize("redirection", ["2>/dev/full", "2>&-"])
def test_a_mistake_with_closed_standard_error_keeps_its_exit_code(redirection: str) -> None:
    """The error line is not written to standard output either."""
    found = run_shell(f"{INNERLOOP} bild {redirection}")
    assert (found.returncode, found.stdout, found.stderr) == (2, "", "")


def test_a_closed_pipe_prints_no_error() -> None:
    found = run_shell(f"{INNERLOOP} --help | true; echo ${{PIPESTATUS[0]}}")
    assert found.stdout in ("141\n", "0\n")  # 0 where all was written before it went
    assert found.stderr == ""


@pytest.mark.parametrize(
    "environment",
    [
        {"PYTHONIOENCODING": "ascii"},
        {"PYTHONUTF8": "0", "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"},
    ],
)
def test_characters_outside_the_encoding_are_escaped(environment: dict[str, str]) -> None:
    code = (
        "from innerloop.output import *; prepare_streams();"
        r"print_text('\xe9\u2264'); print_json('\xe9\u2264\U0001d4b3')"
    )
    found = run_shell(f'{sys.executable} -c "{code}"', **environment)
    text, line = found.stdout.splitlines()
    assert (found.returncode, text, json.loads(line)) == (0, r"\xe9\u2264", "é≤𝒳")


def test_a_deleted_current_folder_is_reported(tmp_path: Path) -> None:
    found = run_shell(f"mkdir {tmp_path}/x && cd {tmp_path}/x && rmdir $PWD && {INNERLOOP} list")
    assert found.returncode == 2
    assert found.stderr.startswith("innerloop: there is no current folder")


@pytest.mark.parametrize(
    ("number", "expected"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["int", "term"]
)
def test_signals_are_one_line(tmp_path: Path, number: int, expected: int) -> None:
    code = f"""
import pathlib, signal, sys, time
from innerloop.guard import run_guarded
def work():
    pathlib.Path("there").touch()
    time.sleep(60)
# Where tests run in the background of a shell, interrupts are ignored, and would be by us.
signal.signal({int(signal.SIGINT)}, signal.default_int_handler)
sys.exit(run_guarded(work))
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    while not (tmp_path / "there").exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(number)
    assert process.communicate() == (None, "innerloop: stopped\n")
    assert process.returncode == expected


def test_control_characters_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    assert escape_text("é\n\t≤") == r"é\n\t≤"
    print_text(f"{CONTROLS}\n\tb")
    print_error(f"{CONTROLS}\nb")
    out, err = capsys.readouterr()
    assert out == "a\\x1b[31m\\x07\\x9b\\x7f\\u202e\\u2028\\udcff\\r\n\tb\n"
    assert err == "innerloop: a\\x1b[31m\\x07\\x9b\\x7f\\u202e\\u2028\\udcff\\r\\nb\n"
    print_json({CONTROLS: [float("nan"), "\n"]})
    out = capsys.readouterr().out
    assert json.loads(out) == {CONTROLS: [None, "\n"]}
    assert out.isascii()
    assert out.replace("\n", "").isprintable()
    print_error("x" * 10**6)
    assert len(capsys.readouterr().err) < MAX_LINE + 50


def test_home_is_expanded_in_every_option_for_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/somewhere")
    monkeypatch.setenv("INNERLOOP_RESULTS", "~/results")
    assert find_results() == find_results(Path("~/results")) == Path("/somewhere/results")
    for path in ("~nobody_at_all", "~nobody_at_all/x"):
        with pytest.raises(InputError, match="has no home folder: name the folder"):
            find_results(Path(path))
