"""The scenes of the lab, one file each; `load_scenes` in `innerloop.lab.scene` finds them."""
