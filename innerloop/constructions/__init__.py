"""An algorithm as weights, with the proof beside them. One file per construction."""
