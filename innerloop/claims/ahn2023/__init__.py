"""Claims of ahn2023; see `innerloop.claims.sources`."""
