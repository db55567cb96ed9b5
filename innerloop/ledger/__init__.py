"""Runs claims, keeps what they found, and tells it: cells, files, engines."""
