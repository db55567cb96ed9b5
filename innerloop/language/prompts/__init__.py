"""Prompts of programs: the registers that each prompt fills, its problems, and the tokens that
answer.

Each file has one prompt and the construction that programs on it become. This folder may import
problems, constructions and the rest of the language. Only the language imports it.
"""
