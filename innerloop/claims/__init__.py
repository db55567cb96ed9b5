"""What the literature states, and how each statement is put to the test."""
