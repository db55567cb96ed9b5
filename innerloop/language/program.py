"""The decorator `program`, which turns a step of an algorithm into a construction."""

from __future__ import annotations

from collections.abc import Callable
from inspect import getdoc
from typing import Any

from innerloop.errors import unknown_name_error
from innerloop.language.construction import Maker, ProgramConstruction
from innerloop.language.definition import Definition, check_token, make_definition
from innerloop.language.derived import declare_fields, refuse_own
from innerloop.language.machine import Function
from innerloop.language.prompts.bandits import BanditProgram, BanditPrompt
from innerloop.language.prompts.base import Prompt
from innerloop.language.prompts.components import ComponentsProgram, ComponentsPrompt
from innerloop.language.prompts.networks import NetworkProgram, NetworkPrompt
from innerloop.language.prompts.points import PointsProgram, PointsPrompt
from innerloop.language.prompts.prefixes import PrefixProgram, PrefixPrompt
from innerloop.language.prompts.regression import RegressionProgram, RegressionPrompt

PROMPTS: dict[str, tuple[type[Prompt], type[ProgramConstruction]]] = {
    "regression": (RegressionPrompt, RegressionProgram),
    "prefixes": (PrefixPrompt, PrefixProgram),
    "points": (PointsPrompt, PointsProgram),
    "components": (ComponentsPrompt, ComponentsProgram),
    "networks": (NetworkPrompt, NetworkProgram),
    "bandits": (BanditPrompt, BanditProgram),
}


def define(
    *, prompt: str | Prompt = "regression", **declared: Any
) -> Callable[[Function], Definition]:
    """Declare a step and its registers; the class of the construction declares the rest.

    Args:
        prompt: The name of a kind of prompt, as for `program`, or a user-defined prompt.
        **declared: `Data` and `State`, by name; numbers are attributes of the class.

    Returns:
        A decorator for the step; its result is the `definition` of the class.
    """
    if isinstance(prompt, str):
        if prompt not in PROMPTS:
            raise unknown_name_error("prompt", prompt, PROMPTS)
        prompt = PROMPTS[prompt][0]()

    def make(step: Any) -> Definition:
        check_token(step)
        definition = make_definition(step, prompt, declared)
        definition.answer_part = definition.prompt.find_default_answer(definition.registers)
        return definition

    return make


def program(
    *, prompt: str = "regression", source: str = "", problems: Any = None, **declared: Any
) -> Maker:
    """Make a construction of a step; registers and numbers are declared by name.

    Args:
        prompt: Which tokens there are; see the guide for the kinds, such as "regression" and
            "points".
        source: The paper or book that the algorithm is from.
        problems: For regression prompts, the distribution that it is for and certified on, a
            subclass of `LinearRegression`; that one if None.
        **declared: `Data`, `State`, `Number`, `Bound`, `Count` or `Matrices`, by name.

    Returns:
        A decorator for the step, a function of `me` and of the numbers.

    Example:
        ```python
        @program(x=Data("d"), y=Data(), w=State("d", shared=True), eta=Number(0.1))
        def gradient_descent(me, eta):
            me.w = me.w - eta * mean(lambda j: (dot(me.w, j.x) - j.y) * j.x)
        ```
    """
    read = define(prompt=prompt, **declared)

    def make(step: Function) -> type[ProgramConstruction]:
        definition = read(step)
        definition.answer_dims = definition.prompt.answer_dims
        refuse_own(step)
        members: dict[str, Any] = {
            "definition": definition,
            "keeps_text": True,
            "source": source or "a program",
            "__doc__": getdoc(step) or f"The program {step.__name__}.",
            "__module__": step.__module__,
            "__qualname__": step.__qualname__,
        }
        if problems is not None:
            members["problems"] = problems
        return declare_fields(type(step.__name__, (PROMPTS[prompt][1],), members))

    return make
