"""Claims: statements from the literature, each with a function that tests it.

The modules here declare what a claim is (`base`), what its test yields (`evidence`) and shared ways
of testing (`trials`, `prompts`, `recorded`); each source has a sub-package of its own. Claims may
import all other parts of the package except ledger, catalogue, surveys, report and command line.
"""
