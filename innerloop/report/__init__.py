"""Results as one self-contained page. Draws what it is given; computes nothing."""
