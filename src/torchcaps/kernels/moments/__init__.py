"""Weighted moments of votes, for routings that fit Gaussians."""
