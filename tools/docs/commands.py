"""Generate the command line reference from the commands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import typer.main

from innerloop.cli import app

INTRODUCTION = Path(__file__).parents[2] / "docs" / "command-line.txt"


def make_page() -> str:
    """Write the page: an introduction, then every command with its arguments and options."""
    group: Any = typer.main.get_command(app)
    commands = group.commands.items()
    table = ["| command | what it does |", "|---|---|"]
    table += [f"| [`{name}`](#{name}) | {_first(command.help)} |" for name, command in commands]
    sections = [_write_command(name, command) for name, command in commands]
    introduction = INTRODUCTION.read_text("utf-8")
    return "\n".join([introduction.replace("{commands}", "\n".join(table)), *sections])


def _write_command(name: str, command: Any) -> str:
    words = [f"innerloop {name}"]
    words += [_spell_argument(each) for each in command.params if _is_argument(each)]
    lines = [f"## {name}", "", _code(command.help or ""), ""]
    lines += ["```text", " ".join([*words, "[options]"]), "```", ""]
    lines += ["| | default | |", "|---|---|---|"]
    for each in command.params:
        if getattr(each, "hidden", False) or each.name == "help":
            continue
        label = _spell_argument(each).strip("[]…") if _is_argument(each) else _spell_option(each)
        lines.append(f"| `{label}` | {_spell_default(each)} | {_code(each.help or '')} |")
    return "\n".join(lines) + "\n"


def _is_argument(parameter: Any) -> bool:
    return parameter.param_type_name == "argument"


def _spell_argument(parameter: Any) -> str:
    word = (parameter.metavar or parameter.name).upper().strip("[]")
    word = f"{word}…" if parameter.nargs == -1 else word
    return word if parameter.required else f"[{word}]"


def _spell_option(option: Any) -> str:
    names = ", ".join([*option.opts, *option.secondary_opts])
    return names if option.is_flag else f"{names} {option.metavar or option.name.upper()}"


def _spell_default(parameter: Any) -> str:
    value = parameter.default
    if parameter.required or callable(value) or value in (None, False, (), []):
        return "required" if parameter.required else ""
    return f"`{value}`"


def _first(text: str | None) -> str:
    return _code((text or "").split("\n\n")[0].replace("\n", " "))


def _code(text: str) -> str:
    return re.sub(r"\s*\n\s*", " ", text).replace("|", "\\|").replace("<", "&lt;")
