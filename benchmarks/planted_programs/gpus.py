"""Faults on a GPU, with PyTorch. `amount` is KiB a step for leaks, else a share."""

import ctypes

import torch
from planted_carrier import BAD, planted

KEPT = []
DEVICE = "cuda"
PEAK = 256 << 20  # bytes
PRODUCTS = 40  # of two square matrices, in a step
DRIVER_PIECE = 2 << 20  # bytes: the driver hands out memory in pieces of this size
POOL_PIECE = 512  # bytes: so does PyTorch's allocator
CUDA = ctypes.CDLL("libcuda.so.1")


def setup(program, amount=0.0):
    torch.zeros(1, device=DEVICE)  # starts CUDA
    return PROGRAMS[program](amount)


def products(count, size=512):
    """Return a step that multiplies matrices this many times, and waits for the GPU."""
    left, right = (torch.rand(size, size, device=DEVICE) for _ in "12")

    def step():
        for _ in range(count):
            left @ right
        torch.cuda.synchronize()

    return step


def leaking(piece, take):
    """Return a step that takes `amount` KiB on average, in pieces; good versions give each piece back immediately."""

    def made(amount):
        work, owed = products(4), 0.0

        def step():
            nonlocal owed
            work()
            owed += amount * 1024
            while owed >= piece:
                owed -= piece
                give_back = take()
                if not BAD:
                    give_back()

        return step

    return made


def from_pool():
    KEPT.append(torch.empty(POOL_PIECE, dtype=torch.uint8, device=DEVICE))
    return KEPT.clear


def from_driver():
    """Take memory from the driver, unknown to PyTorch's allocator, like a library's own workspace."""
    address = ctypes.c_uint64()
    if CUDA.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(DRIVER_PIECE)):
        raise MemoryError("the driver has no more memory")
    return lambda: CUDA.cuMemFree_v2(address)


def temporary_tensor(amount):
    """Make and drop a tensor in each step; the pool keeps its memory."""
    work, size = products(4), round(PEAK * (1 + planted(amount)))

    def step():
        torch.empty(size, dtype=torch.uint8, device=DEVICE)
        work()

    return step


def larger_workspace(amount):
    """Hold memory outside the pool for the whole launch: it counts as memory of the device."""
    context = 512 << 20  # about what CUDA itself takes
    for _ in range(round((PEAK + (PEAK + context) * planted(amount)) / DRIVER_PIECE)):
        from_driver()
    return products(4)


def more_products(amount):
    return products(round(PRODUCTS * (1 + planted(amount))))


def training(_):
    """Train a small network, without any fault."""
    wide = [torch.nn.Linear(256, 256) for _ in range(3)]
    model = torch.nn.Sequential(wide[0], torch.nn.ReLU(), wide[1], torch.nn.ReLU(), wide[2]).to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters())

    def step():
        optimizer.zero_grad()
        loss = model(torch.rand(64, 256, device=DEVICE)).square().mean()
        loss.backward()
        optimizer.step()
        return {"loss": loss.item()}

    return step


def uneven_batches(_):
    """Use batches of many sizes, so that the pool reserves more and more at first."""
    made = 0

    def step():
        nonlocal made
        made += 1
        size = 64 + made * 7919 % 1000
        torch.rand(size, 4096, device=DEVICE).square().sum().item()

    return step


PROGRAMS = {
    "gpu_leak_pool": leaking(POOL_PIECE, from_pool),
    "gpu_leak_driver": leaking(DRIVER_PIECE, from_driver),
    "gpu_peak_pool": temporary_tensor,
    "gpu_peak_driver": larger_workspace,
    "gpu_products": more_products,
    "gpu_training": training,
    "gpu_uneven_batches": uneven_batches,
}
