"""What recipes share: presets, loading from files, and the preprocessing that they imply."""
