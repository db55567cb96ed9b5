"""Matrices that broke some inequality or correction of gatmiry2024, in whitened weights.

Every inequality of this source, and every correction, is tried on all of them.
"""

from __future__ import annotations

from innerloop.claims.searching import Family, diagonal, with_corner

HARD_MATRICES: dict[str, Family] = {
    "A = 0 (theorem-3.4)": diagonal(0.0),
    "A = I/2, the minimiser at n = d + 1 (theorem-3.4)": diagonal(0.5),
    "A = 0.899 I (lemma-A.10)": diagonal(0.899),
    "A = 12 I (theorem-3.3)": diagonal(12.0),
    "a shear (theorem-3.4)": with_corner(1.0, 31.77),
    "a shear (theorem-A.11)": with_corner(1.0, 63.60),
    "a shear (lemma-A.10)": with_corner(1.0, 1046.64),
    "a shear (theorem-3.3)": with_corner(1.0, 1131.37),
}
