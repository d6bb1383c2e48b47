"""Batched augmentation."""
