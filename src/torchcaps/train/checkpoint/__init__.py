"""Checkpoints: encoding, manifest, files, and the state of a run."""
