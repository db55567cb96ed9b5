"""The attacks: each file lists its own in `ATTACKS`."""
