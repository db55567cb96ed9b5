"""Reference policies: what to choose in an environment, given what was seen. One file each."""
