"""Prompts that programs run on: which registers they fill, for which problems, and who answers.

One file each, with the prompt itself and the construction that programs on it become. May import
problems, constructions and the rest of the language; nothing outside of the language imports it.
"""
