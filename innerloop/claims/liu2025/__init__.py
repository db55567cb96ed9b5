"""Claims of liu2025; see `innerloop.claims.sources`."""
