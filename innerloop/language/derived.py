"""Class attributes derived from a program: reference, cost, numbers and parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from torch import Tensor

from innerloop.constructions.base import Cost
from innerloop.errors import InputError
from innerloop.language.definition import list_arguments
from innerloop.language.errors import CannotCompile, find_definition
from innerloop.language.machine import Function
from innerloop.language.reference import Reference, make_reference
from innerloop.language.types import OPTIONS, Count, Matrices
from innerloop.parameters import parameter

if TYPE_CHECKING:
    from innerloop.language.construction import ProgramConstruction


class ReferenceOf:
    """The reference algorithm of a program's class, created on first use."""

    def __get__(self, instance: Any, owner: type[ProgramConstruction]) -> type[Reference]:
        if "_reference" not in owner.__dict__:
            owner._reference = make_reference(owner.definition, owner)
        return owner._reference


class CountedCost:
    """The cost of a program: exact for an object.

    For the class, the part that all sizes have in common.
    """

    def __get__(self, instance: ProgramConstruction | None, owner: type[Any]) -> Cost:
        if instance is None:
            return Cost("counted", "counted", "counted")
        compiled, loops = instance.compiled, instance.steps if instance.repeats else 1
        blocks = loops * sum(len(plan.blocks) for plan in compiled.steps)
        others = [plan for plan in (compiled.prologue, compiled.epilogue) if plan is not None]
        heads = [plan.count()["heads"] for plan in compiled.plans.values()]
        layers = blocks + sum(len(plan.blocks) for plan in others)
        return Cost(str(layers), str(max(heads)), str(compiled.layout.width))


class Own:
    """The numbers of a construction that are the same in every step.

    A step receives them as `own`.
    """

    def __init__(self, construction: ProgramConstruction) -> None:
        self._construction = construction

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # which copying looks up before the construction is set
            raise AttributeError(name)
        return self._construction.find_number(name)


class Repeats:
    """Whether a program is looped; by default, if all of its steps are the same."""

    def __get__(self, instance: ProgramConstruction | None, owner: type[Any]) -> Any:
        return False if instance is None else instance.repeats


def refuse_own(function: Function) -> None:
    """Raise an error if a function of a program has an argument `own` but no class provides it."""
    if "own" in list_arguments(function):
        raise InputError(
            f"{function.__name__} asks for `own`, the numbers of a construction's class, which a "
            "@program has none of: ask for each number by its name, or use define in a class"
        )


def _check_names(owner: type[ProgramConstruction]) -> None:
    """Raise an error for names of numbers that constructions, algorithms or their options
    already use.
    """
    definition, taken = owner.definition, {*OPTIONS, *owner.definition.prompt.size_names}
    for base in (*owner.__mro__[1:], *Reference.__mro__):
        taken |= {*vars(base), *vars(base).get("__annotations__", ())}
    for name in definition.numbers:
        if name in taken:
            raise CannotCompile(
                f"a number cannot be called {name!r}: programs on {definition.prompt.name} prompts "
                "have an option, a size or a method of that name. Choose another",
                find_definition(definition.step),
            )


def declare_fields(owner: type[ProgramConstruction]) -> type[ProgramConstruction]:
    """Make a program's numbers parameters of its class.

    Call it again when there are new numbers.
    """
    _check_names(owner)
    types: dict[str, Any] = {"attention": Literal["linear", "relu"]}
    owner.attention = parameter("linear", "attention that linear sums become, linear or relu")
    for name, declared in owner.definition.numbers.items():
        if isinstance(declared, Matrices):
            types[name] = Tensor | Literal["random", "identity"]
            made = parameter("random", declared.help)
        elif isinstance(declared, Count):
            types[name] = int
            limits = {"least": declared.least, "most": declared.most}
            made = parameter(declared.default, declared.help, **limits)
        else:
            types[name] = float | Tensor | None
            limits = {"least": declared.least, "most": declared.most}
            made = parameter(declared.default, declared.help, **limits)
        setattr(owner, name, made)
    owner.__annotations__ = types
    for name in ("__init__", "__repr__"):  # dataclass would not write them again
        delattr(owner, name)
    owner.declare_fields()
    return owner
