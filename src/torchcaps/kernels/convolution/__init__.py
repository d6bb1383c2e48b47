"""Convolution with a large kernel and stride."""
