"""What networks share: backbones, and the convolutional baselines of the papers."""
