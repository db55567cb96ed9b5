"""Claims of gatmiry2024; see `innerloop.claims.sources`."""
