"""Check that a register of the prompt that is declared shared is the same in every token."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from innerloop.language.definition import Definition
from innerloop.language.errors import CannotCompile, find_definition
from innerloop.language.prompts.base import make_gaussian_draw


def check_shared(definition: Definition, sizes: Mapping[str, int]) -> None:
    """Raise an error if a register declared shared differs between tokens of a random prompt."""
    prompt = definition.prompt
    names = [n for n, r in definition.registers.items() if r.shared and n in prompt.offers]
    if not names:
        return
    larger = {name: max(size, 2) if name == "n" else size for name, size in sizes.items()}
    filled = prompt.fill_registers(prompt.draw_problem(larger, make_gaussian_draw(0)))
    for name in names:
        if not torch.equal(filled[name], filled[name][:1].expand_as(filled[name])):
            raise CannotCompile(
                f"{name} is declared shared, but a {prompt.name} prompt fills it with what differs "
                "from token to token: declare it without shared=True",
                find_definition(definition.step),
            )
