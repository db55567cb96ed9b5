"""Attacks on the package: kills, damaged files, links, bad inputs, changed weights, pages, the lab.

`python -m tools.torture` runs all of them (`make torture`, about an hour on two cores). It prints a
table of tries, survivors and defects, and writes it to results/torture.json. `--only NAME -o FILE`
replaces the rows of one attack in an existing table. Every try has its own random numbers, which
depend on the seed, the attack's name and the number of the try. Each defect is therefore reported
with the command that repeats it. Each file in `attacks` contains one attack or several similar
ones.
"""
