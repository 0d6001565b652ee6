"""The GPUs of the image, asked through the driver's own library."""
