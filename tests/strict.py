"""The type checker that the tests switch on: beartype, where a whole number counts as a float."""

from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
