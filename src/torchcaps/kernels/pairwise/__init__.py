"""Sums and links of votes, for pairwise routing."""
