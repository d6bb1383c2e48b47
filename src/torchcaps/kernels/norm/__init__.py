"""LayerNorm over poses."""
