"""Claims of qliu2025; see `innerloop.claims.sources`."""
