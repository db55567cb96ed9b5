"""Claims of yang2025; see `innerloop.claims.sources`."""
