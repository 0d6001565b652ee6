"""Compute a mean with a library from the image."""


def setup():
    import ctypes

    mean = ctypes.CDLL("libmean.so.1").mean
    mean.restype, mean.argtypes = ctypes.c_double, [ctypes.c_double, ctypes.c_double]

    def step():
        if mean(1.0, 2.0) != 1.5:
            raise ArithmeticError("a wrong mean")

    return step
