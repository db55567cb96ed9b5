"""Attacks on the package, at scale: kills, corrupted files, bad inputs, changed weights, pages.

`python -m tools.torture` runs all of them (`make torture`, about an hour on two cores), prints the
table of tries, survivors and defects, and records it in results/torture.json. Every try has its own
random numbers, from the seed, the attack's name and the number of the try, so that each defect
names the command that repeats it. An attack is one file below `attacks`.
"""
