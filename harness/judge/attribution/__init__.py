"""Whose fault it is: the image, the GPU, the host, or both together; and with which params."""
