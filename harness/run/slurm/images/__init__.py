"""The images of a cluster: files in a shared folder, or those of a node's container engine."""
