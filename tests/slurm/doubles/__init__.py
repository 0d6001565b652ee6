"""Test doubles of enroot, apptainer and pyxis: they check every argument, and run the program on the node itself.

An image is a file that begins with the magic number of its format and ends with END. The state is next to the programs:
`log` (a line of JSON for each call), and `slow` or `large`, which tests create.
"""
