"""Squashing, lengths and the margin loss, each in one kernel."""
