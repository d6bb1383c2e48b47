"""Scores of trained networks, and publishing of finished runs."""
