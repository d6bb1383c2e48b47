"""Outputs of a run: its folder, progress report and TensorBoard events."""
