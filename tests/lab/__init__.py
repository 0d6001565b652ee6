"""A lab of several hosts on one machine: real Docker Engines side by side, with GPUs that are test doubles.

**No GPU of this lab is real.** Each engine has a stand-in for the hook of NVIDIA's toolkit, which puts a stand-in for
the driver's library into a container; that library reports what a data file says. Everything else is real: the request,
the engine, its hook, the container, the probe inside. See `docs/gpu.md`.
"""
