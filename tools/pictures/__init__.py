"""Draw the pictures of the README; `make pictures` writes them to docs/pictures."""
