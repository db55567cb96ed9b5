"""Attacks on the package: kills, damaged files, links, bad inputs, changed weights, pages, the lab.

`python -m tools.torture` runs all of them (`make torture`, about an hour on two cores), prints the
table of tries, survivors and defects, and records it in results/torture.json. `--only NAME -o FILE`
replaces the rows of one attack in a recorded table. Every try has its own random numbers, which
depend on the seed, the attack's name and the number of the try. Each defect is therefore reported
with the command that repeats it. An attack is one file in `attacks`.
"""
