"""Finds the cause of each fault: the image, the GPU, the host, or an interaction; and the params of bad variants."""
