"""The pictures of the README, drawn from the code: `make pictures` writes them to docs/pictures."""
