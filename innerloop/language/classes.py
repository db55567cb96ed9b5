"""The names that a class of a program needs: base classes by prompt, costs, parameters, registers.

@define(x=Data("d"), y=State()) def descend(me, preconditioners): …

class MyConstruction(RegressionProgram):
    definition, source, cost = descend, "a paper", Cost("k", "1", "d + 1")
    step_size: float = parameter(0.1, "η", least=0)
"""

from innerloop.constructions.base import Cost
from innerloop.language.construction import ProgramConstruction, Registers
from innerloop.language.definition import Definition
from innerloop.language.prompts.bandits import BanditProgram
from innerloop.language.prompts.components import ComponentsProgram
from innerloop.language.prompts.networks import NetworkProgram
from innerloop.language.prompts.points import PointsProgram
from innerloop.language.prompts.prefixes import PrefixProgram
from innerloop.language.prompts.regression import RegressionProgram
from innerloop.language.target import Peepholes
from innerloop.parameters import parameter

__all__ = [
    "BanditProgram",
    "ComponentsProgram",
    "Cost",
    "Definition",
    "NetworkProgram",
    "Peepholes",
    "PointsProgram",
    "PrefixProgram",
    "ProgramConstruction",
    "Registers",
    "RegressionProgram",
    "parameter",
]
