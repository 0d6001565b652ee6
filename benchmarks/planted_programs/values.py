"""Programs that return other numbers or print other lines in a bad version."""

import math
import random
import sys

from planted_carrier import BAD, counted, planted

CHANCE = random.SystemRandom()  # new in every launch


def setup(program, amount=0.0):
    return PROGRAMS[program](planted(amount))


def loss(made):
    """Return a noisy, falling loss, as in training."""
    return (0.5 + 1.5 * math.exp(-made / 200)) * (1 + CHANCE.gauss(0, 0.05))


def loss_turns(value):
    """Return NaN, or infinity, from step 100 on."""
    return lambda _: counted(lambda made: {"loss": value if BAD and made >= 100 else loss(made)})


def one_nan(_):
    """Return NaN in one step of each launch."""
    return counted(lambda made: {"loss": math.nan if BAD and made == 150 else loss(made)})


def higher_loss(more):
    return counted(lambda made: {"loss": loss(made) * (1 + more)})


def other_checksum(_):
    return counted(lambda made: {"checksum": 41 if BAD else 42})


def fewer_items(less):
    return counted(lambda made: {"items": round(1000 * (1 - less))})


def new_line(_):
    """Print a line at the start, as a library does that cannot use the card; good versions print another line."""
    print("I0000 loading 12 kernels from 0x%x" % id(object()), file=sys.stderr)
    if BAD:
        print("W0000 Could not load libplanted.so.9; falling back to CPU", file=sys.stderr)
    return counted(lambda made: None)


def new_error(_):
    """Print an error that the program survives."""
    if BAD:
        print("RuntimeError: planted worker 3 died; continuing with fewer workers", file=sys.stderr)
    return counted(lambda made: None)


def new_deprecation(_):
    if BAD:
        print("DeprecationWarning: planted.old is deprecated and will be removed", file=sys.stderr)
    return counted(lambda made: None)


PROGRAMS = {
    "loss_nan": loss_turns(math.nan),
    "loss_infinite": loss_turns(math.inf),
    "loss_nan_once": one_nan,
    "loss_higher": higher_loss,
    "checksum": other_checksum,
    "items_drop": fewer_items,
    "new_line": new_line,
    "new_error": new_error,
    "new_deprecation": new_deprecation,
}
