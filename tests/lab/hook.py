"""A stand-in for `nvidia-container-runtime-hook`: gives doubles of GPUs to a container that asks for some.

`hook.py DATA LIBRARY prestart`, the container's OCI state on stdin. DATA is read again each time, so that a test can
change it while the engine runs:

    {"driver": "535.54", "cuda": "12.2",
     "gpus": [{"uuid": "GPU-…", "name": "…", "compute_capability": "8.9", "memory_mib": 24564, "power_limit_w": 450,
               …}],                         further fields go to the stand-in library; a card divided into
                                            MIG instances has "mig": 1, "instances": 7, "mig0.uuid": "MIG-…", …
     "fail": "text",                        every container with a GPU is refused with it
     "sleeps_s": 5,                         the driver is stuck for so long
     "gives": {"GPU-asked": "GPU-given"}}   a card other than the requested one
"""

import json
import re
import shutil
import sys
import time
from pathlib import Path

PLACE = "usr/share/harness-lab/gpus"
CDI = "HARNESS_LAB_GPU"
UNITS = {"memory_mib": ("total", 1 << 20), "power_limit_w": ("power_limit", 1000)}
SMI = """#!/bin/sh
# nvidia-smi of a GPU that is a double
cat /usr/share/harness-lab/listing
"""


def main(data_path, library, state):
    data = json.loads(Path(data_path).read_text())
    config = json.loads(Path(state["bundle"], "config.json").read_text())
    environment = dict(item.partition("=")[::2] for item in config["process"]["env"])
    time.sleep(data.get("sleeps_s", 0))
    if data.get("fail"):
        refuse(data["fail"])
    by_cdi = [uuid for name, uuid in environment.items() if name.startswith(CDI)]
    if not by_cdi:  # CDI specs do not check what an image requires
        check_requirement(environment, data["cuda"])
    gpus = chosen(",".join(by_cdi) or environment.get("NVIDIA_VISIBLE_DEVICES", "void"), data)
    if gpus is not None:
        put(Path(config["root"]["path"]), data, gpus, library)


def refuse(text):
    sys.exit(f"nvidia-container-cli: {text}")


def check_requirement(environment, cuda):
    """Check, like the real hook, the lowest CUDA version that an image requires of the driver."""
    wanted = re.search(r"cuda>=(\d+)\.(\d+)", environment.get("NVIDIA_REQUIRE_CUDA", ""))
    if wanted is None or "NVIDIA_DISABLE_REQUIRE" in environment:
        return
    if tuple(map(int, wanted.groups())) > tuple(map(int, cuda.split("."))):
        refuse(f"requirement error: unsatisfied condition: {wanted[0]}, please update your driver to a newer version")


def chosen(wanted, data):
    """Return the GPUs that NVIDIA_VISIBLE_DEVICES or CDI selects; None for a container that asked for none."""
    if wanted in ("", "void"):
        return None
    if wanted in ("all", "none"):
        return data["gpus"] if wanted == "all" else []
    return [one(data.get("gives", {}).get(word, word), data["gpus"]) for word in wanted.split(",")]


def one(word, gpus):
    for index, gpu in enumerate(gpus):
        if word in (str(index), gpu["uuid"]):
            return gpu
        for name, value in gpu.items():
            if value == word:
                return with_one_instance(gpu, name.split(".")[0])
    return refuse(f"device error: {word}: unknown device")


def with_one_instance(gpu, instance):
    """Return a card that shows only one MIG instance: `mig0.uuid` and the other fields of `mig0`."""
    return {name: value for name, value in gpu.items() if "." not in name or name.split(".")[0] == instance}


def put(root, data, gpus, library):
    major, minor = map(int, data["cuda"].split("."))
    lines = [f"driver {data['driver']}", f"cuda {major * 1000 + minor * 10}", f"count {len(gpus)}"]
    for index, gpu in enumerate(gpus):
        lines += [f"gpu{index}.{name} {value}" for name, value in fields(gpu).items()]
    place = root / PLACE
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("\n".join(lines) + "\n")
    listing = [f"GPU {index}: {gpu['name']} (UUID: {gpu['uuid']})" for index, gpu in enumerate(gpus)]
    place.with_name("listing").write_text("\n".join(listing) + "\n")
    program = root / "usr/bin/nvidia-smi"
    program.write_text(SMI)
    program.chmod(0o755)
    folders = [
        root / name for name in ("usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64", "usr/lib")
    ]
    shutil.copy(library, next(folder for folder in folders if folder.is_dir()) / "libnvidia-ml.so.1")


def fields(gpu):
    """Return the lines for the stand-in library about one GPU."""
    told = {"used": 0, "processes": "", **gpu}
    told["capability"] = told.pop("compute_capability").replace(".", "")
    for name, (other, factor) in UNITS.items():
        told[other] = int(told.pop(name) * factor)
    return told


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], json.load(sys.stdin))
