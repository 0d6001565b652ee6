"""Asks image registries for tags, digests, labels and sizes (the OCI distribution specification, and Docker's v2).

Only complete answers count. Anything else raises RegistryTrouble with one line: the host, the problem and the remedy.
"""
