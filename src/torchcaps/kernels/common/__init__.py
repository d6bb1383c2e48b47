"""Tiles, layouts and launches that all kernels share."""
