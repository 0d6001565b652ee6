"""One onnxruntime session per step, from C++ through the C API, with leaks that only valgrind sees."""

import ctypes
import glob
import importlib.util
import os
import subprocess
import sys

PARAMS = {
    "names": ["owned", "leaked", "freed_twice"],
    "metadata": ["owned", "leaked"],
    "stage": ["load", "create", "infer"],
}

HERE = os.path.dirname(os.path.abspath(__file__))
NAMES = 10  # five inputs and five outputs
METADATA_ENTRIES = 11
OWNERSHIP = {"owned": 0, "leaked": 1, "freed_twice": 2}
STAGES = {"load": 0, "create": 1, "infer": 2}  # each stage includes the ones before it
OPENED = []


def setup(names="owned", metadata="owned", stage="infer"):
    """Return the step. `names` and `metadata` say what the program does with the texts that it has to free."""
    from parts import onnx_models

    entries = {"key-%02d" % number: "value of entry %d" % number for number in range(METADATA_ENTRIES)}
    model = onnx_models.copies(NAMES // 2, entries)
    native = ctypes.CDLL(compiled())
    sys.stdout.flush()
    if native.open_library(onnxruntime_library().encode()):
        raise RuntimeError("onnxruntime's library cannot be opened; the line above says why")
    OPENED.append(native)
    arguments = (model, ctypes.c_size_t(len(model)), OWNERSHIP[names], OWNERSHIP[metadata], STAGES[stage])

    def step():
        if native.run_session(*arguments):
            raise RuntimeError("onnxruntime refused; the line above says why")

    return step


def teardown():
    OPENED.pop().close_library()


def compiled():
    """Return the path of the library compiled from ort_native.cpp."""
    library = os.path.join(HERE, "ort_native.so")
    command = [
        "g++",
        "-std=c++17",
        "-O1",
        "-g",
        "-shared",
        "-fPIC",
        "-o",
        library,
        os.path.join(HERE, "ort_native.cpp"),
    ]
    try:
        subprocess.check_call([*command, "-ldl"])
    except FileNotFoundError:
        raise RuntimeError("ort_native needs g++: build the image from images/ort-native, which has it") from None
    return library


def onnxruntime_library():
    """Return the path of the library in onnxruntime's wheel, without importing the package."""
    package = importlib.util.find_spec("onnxruntime")
    if package is None:
        raise RuntimeError("ort_native needs the package onnxruntime")
    folder = os.path.join(next(iter(package.submodule_search_locations)), "capi")
    found = sorted(glob.glob(os.path.join(folder, "libonnxruntime.so*")))
    if not found:
        raise RuntimeError("this wheel of onnxruntime has no libonnxruntime.so; wheels have it from 1.19 on")
    return found[0]
