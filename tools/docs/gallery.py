"""Generate the gallery: one page per construction, made from its code."""

from __future__ import annotations

import inspect
import re
from itertools import groupby
from pathlib import Path
from typing import Any

import torch

import innerloop
from innerloop.catalogue.blocks import describe_construction
from innerloop.catalogue.listing import describe_parameters
from innerloop.constructions.base import Construction, iterate_streams, read_prediction
from innerloop.mathtext import typeset_plain
from innerloop.registry import load_members
from tools.docs.diagram import draw_blocks, draw_steps

_LABEL = r"^([A-Z][A-Za-z]+(?: [a-z]+)?) {2,}"
"""Matches a label of a header: a word at the beginning of a line, with spaces after it."""


def make_gallery() -> dict[str, str]:
    """Write every page of the gallery, by file name."""
    members = load_members("constructions", Construction)
    pages = {f"{name}.md": make_page(name, kind) for name, kind in members.items()}
    return {"index.md": make_index(), **pages}


def make_index() -> str:
    """Write the table of all constructions."""
    rows = innerloop.list_members("constructions")["constructions"]
    lines = [
        "---\nhide: [toc]\n---\n# Gallery",
        "",
        f"The gallery lists {len(rows)} constructions: transformers whose weights were "
        "constructed, "
        "not trained, to run an algorithm. Each page describes the algorithm, the registers of the "
        "residual stream, the effect of every head, the cost and the source. The pages are "
        "generated from the code.",
        "",
        "| construction | algorithm | layers for k steps |",
        "|---|---|---|",
    ]
    for row in rows:
        cells = (row["description"], row["layers"])
        lines.append(f"| [{row['name']}]({row['name']}.md) | {' | '.join(map(_cell, cells))} |")
    return "\n".join(lines) + "\n"


def make_page(name: str, kind: type[Construction]) -> str:
    """Write the page of one construction."""
    made = kind()
    description = describe_construction(made) | {"settings": describe_parameters(kind, made)}
    header = inspect.getdoc(inspect.getmodule(kind)) or inspect.getdoc(kind) or ""
    summary, *rest = header.split("\n\n", 1)
    parts = [
        f"---\ntitle: {name}\n---\n# {name}\n\n{typeset_plain(summary)}\n",
        _write_header(rest[0] if rest else ""),
        f"## Registers and blocks\n\n{draw_blocks(description)}\n",
        _write_registers(description),
        _write_blocks(description),
        _write_cost(description),
        _write_steps(made),
        _write_settings(description),
        f"## Use it\n\n```console\n$ innerloop build {name} -o {name}.safetensors\n"
        f"$ innerloop show {name}\n```\n",
        _write_code(kind),
    ]
    return "\n".join(part for part in parts if part)


def split_header(text: str) -> list[tuple[str, str]]:
    """Split the rest of a header into its labelled parts."""
    sections = re.split(_LABEL, text, flags=re.M)
    return [
        (label, re.sub(r"[ \t]*\n[ \t]*", " ", body).strip())
        for label, body in zip(sections[1::2], sections[2::2], strict=True)
    ]


def _write_header(text: str) -> str:
    parts = split_header(text)
    rows = "".join(f"<dt>{label}</dt><dd>{typeset_plain(body)}</dd>" for label, body in parts)
    return f'<dl class="law">{rows}</dl>\n' if parts else ""


def _cell(text: Any) -> str:
    """Write text for a cell of a table, with typeset mathematics."""
    return typeset_plain(str(text)).replace("|", "&#124;")


def _write_registers(description: dict[str, Any]) -> str:
    lines = ["| register | shape | entries of the stream |", "|---|---|---|"]
    for each in description["registers"]:
        shape = " × ".join(map(str, each["shape"])) or "a number"
        lines.append(f"| `{each['name']}` | {shape} | {each['places']} |")
    return "\n".join(lines) + "\n"


def _write_blocks(description: dict[str, Any]) -> str:
    lines = []
    for section, blocks in groupby(description["blocks"], key=lambda block: block["section"]):
        lines.append(section)
        for block in blocks:
            lines.append(f"  block {block['block']}")
            lines += [f"    {line}" for line in block["does"]]
    loops = f", looped {description['loops']} times" if description["loops"] > 1 else ""
    title = f'??? note "The effect of every head and MLP ({description["layers"]} layers{loops})"'
    body = "\n".join(f"    {line}" for line in ["```text", *lines, "```"])
    return f"{title}\n\n{body}\n"


def _write_cost(description: dict[str, Any]) -> str:
    cost = description["cost"]
    where = f" ({_cell(cost['where'])})" if cost["where"] else ""
    return (
        "## Cost\n\n| | for k steps | as built |\n|---|---|---|\n"
        f"| layers | {_cell(cost['layers'])} | {description['layers']} |\n"
        f"| heads | {_cell(cost['heads'])} | {description['heads']} |\n"
        f"| width | {_cell(cost['width'])} | {description['width']} |\n"
        f"| parameters | | {description['parameters']:,} |\n\n"
        f"Cost in the source: {_cell(cost['printed'])}.{where} "
        f"Error of one step: {_cell(description['error'])}. "
        f"Precision: {description['precisions']}.\n"
    )


def _write_steps(made: Construction[Any, Any]) -> str:
    """Draw the distance to the last answer, for the answers of the transformer and of the
    algorithm."""
    problem = made.distributions()[0].sample(4, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        streams = iterate_streams(made, made.transformer, problem)
        answers = [read_prediction(made, made.transformer, problem, s) for s in streams]
        states = [made.algorithm.init(problem)]
        for k in range(made.steps):
            states.append(made.algorithm.step(problem, states[-1], k))
        expected = [made.algorithm.predict(problem, state) for state in states]
    if len(answers) < 3:
        return ""
    picture = draw_steps(_distances(answers, expected[-1]), _distances(expected, expected[-1]))
    return (
        "## A forward pass\n\nThe figure shows the distance between the answer after each step and "
        "the last answer of the algorithm, on random problems. The line shows the answers of the "
        "transformer, and the circles those of the algorithm.\n\n"
        f"{picture}\n"
    )


def _distances(answers: list[torch.Tensor], last: torch.Tensor) -> list[float]:
    return [float((answer.double() - last.double()).norm()) for answer in answers]


def _write_settings(description: dict[str, Any]) -> str:
    lines = ["## Settings", "", "| name | default | meaning |", "|---|---|---|"]
    for name, each in description["settings"].items():
        lines.append(f"| `{name}` | `{each['value']}` | {_cell(each['help'])} |")
    return "\n".join(lines) + "\n"


def _write_code(kind: type[Construction]) -> str:
    path = Path(inspect.getfile(kind))
    code = "\n".join(f"    {line}" for line in path.read_text("utf-8").splitlines())
    return (
        f"## Code\n\nThe complete file `innerloop/constructions/{path.name}`:\n\n"
        f'??? note "{path.name}"\n\n    ```python\n{code}\n    ```\n'
    )
