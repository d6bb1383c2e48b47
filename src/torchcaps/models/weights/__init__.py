"""Weights of networks: files, storage in fewer bytes, pretrained weights, the Hub."""
