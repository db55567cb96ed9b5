"""Reference iterations, no transformer in sight. One file per algorithm."""
