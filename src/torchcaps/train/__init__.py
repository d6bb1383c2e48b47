"""Training: the one loop, its checkpoints, and the start-up of several processes."""
