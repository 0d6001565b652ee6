"""Manages the images of a cluster: files in a shared folder, or images of a node's container engine."""
