"""Manages the images of a Slurm host: files in a shared folder, or images in a node's container engine."""
