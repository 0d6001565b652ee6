"""The cause of each fault: the image, the GPU, the host, or an interaction; and the params with which it appears."""
