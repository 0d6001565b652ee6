"""A lab of several hosts on one machine: real Docker Engines side by side, with GPUs that are doubles.

**No GPU of this lab is real.** Each engine has a stand-in for the hook of NVIDIA's toolkit, which puts a stand-in for
the driver's library into a container, telling what a data file says. All the rest of the way is the real one: the
request, the engine, its hook, the container, the probe inside. `docs/lab.md`.
"""
