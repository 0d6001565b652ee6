"""Unmodified programs, run by the real supervisor. The frameworks are small doubles with the modules and call
signatures of the real ones; tests/stories/test_frameworks.py tries the real wheels.
"""

import hashlib
import io
import itertools
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.agent.scenario import printed
from harness.judge.comparison.printed_lines import NOTABLE_LINES
from tests.agent import driver
from tests.agent.conftest import INTERPRETERS
from tests.agent.driver import LATE, Told, pack_with
from tests.agent.driver import run_program as run

TORCH = {
    "torch/__init__.py": "from .optim import SGD",
    "torch/optim/__init__.py": """
        from .optimizer import Optimizer

        class SGD(Optimizer):
            total = 0.0
            def step(self, closure=None):
                SGD.total += 0.1
    """,
    "torch/optim/optimizer.py": """
        import functools
        _before, _after = [], []
        def register_optimizer_step_pre_hook(hook): _before.append(hook)
        def register_optimizer_step_post_hook(hook): _after.append(hook)

        class Optimizer(object):
            def __init__(self):
                step = type(self).__dict__.get("step")
                if step is not None and not hasattr(step, "hooked"):
                    type(self).step = self.hooked(step)
            @staticmethod
            def hooked(step):
                @functools.wraps(step)
                def wrapper(self, *args, **kwargs):
                    for hook in _before: hook(self, args, kwargs)
                    result = step(self, *args, **kwargs)
                    for hook in _after: hook(self, args, kwargs)
                    return result
                wrapper.hooked = True
                return wrapper
    """,
    "torch/utils/__init__.py": "",
    "torch/utils/tensorboard/__init__.py": "from .writer import SummaryWriter",
    "torch/utils/tensorboard/writer.py": """
        class SummaryWriter(object):
            def add_scalar(self, tag, scalar_value, global_step=None): pass
    """,
}
OLD_TORCH = {
    "torch/__init__.py": "from .optim import SGD",
    "torch/optim/__init__.py": "from .optimizer import Optimizer, SGD",
    "torch/optim/optimizer.py": """
        class Optimizer(object):
            def __init__(self): pass
        class SGD(Optimizer):
            def step(self, closure=None): pass
    """,
}
KERAS = {
    "keras/__init__.py": "",
    "keras/src/__init__.py": "",
    "keras/src/callbacks/__init__.py": "from .callback_list import CallbackList",
    "keras/src/callbacks/callback_list.py": """
        class CallbackList(object):
            def on_train_batch_end(self, batch, logs=None): pass
            def on_test_batch_end(self, batch, logs=None): pass
            def on_epoch_end(self, epoch, logs=None): pass
    """,
}
TF1 = {
    "tensorflow/__init__.py": "",
    "tensorflow/python/__init__.py": "",
    "tensorflow/python/client/__init__.py": "",
    "tensorflow/python/client/session.py": """
        class Operation(object):
            def __init__(self, name, *control):
                self.name, self.control_inputs, self.inputs = name, list(control), []
        class Graph(object):
            def __init__(self): self.train, self.loss = Operation("train"), Operation("loss")
            def get_collection(self, name): return [self.train] if name == "train_op" else []
            def as_graph_element(self, one): return one
        class BaseSession(object):
            def __init__(self): self.graph = Graph()
            def run(self, fetches, feed_dict=None): return fetches
    """,
}
JAX = {
    "jax/__init__.py": "from jax._src.api import jit",
    "jax/_src/__init__.py": "",
    "jax/_src/core.py": "def trace_state_clean(): return True",
    "jax/_src/api.py": """
        from jax._src import core
        class Compiled(object):
            def __init__(self, fun): self.__wrapped__, self.__name__ = fun, fun.__name__
            def __call__(self, *args): return self.__wrapped__(*args)
            def __get__(self, instance, owner): return lambda *args: self(instance, *args)
            def lower(self): return "lowered"
        def jit(fun, static_argnums=None): return Compiled(fun)
    """,
}
TF2 = {
    "tensorflow/__init__.py": "from tensorflow.python.eager.polymorphic_function.polymorphic_function import function",
    "tensorflow/python/__init__.py": "",
    "tensorflow/python/eager/__init__.py": "",
    "tensorflow/python/eager/context.py": "traced = []\ndef executing_eagerly(): return not traced",
    "tensorflow/python/eager/backprop.py": """
        class GradientTape(object):
            def gradient(self, x): return x
    """,
    "tensorflow/python/eager/polymorphic_function/__init__.py": "",
    "tensorflow/python/eager/polymorphic_function/polymorphic_function.py": """
        from tensorflow.python.eager import context
        class Function(object):
            def __init__(self, python_function):
                self.python_function, self._name = python_function, getattr(python_function, "__name__", "")
            def get_concrete_function(self, *args): self.python_function(*args)
            def __call__(self, *args):
                context.traced.append(self)
                result = self.python_function(*args)
                context.traced.pop()
                return result
        function = Function
    """,
}
LIGHTNING = {
    "lightning/__init__.py": "",
    "lightning/pytorch/__init__.py": "",
    "lightning/pytorch/trainer/__init__.py": "",
    "lightning/pytorch/trainer/call.py": "def _call_callback_hooks(trainer, hook_name, *args): pass",
}
TRANSFORMERS = {
    "transformers/__init__.py": "",
    "transformers/trainer_callback.py": """
        class CallbackHandler(object):
            def on_step_end(self, args, state, control): return control
            def on_log(self, args, state, control, logs): return control
    """,
}
BOOSTER = "class Booster(object):\n    def update(self, *args, **kwargs): return True\n"
LIGHTGBM = {"lightgbm/__init__.py": "from .basic import Booster", "lightgbm/basic.py": BOOSTER}
XGBOOST = {"xgboost/__init__.py": "from .core import Booster", "xgboost/core.py": BOOSTER}
SKLEARN = {
    "sklearn/__init__.py": "",
    "sklearn/base.py": "class BaseEstimator(object): pass",
    "sklearn/all.py": """
        from .base import BaseEstimator
        class Available(object):
            def __init__(self, fn): self.fn = fn
            def __get__(self, one, owner): return lambda *args: self.fn(one, *args)
        class Inner(BaseEstimator):
            def partial_fit(self, x): return self
            def fit(self, x): return self.partial_fit(x)
        class Outer(Inner):
            @Available
            def partial_fit(self, x): return Inner.partial_fit(self, x)
    """,
}
TRAINS = """
    import sys
    import torch

    optimizer = torch.SGD()
    for number in range(int(sys.argv[1])):
        optimizer.step()
    print("total %r" % torch.SGD.total)
"""


def of_itself(steps: int) -> tuple[str, str, int]:
    """Return the message about a program that makes fewer steps than its budget of 100."""
    why = f"the program ended by itself after {steps} of 100 steps; let it make more, or lower `budget`"
    return "stopped", why, steps


def end_of(told: Told) -> tuple[str, str, int]:
    return told.done["end"], told.done["message"], told.done["last_step"]


# ---------------------------------------------------------------- steps

STEP = "import torch\no = torch.SGD()\n"
TRAINER = "class Trainer(object):\n    @staticmethod\n    def one(x): return x\n"
STEPS_OF_TRAINER = "for n in range(60): assert Trainer.one(n) == n\n"
AS_A_MODULE = """
    import sys
    from .loop import one
    assert __name__ == "__main__" and __package__ == "pkg" and sys.argv[1:] == ["a b"], (__package__, sys.argv)
    for _ in range(60): one()
"""
HOOKED = """
    import importlib.machinery, sys
    class Finder(object):
        @staticmethod
        def find_spec(name, path=None, target=None):
            return importlib.machinery.PathFinder.find_spec(name, path, target)
    sys.meta_path.insert(0, Finder)
    import torch
    import csv
    optimizer = torch.SGD()
    for _ in range(60): optimizer.step()
"""


@pytest.mark.smoke
def test_a_training_is_measured_step_by_step_and_computes_what_it_would_alone(tmp_path: Path, python: str) -> None:
    told = run(tmp_path, python, TRAINS, TORCH, args=["60"], looks=[50, 100])

    assert end_of(told) == of_itself(60)
    assert told.one("ready")["probes"] == ["rss", "heap", "python"]
    assert told.one("ready")["step_kind"] == "torch"
    assert [(look["step"], look["last"]) for look in told.all("look")] == [(50, False), (60, True)]
    assert told.column("step") == list(range(1, 61))
    assert told.column("step_s")[0] is None, "nobody knows when the first step began"
    assert None not in told.column("step_s")[1:]
    total = 0.0
    for _ in range(60):
        total += 0.1
    assert f"total {total!r}" in told.done["output_tail"]


@pytest.mark.smoke
def test_the_budget_ends_a_training_that_would_go_on(tmp_path: Path, python: str) -> None:
    told = run(tmp_path, python, TRAINS, TORCH, args=["1000000000"])

    assert end_of(told) == ("completed", "", 100)
    assert "total" not in told.done["output_tail"]


def test_the_answer_stop_ends_a_training(tmp_path: Path, thorough_python: str) -> None:
    told = run(tmp_path, thorough_python, TRAINS, TORCH, args=["1000000000"], answer="stop")

    assert end_of(told) == ("stopped", "", 50)


def test_the_time_limit_ends_a_training_between_two_steps(tmp_path: Path, thorough_python: str) -> None:
    pauses = TRAINS.replace("import sys", "import sys, time").replace(
        "optimizer.step()", "optimizer.step(), time.sleep(0.002)"
    )
    told = run(tmp_path, thorough_python, pauses, TORCH, args=["1000000000"], looks=[10**8], timeout_s=3.0)

    assert (told.done["end"], told.done["shortfall"]) == ("stopped", "timeout")
    assert told.done["message"].startswith("time limit reached after ")


@pytest.mark.parametrize(
    ("files", "text", "job"),
    [
        (OLD_TORCH, STEP + "for _ in range(60): o.step()", {}),
        (TORCH, "import torch\nclass Mine(torch.SGD):\n    def step(self): super().step()\n"
         "p, o = torch.SGD(), Mine()\nfor _ in range(60): o.step()", {}),
        (KERAS, "from keras.src.callbacks import CallbackList\nc = CallbackList()\n"
         "for n in range(60): c.on_train_batch_end(n); c.on_test_batch_end(n)", {}),
        (TF1, "from tensorflow.python.client.session import *\ns = BaseSession()\n"
         "both = Operation('both', s.graph.train)\n"
         "for _ in range(30): s.run({'a': [s.graph.train, s.graph.loss]}); s.run(s.graph.loss); s.run(both)", {}),
        (JAX, "import jax\n@jax.jit\ndef loss(x): return x\n"
         "class Net:\n    @jax.jit\n    def update(self, x): return x + 1\n"
         "n = Net()\nfor i in range(60): assert n.update(loss(i)) == i + 1\nassert Net.update.lower() == 'lowered'\n"
         "import copy\nassert copy.deepcopy(Net.update)(n, 1) == 2", {}),
        (TF2, "import tensorflow as tf\nfrom tensorflow.python.eager.backprop import GradientTape\n"
         "GradientTape().gradient(0)\n@tf.function\ndef train_data(x): return x\n"
         "@tf.function\ndef inner(x): return GradientTape().gradient(x) + 1\n"
         "@tf.function\ndef outer(x): return inner(x)\nouter.python_function.__module__ = None\n"
         "import functools\nassert tf.function(functools.partial(train_data, 1))() == 1\n"
         "for i in range(60): assert train_data(i) + outer(i) + inner(i) == 3 * i + 2", {}),
        ({**TF2, **KERAS, "keras/fit.py": "import tensorflow as tf\nfrom tensorflow.python.eager.backprop import *\n"
          "from keras.src.callbacks import CallbackList\nbatch = tf.function(GradientTape().gradient)"},
         "from keras.fit import *\nGradientTape().gradient(0)\n"
         "for n in range(60): batch(n), CallbackList().on_train_batch_end(n)", {}),
        (LIGHTNING, "from lightning.pytorch.trainer import call\n"
         "for _ in range(60):\n    call._call_callback_hooks(None, 'on_train_batch_end')\n"
         "    call._call_callback_hooks(None, 'on_train_batch_start')", {}),
        (TRANSFORMERS, "from transformers.trainer_callback import CallbackHandler\n"
         "c = CallbackHandler()\nfor _ in range(60): assert c.on_step_end(1, 2, 3) == 3", {}),
        (LIGHTGBM, "import lightgbm\nb = lightgbm.Booster()\nfor _ in range(60): assert b.update(fobj=None)", {}),
        (XGBOOST, "import xgboost\nb = xgboost.Booster()\nfor n in range(60): assert b.update(None, n)", {}),
        (SKLEARN, "from sklearn.all import *\nprint('row 1\\nrow 2')\nmodels = [Outer(), Inner()]\n"
         "for n in range(30): assert [one.fit(n).partial_fit(n) for one in models] == models", {}),
        ({"loop.py": TRAINER}, "from loop import Trainer\n" + STEPS_OF_TRAINER, {"steps_are": "loop:Trainer.one"}),
        ({}, TRAINER + STEPS_OF_TRAINER, {"steps_are": "__main__:Trainer.one"}),
        ({}, TRAINER + STEPS_OF_TRAINER, {"steps_are": "train:Trainer.one"}),
        ({"pkg/__init__.py": "", "pkg/go.py": AS_A_MODULE, "pkg/loop.py": "def one(): pass"}, "",
         {"path": None, "module": "pkg.go", "args": ["a b"], "steps_are": "pkg.loop:one"}),
        (TORCH, STEP + "import os\nif not os.fork(): o.step()\n"
         "else:\n    os.wait()\n    for _ in range(60): o.step()", {}),
        (TORCH, HOOKED, {}),
    ],
    ids=["torch 1", "torch, nested", "keras", "tf1", "jax", "tf2", "keras of tf2", "lightning", "transformers",
         "lightgbm", "xgboost", "sklearn", "a function of a module", "of __main__", "of the program", "as python -m",
         "beside a fork", "behind an import hook"],
)  # fmt: skip
def test_each_step_is_counted_once(
    tmp_path: Path, thorough_python: str, *, files: dict[str, str], text: str, job: dict[str, Any]
) -> None:
    assert end_of(run(tmp_path, thorough_python, text, files, **job)) == of_itself(60)


@pytest.mark.parametrize(("steps_are", "steps"), [("auto", 30), ("torch", 30), ("keras", 60)])
def test_of_two_frameworks_the_named_one_counts_else_the_first(tmp_path: Path, steps_are: str, steps: int) -> None:
    text = """
        import torch
        from keras.src.callbacks import CallbackList
        o, c = torch.SGD(), CallbackList()
        for n in range(60):
            if n % 2 == 0: o.step()
            c.on_train_batch_end(n)
    """
    told = run(tmp_path, sys.executable, text, {**TORCH, **KERAS}, steps_are=steps_are)

    assert end_of(told) == of_itself(steps)


def test_logged_numbers_are_metrics_of_their_step(tmp_path: Path, thorough_python: str) -> None:
    text = """
        import torch
        from torch.utils.tensorboard import SummaryWriter
        optimizer, writer = torch.SGD(), SummaryWriter()
        for number in range(60):
            optimizer.step()
            if number % 20 == 0:
                writer.add_scalar("train/loss", 1.0 / (number + 1), number)
                writer.add_scalar("text", "no number", number)
            if number == 30:
                writer.add_scalar("late", float("nan"), number)
    """
    told = run(tmp_path, thorough_python, text, TORCH)

    assert end_of(told) == of_itself(60)
    numbers = [message["columns"].get("train/loss") for message in told.all("samples")]
    loss = [value for column in numbers for value in column]
    assert {n + 1: value for n, value in enumerate(loss) if value is not None} == {
        1: 1.0, 21: pytest.approx(1 / 21), 41: pytest.approx(1 / 41)
    }  # fmt: skip
    assert told.done["not_finite"] == {"late": [1, 31]}


# ---------------------------------------------------------------- programs that do something else


IMPORTS_LOOP = "try:\n    import loop\nexcept Exception:\n    pass"


@pytest.mark.parametrize(
    ("steps_are", "words"),
    [
        ("loop:two", "steps_are: loop:two: there is no two; known: later, one"),
        ("train:two", "steps_are: train:two: there is no two"),
        ("loop:later", "the step function has a yield"),
        ("gone:one", "gone was not imported"),
        ("loop:one", "loop:one was not called"),
        ("train:go", "the program ended, and no step was seen: train:go was not called"),
    ],
)
def test_a_function_that_makes_no_step_is_said(
    tmp_path: Path, thorough_python: str, steps_are: str, words: str
) -> None:
    """`train was not imported` was said about the program itself."""
    files = {"loop.py": "def one(): pass\ndef later(): yield"}
    text = "def go(): pass" if steps_are == "train:go" else IMPORTS_LOOP
    told = run(tmp_path, thorough_python, text, files, steps_are=steps_are)
    assert told.done["end"] == "setup"
    assert words in told.done["message"]
    assert steps_are != "train:go" or (told.done["shortfall"], told.done["remedy"]) == ("no_step", "function")


def test_a_module_that_is_not_there_is_said(tmp_path: Path, thorough_python: str) -> None:
    told = run(tmp_path, thorough_python, "", path=None, module="pkg.go")
    assert (told.done["end"], told.done["last_step"]) == ("setup", 0)
    assert "module pkg.go: " in told.done["message"]


@pytest.mark.parametrize("text", ["raise ValueError('bad')", "import os; os.kill(os.getpid(), 11)"])
def test_a_program_that_nobody_said_to_make_steps_did_not_fail_before_its_first(
    tmp_path: Path, thorough_python: str, text: str
) -> None:
    """Of a program that makes no steps, the report said that it failed before the first of them."""
    place = "before the first step: "
    named = run(tmp_path / "named", thorough_python, text, steps_are="torch").done
    message = named["message"].splitlines()[-1]
    assert message.startswith(place)
    unnamed = run(tmp_path / "unnamed", thorough_python, text).done
    assert (unnamed["end"], unnamed["message"].splitlines()[-1]) == (named["end"], message.removeprefix(place))


@pytest.mark.parametrize(
    ("text", "end", "words"),
    [
        ("print(1)", "completed", "no step was seen: it did not import any known framework"),
        (STEP, "completed", "no step was seen: an optimizer's step: none was made"),
        (STEP + "import subprocess, sys; subprocess.call([sys.executable, '-c', ''])", "completed",
         "no step was seen: an optimizer's step: none was made"),
        (STEP + "import os\nif not os.fork():\n    for _ in range(7): o.step()\n    os._exit(0)\nos.wait()",
         "stopped", "ended by itself after 7 of 100 steps"),
        ("import os, sys\nos.execv(sys.executable, [sys.executable, '-c', ''])", "completed",
         "the program ended by os._exit or in another program (os.exec)"),
        (STEP + "for _ in range(7): o.step()", "stopped",
         "ended by itself after 7 of 100 steps; let it make more"),
        (STEP + "for _ in range(7): o.step()\nimport sys; sys.exit(3)", "crash",
         "step 8: the program called sys.exit(3)"),
        (STEP + "for _ in range(60): o.step()\nimport sys; sys.exit(0)", "stopped", "60 of 100 steps"),
        ("import sys; sys.exit('no data')", "setup", "the program called sys.exit('no data')"),
        ("import argparse as a\np = a.ArgumentParser()\np.add_argument('--lr', required=True)\np.parse_args()", "setup",
         "the program called sys.exit(2): train.py: error: the following arguments are required: --lr"),
        ("input()", "setup", "EOFError: EOF when reading a line (train.py:1 in <module>); its stdin is empty here"),
        (STEP + "o.step()\nraise ValueError('bad')", "crash", "step 2: ValueError: bad (train.py:4 in <module>)"),
        ("def", "setup", "SyntaxError"),
        (STEP + "for _ in range(100): o.step()\nraise ValueError('bad')", "crash", "ValueError: bad"),
    ],
    ids=["no framework", "never trains", "subprocess", "fork", "exec", "too few", "sys.exit(3)", "sys.exit(0)",
         "sys.exit(text)", "argparse", "stdin", "raises", "no Python", "raises after its steps"],
)  # fmt: skip
def test_what_else_a_program_can_do_is_said(
    tmp_path: Path, thorough_python: str, text: str, end: str, words: str
) -> None:
    told = run(tmp_path, thorough_python, text, TORCH)

    assert told.done["end"] == end, told.done
    assert words in told.done["message"]


@pytest.mark.parametrize("catch", ["except Exception", "except BaseException", "finally"])
def test_no_handler_keeps_a_program_going_after_its_end(tmp_path: Path, thorough_python: str, catch: str) -> None:
    body = "pass" if catch != "finally" else "print('tidied')"
    text = STEP + f"while True:\n    try: o.step()\n    {catch}: {body}"
    told = run(tmp_path, thorough_python, text, TORCH)

    assert end_of(told) == ("completed", "", 100)
    assert ("tidied" in told.done["output_tail"]) == (catch == "finally")


def test_a_program_that_never_trains_is_said_at_the_time_limit(tmp_path: Path, thorough_python: str) -> None:
    told = run(tmp_path, thorough_python, STEP + "import time; time.sleep(60)", TORCH, timeout_s=2.0)

    assert told.done["end"] == "setup"
    assert told.done["message"].startswith(
        "no step was seen in 2 s (train.py:3 in <module>): an optimizer's step: none"
    )


@pytest.mark.parametrize(
    ("text", "steps_are", "words", "remedy"),
    [
        ("def go(): time.sleep(60)\ngo()", "auto",
         r"no step was seen in 3 s \(train.py:4 in go\): an optimizer's step: none was made", "longer"),
        ("def go(): time.sleep(60)\ngo()", "torch", "no step was seen in 3 s", "function"),
        ("import os, sys\nos.execv(sys.executable, [sys.executable, '-c', 'import time; time.sleep(60)'])",
         "auto", "the program replaced itself with another", "command"),
    ],
    ids=["auto", "named", "exec"],
)  # fmt: skip
def test_a_program_that_neither_steps_nor_ends_is_untested(
    tmp_path: Path, text: str, steps_are: str, words: str, remedy: str
) -> None:
    told = run(tmp_path, sys.executable, STEP + "import time\n" + text, TORCH, steps_are=steps_are, timeout_s=3.0)

    assert (told.done["end"], told.done["shortfall"], told.done["remedy"]) == ("setup", "no_step", remedy)
    assert re.search(words, told.done["message"])


@pytest.fixture
def traffic() -> Iterator[None]:
    """Other programs of the machine use the network."""
    ends = threading.Event()

    def send() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as to, socket.socket(type=socket.SOCK_DGRAM) as link:
            to.bind(("127.0.0.1", 0))
            while not ends.wait(0.005):
                link.sendto(bytes(32 << 10), to.getsockname())

    thread = threading.Thread(target=send)
    thread.start()
    yield
    ends.set()
    thread.join()


@pytest.mark.usefixtures("traffic")
def test_a_program_that_waits_for_what_never_comes_hangs_long_before_the_time_limit(
    tmp_path: Path, thorough_python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock that was not given back: each launch took the whole limit, and that no step was seen blamed nothing.
    A program that prints, works or waits for less than a fifth of its limit goes on."""
    quick = "QUIET_S, QUIET_WINDOW_S = 0.5, 0.2"
    pack_with(monkeypatch, tmp_path, "supervisor/stalls.py", "QUIET_S, QUIET_WINDOW_S = 30.0, 10.0", quick)
    pack_with(monkeypatch, tmp_path, "supervisor/standstill.py", "AFTER_FAILURE_S = 10.0", "AFTER_FAILURE_S = 0.2")
    waits = "import threading\nlock = threading.Lock()\nfor n in range(%d): print('shard', n)\n"
    waits += "for n in 1, 2: lock.acquire()"
    for count, place in ((1, ""), (9, "step 8: ")):
        done = run(tmp_path / f"{count}", thorough_python, waits % count, timeout_s=10.0).done
        assert done["end"] == "hang"
        assert re.match(place + r"nothing was done for \d s \(train.py:4 in <module>\)$", done["message"])
    goes_on = "import time\nfor n in range(6): print('wait', 0, flush=True); time.sleep(0.7)"
    for text in (goes_on, goes_on.replace("time.sleep(0.7)", "sum(range(2 * 10 ** 7))"), "import time; time.sleep(1)"):
        told = run(tmp_path / str(len(text)), thorough_python, text, timeout_s=10.0)
        assert told.done["end"] == "completed", told.done


# ---------------------------------------------------------------- programs that are judged as a whole


@pytest.mark.smoke
@pytest.mark.parametrize(
    "printed", [["accuracy: 0.5", "accuracy: 0.75"], [f"{at} accuracy: 0.{at}5" for at in (5, 6, 7)]]
)
def test_the_whole_run_of_a_program_without_steps_is_one_figure(
    tmp_path: Path, python: str, printed: list[str]
) -> None:
    """A script of scikit-learn was refused, because nothing in it was a step. Another printed three lines, of which the
    last was the one step: its processor time and output, which ended with it, were nothing."""
    text = """
import sys, time, subprocess
subprocess.call([sys.executable, "-c", "import time\\nwhile time.process_time() < 0.4: pass"])
block = bytearray(64 << 20)
del block
time.sleep(0.3)
"""
    text += "".join(f"print({line!r})\n" for line in printed)
    told = run(tmp_path, python, text, printed={"accuracy": "accuracy: {}"})

    done = told.done
    assert (done["end"], done["shortfall"], done["remedy"], done["last_step"]) == ("completed", "no_step", "", 1)
    assert 0.7 < done["run_s"] < 20
    assert done["peak_rss_kib"] > 64 << 10
    assert done["output_bytes"] == sum(len(line) + 1 for line in printed)
    assert told.column("accuracy") == [0.75]
    assert told.column("step_s") == [None], "the start of the one step is that of the process"
    (look,) = told.all("look")
    assert (look["step"], look["last"]) == (1, True)
    assert 0.4 < look["look"]["cpu_s"] < 5
    assert look["look"]["rss_peak_kib"] > 64 << 10
    (ready,) = told.all("ready")
    assert (ready["setup_s"], ready["first_step_s"]) == (None, None)


def test_the_memory_of_all_processes_is_sampled_over_time_without_a_step(tmp_path: Path, python: str) -> None:
    """A program whose child lost memory all the time was one figure, its peak."""
    child = "import time\\nkept = []\\nfor _ in range(20): kept.append(bytearray(b'x') * (2 << 20)); time.sleep(0.15)"
    text = f"import subprocess, sys\nsubprocess.check_call([sys.executable, '-c', \"{child}\"])"
    columns = run(tmp_path, python, text).one("over_time")["columns"]
    at_s, anon_kib = columns["at_s"], columns["anon_kib"]
    assert len(at_s) > 6, "samples that cost much are taken less often"
    assert at_s == sorted(at_s)
    assert max(anon_kib) - anon_kib[0] > 35 << 10
    assert anon_kib[len(anon_kib) // 2] < 0.8 * max(anon_kib), "it rose little by little"
    script = driver.run(tmp_path / "script", python, "def setup(): return lambda: None")
    assert not script.all("over_time"), "its steps tell more"


@pytest.mark.parametrize(
    "end", ["os._exit(0)", "os.execv(sys.executable, [sys.executable, '-c', 'print(\"accuracy: 0.5\")'])"]
)
def test_the_whole_run_of_a_program_that_leaves_without_a_word_is_one_figure(
    tmp_path: Path, python: str, end: str
) -> None:
    """A script that ends by os._exit, as some do to end their threads, was a crash or not tested."""
    text = f"import os, sys, time\nblock = bytearray(64 << 20)\ntime.sleep(0.3)\nprint('loaded', flush=True)\n{end}"
    told = run(tmp_path, python, text)
    done = told.done
    assert (done["end"], done["shortfall"], done["remedy"], done["last_step"]) == ("completed", "no_step", "", 1)
    assert "os._exit" in done["message"]
    assert 0.3 < done["run_s"] < 20
    assert done["peak_rss_kib"] > 64 << 10
    assert done["output_bytes"] >= len("loaded\n")
    (look,) = told.all("look")
    assert 0 < look["look"]["cpu_s"] < 5
    assert run(tmp_path / "bad", python, "import os\nos._exit(3)").done["end"] == "setup"


@pytest.mark.parametrize(("budget", "end", "shortfall"), [(100, "stopped", "own_end"), (70, "completed", "")])
def test_a_program_that_leaves_by_os_exit_0_after_its_steps_has_ended_well(
    tmp_path: Path, python: str, budget: int, end: str, shortfall: str
) -> None:
    """Good versions of a program that ended by os._exit(0) were said to crash: the process ended with exit code 0."""
    text = STEP + "import os\nfor _ in range(70): o.step()\nos._exit(%d)"
    told = run(tmp_path, python, text % 0, TORCH, looks=[30, budget])
    assert (told.done["end"], told.done["shortfall"], told.done["last_step"]) == (end, shortfall, 70)
    assert told.all("look")[-1]["last"] is True
    bad = run(tmp_path / "bad", python, text % 3, TORCH, looks=[30, 100]).done
    assert (bad["end"], bad["exit_code"]) == ("crash", 3)


def test_the_time_to_end_begins_with_the_last_step(tmp_path: Path, python: str) -> None:
    """After training, a new version hung for six seconds before it ended, and nothing was said."""
    text = STEP + "import atexit, time\natexit.register(time.sleep, 0.3)\nfor _ in range(7): o.step()\ntime.sleep(0.4)"
    done = run(tmp_path, python, text, TORCH, looks=[3, 100]).done
    assert 0.7 < done["end_s"] < 10
    assert done["end_s"] < done["run_s"]
    late = run(tmp_path / "late", python, LATE + STEP + "for _ in range(7): o.step()", TORCH, looks=[3, 100]).done
    assert 0.6 < late["end_s"] < 10, "its end was sent, and read 0.6 s later"
    assert 0.6 < late["run_s"] < 10


@pytest.mark.smoke
def test_a_program_that_ends_after_its_steps_is_not_cut(tmp_path: Path, python: str) -> None:
    """The accuracy that a training prints at its end was never seen, because the budget was its own number of steps."""
    text = STEP + "for _ in range(100): o.step()\nprint('accuracy: 0.75')\nimport time; time.sleep(0.2)"
    told = run(tmp_path, python, text, TORCH, looks=[50, 100], printed={"accuracy": "accuracy: {}"})
    assert end_of(told) == ("completed", "", 100)
    assert told.done["run_s"] > 0.2
    assert [(look["step"], look["last"]) for look in told.all("look")] == [(50, False), (100, True)]
    assert [value for value in told.column("accuracy") if value is not None] == [told.column("accuracy")[-1]] == [0.75]


def test_the_count_after_the_last_step_is_no_time_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the supervisor counted what a program holds after its steps, its run time went on."""
    counting = "            self._job.census.look()  # what it holds after its steps"
    slow = f"            import time; time.sleep(2)\n{counting}"
    pack_with(monkeypatch, tmp_path, "supervisor/ranks.py", counting, slow)
    text = STEP + "for _ in range(100): o.step()"
    done = run(tmp_path / "root", sys.executable, text, TORCH, looks=[50, 100]).done
    assert 0 < done["run_s"] < 2
    assert done["probe_cost"] * done["run_s"] < 2


def test_what_a_program_opens_after_its_steps_is_no_growth(tmp_path: Path) -> None:
    """The prediction after a training starts a thread: `threads` could not be judged."""
    text = STEP + "for _ in range(100): o.step()\nimport os\nheld = [os.open('/dev/null', 0) for _ in range(50)]"
    counts = run(tmp_path, sys.executable, text, TORCH, looks=[50, 100]).all("counts")[-1]["columns"]
    assert counts["step"][-1] == 100
    assert len(set(counts["open_files"])) == 1


def test_a_file_that_a_program_writes_after_its_steps_is_counted_at_its_end(tmp_path: Path, python: str) -> None:
    """A version that no longer saved its model looked like all others: files were counted after the last step."""
    text = STEP + "for _ in range(100): o.step()\nwith open('model.bin', 'wb') as file: file.write(b'x' * 300000)"
    told = run(tmp_path, python, text, TORCH, looks=[50, 100])
    assert told.counts["disk"][-1] < 290
    assert 290 < told.all("look")[-1]["look"]["left_kib"] < 400


@pytest.mark.parametrize("timeout_s", [60.0, 1.0])
def test_a_program_that_goes_on_without_a_step_after_its_steps_is_cut_without_blame(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, timeout_s: float
) -> None:
    pack_with(monkeypatch, tmp_path, "supervisor/ranks.py", "LEAST_GRACE_S = 10.0", "LEAST_GRACE_S = 0.5")
    text = STEP + "for _ in range(100): o.step()\nimport time; time.sleep(600)"
    told = run(tmp_path / "root", sys.executable, text, TORCH, timeout_s=timeout_s)
    assert end_of(told) == ("completed", "", 100)
    assert told.done["busy_s"] > 0


REWRAPPED = """
import codecs, contextlib, io, os, sys, time, types

class Tee(io.StringIO):
    def __init__(self, *streams):
        self.streams = streams
    def write(self, text):
        for stream in self.streams:
            stream.write(text)

class Logger:
    def __init__(self, stream):
        self.stream = stream
    def __getattr__(self, name):
        return getattr(self.stream, name)
    def write(self, text):
        self.stream.write(text)

def train():
    for number in range(100):
        time.sleep(0.0005)
        print("step %d loss=%.4f" % (number, 1 / (number + 1)))
    sys.stdout.flush()

ACT
assert isinstance(os, type(sys)) and isinstance(sys, types.ModuleType)
"""


@pytest.mark.parametrize(
    ("act", "steps"),
    [
        ('sys.stdout = io.TextIOWrapper(sys.stdout.buffer, "utf-8")\ntrain()', 98),
        ('sys.stdout = io.TextIOWrapper(sys.stdout.detach(), "utf-8", line_buffering=True)\ntrain()', 98),
        ('sys.stdout = codecs.getwriter("utf-8")(sys.stdout.buffer)\ntrain()', 98),
        ('sys.stdout = os.fdopen(os.dup(1), "w", 1)\ntrain()', 98),
        ("sys.stdout = Logger(sys.stdout)\ntrain()", 98),
        ('sys.stdout = Logger(Logger(io.TextIOWrapper(sys.stdout.buffer, "utf-8")))\ntrain()', 98),
        ("with contextlib.redirect_stdout(Tee(sys.stdout, io.StringIO())): train()", 98),
        ("sys.stdout, sys.stderr = sys.stderr, sys.stdout\ntrain()", 98),
        ('sys.stdout = io.StringIO()\nsys.stdout = io.TextIOWrapper(sys.__stdout__.buffer, "utf-8")\ntrain()', 98),
        ('getattr(sys.stdout, "reconfigure", lambda **how: None)(encoding="utf-8")\ntrain()', 98),
        ("with contextlib.redirect_stdout(io.StringIO()): train()", 1),
    ],
)
def test_what_is_printed_by_another_stream_in_the_place_of_stdout_is_read(
    tmp_path: Path, python: str, *, act: str, steps: int
) -> None:
    """A program that sets its output to UTF-8 seemed to have no steps and no loss. What it keeps is no output."""
    told = run(tmp_path, python, REWRAPPED.replace("ACT", act), looks=[1000])
    assert told.done["end"] == ("stopped" if steps > 1 else "completed"), told.done
    assert told.done["last_step"] == steps
    assert [value for value in told.column("loss") if value is not None][-1:] == [0.01] * (steps > 1)


@pytest.mark.parametrize(
    "act",
    [
        "assert all(pickle.loads(pickle.dumps(sys, each)) is sys for each in range(pickle.HIGHEST_PROTOCOL + 1))",
        "assert copy.copy(sys) is copy.deepcopy([sys])[0] is sys",
        "class Lazy(type(sys)): pass\nassert not isinstance(os, Lazy)\nassert isinstance(Lazy('a'), types.ModuleType)",
        "class Strict(type(sys)):\n    def __init_subclass__(cls, key): cls.key = key\n"
        "class Lazy(Strict, key=2):\n    def __init__(self): super().__init__('a')\nassert Lazy().key == Lazy.key == 2",
        "assert type(type(sys)('one')) is type(os)",
        "sys.stdout = Odd()\nsys.stdout = sys.__stdout__",
        "sys.stdout = Own()\nsys.stdout.write('x', flush=True)\nsys.stdout.write(line='x', flush=True)",
    ],
)
def test_a_program_does_not_notice_that_its_streams_are_followed(tmp_path: Path, python: str, act: str) -> None:
    """cloudpickle could not pickle a function that uses `sys`."""
    text = """
import copy, os, pickle, sys, types
class Odd:
    def __getattr__(self, name):
        raise RuntimeError(name)
class Own:
    def fileno(self):
        return 1
    def write(self, line, flush=False):
        os.write(1, line.encode())
    def flush(self):
        pass
ACT
"""
    done = run(tmp_path, python, text.replace("ACT", act)).done
    assert done["end"] == "completed", done


@pytest.mark.parametrize(("word", "steps"), [("step", 10), ("x", 1)])
def test_the_time_to_read_the_lines_is_the_agents_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str, steps: int
) -> None:
    """A version that printed lines three times as long, as fast as before, took twice as long to run."""
    old = "is_source, self._is_source = self._is_source"
    spins = "began = time.process_time()\n        while time.process_time() < began + 0.1:\n            pass"
    slow = f"{spins}\n        {old}"
    pack_with(monkeypatch, tmp_path, "scenario/printed.py", old, slow)
    text = f"for n in range(12): print('{word}', n if '{word}' == 'step' else n * n * n, 'loss', 1 / (n + 1))"
    told = run(tmp_path / "root", sys.executable, text, looks=[50, 100])
    assert end_of(told)[2] == steps
    assert told.done["run_s"] < 0.6, "to read its lines took 1.2 s"
    assert told.all("look")[-1]["look"]["cpu_s"] < 0.6
    assert not [step_s for step_s in told.column("step_s") if step_s is not None and step_s > 0.05]


def test_what_is_printed_after_the_last_line_that_is_a_step_belongs_to_it(tmp_path: Path) -> None:
    text = "for n in range(9): print('epoch', n)\nprint('accuracy: 0.75')"
    told = run(tmp_path, sys.executable, text, printed={"accuracy": "accuracy: {}"})
    assert told.column("accuracy") == [None] * 6 + [0.75]


def test_a_run_that_the_agent_cut_has_no_time(tmp_path: Path, python: str) -> None:
    done = run(tmp_path, python, STEP + "while True: o.step()", TORCH, looks=[10]).done
    assert (done["end"], done["run_s"], done["end_s"], done["busy_s"]) == ("completed", None, None, None)


KILLED = """
import multiprocessing, os, signal, subprocess

def die():
    os.kill(os.getpid(), signal.SIGABRT)

if __name__ == "__main__":
    for _ in range(3):
        subprocess.call(["sh", "-c", "kill -SEGV $$"])
    worker = multiprocessing.get_context("fork").Process(target=die)
    worker.start()
    worker.join()
    ended = subprocess.Popen(["sleep", "100"])
    ended.kill()
    ended.wait()
    print("all is well")
"""


def test_children_that_end_while_the_interpreter_does_leave_no_trace(tmp_path: Path, python: str) -> None:
    """`Exception ignored in: <function Popen.__del__` would be an error that the program does not have."""
    text = "import subprocess\nleft = [subprocess.Popen(['false']) for _ in range(3)]\n"
    text += "class Late:\n    def __init__(self): self.child = left[0]\n    def __del__(self): self.child.wait()\n"
    text += "late = Late()\nlate.itself = late\nprint('all is well')"
    done = run(tmp_path, python, text).done
    assert done["end"] == "completed", done
    assert done["output_tail"] == "all is well\n"


def test_a_child_that_dies_by_a_signal_is_told_like_an_error(tmp_path: Path, python: str) -> None:
    """The program ends well: nothing showed that its decoder crashed."""
    told = run(tmp_path, python, KILLED)
    lines = [line for line in told.done["output_tail"].splitlines() if "was killed" in line]
    assert [line.rpartition(" ")[2] for line in lines] == ["SIGSEGV", "SIGABRT"]
    assert all(NOTABLE_LINES["error"].search(line) for line in lines)
    assert told.done["end"] == "completed"


DIES = """
import multiprocessing, os, signal, subprocess, time

def die():
    os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    context = multiprocessing.get_context("METHOD")
    ACT
    print("all is well")
"""
POOL = """from concurrent.futures import ProcessPoolExecutor
    with ProcessPoolExecutor(2) as pool:
        pool.submit(die).exception()"""
POLL = "child = subprocess.Popen(['sh', '-c', 'kill -9 $$'])\n    while child.poll() is None: time.sleep(0.01)"
JOIN = "worker = context.Process(target=die); worker.start(); worker.join()"
OF_GROUP = "child = subprocess.Popen(['sleep', '100'], start_new_session=True); os.killpg(child.pid, 9); child.wait()"
OF_SECOND = """first = subprocess.Popen(['sleep', '100'], preexec_fn=os.setpgrp)
    second = subprocess.Popen(['sleep', '100'], preexec_fn=lambda: os.setpgid(0, first.pid))
    os.killpg(first.pid, 9)
    first.wait(), second.wait()"""
BESIDE_KILLED = OF_SECOND.replace(
    "os.killpg(first.pid, 9)", "first.kill(); subprocess.call(['kill', '-9', str(second.pid)])"
)
WAIT = "if not os.fork(): die()\n    os.wait()"
OF_OTHER = "child = context.Process(target=time.sleep, args=(100,)); child.start(); os.kill(child.pid, 9); child.join()"
IN_SHELL = """child = subprocess.Popen("sleep 100 & echo $!; wait $!", shell=True, stdout=subprocess.PIPE)
    os.kill(int(child.stdout.readline()), 9)
    child.wait()"""


@pytest.mark.parametrize(
    ("act", "method", "is_told"),
    [
        (JOIN, "fork", True),
        (JOIN, "spawn", True),
        (JOIN, "forkserver", True),
        (POOL, "fork", True),
        (POLL, "fork", True),
        ("subprocess.call(['sh', '-c', 'kill -9 $$'])", "fork", True),
        ("os.system('sh -c \"kill -9 $$\"; exit $?')", "fork", True),
        (OF_OTHER, "fork", False),
        (OF_OTHER, "forkserver", False),
        (OF_GROUP, "fork", False),
        (OF_SECOND, "fork", False),
        (BESIDE_KILLED, "fork", True),
        (WAIT, "fork", False),
        ("if not os.fork(): die()\n    os.waitpid(-1, 0)", "fork", False),
        ("if not os.fork(): die()\n    os.wait3(0)", "fork", False),
        ("if not os.fork(): die()\n    os.wait4(pid=-1, options=0)", "fork", False),
        ("child = os.fork() or die()\n    os.wait4(pid=child, options=0)", "fork", True),
        (IN_SHELL, "fork", False),
    ],
)
def test_a_child_that_is_killed_is_told_unless_the_program_killed_it(
    tmp_path: Path, python: str, *, act: str, method: str, is_told: bool
) -> None:
    """Three of four versions lost a worker of their pool by SIGKILL: `Nothing bad: all 3 cells are good`."""
    if method == "forkserver" and is_told and python == INTERPRETERS.get("3.6"):
        pytest.skip("its forkserver tells nobody which signal ended a child")
    done = run(tmp_path, python, DIES.replace("ACT", act).replace("METHOD", method)).done
    assert done["end"] == "completed", done
    lines = [line for line in done["output_tail"].splitlines() if "was killed" in line]
    assert lines == ["harness: a child process was killed by SIGKILL"] * is_told


def test_a_line_that_recurs_is_a_step_from_the_third_on(tmp_path: Path, python: str) -> None:
    """A network in plain numpy prints its loss in each epoch, and was refused."""
    text = """
import sys
import threading
print("loading 3 files")
for epoch in range(40):
    print("epoch %d: loss=%s" % (epoch, "nan" if epoch == 30 else "%.3g" % (10.0 ** -epoch)))
    print("done")
    sys.stderr.write("\\r%d%%" % (epoch // 20))
"""
    told = run(tmp_path, python, text, printed={"loss": "loss={}"})

    assert (told.done["end"], told.done["last_step"]) == ("stopped", 38)
    loss = told.column("loss")
    assert loss[:3] == [pytest.approx(0.01), pytest.approx(1e-3), pytest.approx(1e-4)], "a line ends its step"
    assert told.done["not_finite"] == {"loss": [1, 29]}


def test_the_rows_of_a_table_that_is_printed_at_once_are_no_steps(tmp_path: Path, python: str) -> None:
    """A table of scores at the end of a run of a minute was twenty steps of a microsecond, too noisy to be good."""
    table = "\n".join(["  n  score", *(f"{row:3}   {row / 7:.3f}" for row in range(90)), "all   0.9"])
    told = run(tmp_path, python, f"print({table!r})\nprint({table!r})")
    assert (told.done["end"], told.done["last_step"], told.one("ready")["step_kind"]) == ("completed", 1, None)
    loop = "for n in range(9): print('step %d\\nloss %d.5\\nloss %d.7' % (n, n, n))"
    assert run(tmp_path / "loop", python, loop).done["last_step"] == 7


def test_lines_are_no_steps_of_a_program_with_a_framework(tmp_path: Path, python: str) -> None:
    text = STEP + "for number in range(9): print('step', number)\nfor _ in range(5): o.step()"
    assert run(tmp_path, python, text, TORCH).done["last_step"] == 5
    asked = run(tmp_path / "lines", python, text, TORCH, lines="step #")
    assert asked.done["last_step"] == 7, "the oldest version has no framework"


def test_a_framework_that_is_imported_late_does_not_end_the_count_of_lines(tmp_path: Path, python: str) -> None:
    """A program that imports torch for its last evaluation would have the few steps before it, and growth unseen."""
    line = "for number in range(%d, %d): print('step', number)\n"
    assert run(tmp_path, python, line % (0, 4) + STEP + line % (4, 9), TORCH).done["last_step"] == 7


def test_the_steps_of_a_framework_win_over_lines_that_came_before_them(tmp_path: Path, python: str) -> None:
    """`loading 1 of 4` was the step of a training with torch, in the version that imports it late."""
    text = "for number in range(4): print('loading', number)\n" + STEP
    text += "for number in range(60): o.step(), print('step', number, 'loss', number / 3)"
    told = run(tmp_path, python, text, TORCH, looks=[50, 100])
    ready = told.one("ready")
    assert (ready["step_kind"], ready["step_shape"]) == ("torch", None)
    assert end_of(told) == of_itself(60)
    assert told.column("step") == list(range(1, 61))
    assert told.column("step_s")[0] is None
    assert told.column("loss")[:49] == [pytest.approx(number / 3) for number in range(49)]
    assert told.counts["step"][0] == 1


def test_a_bar_of_a_program_is_counted_to_its_end(tmp_path: Path, python: str) -> None:
    text = """
import sys, time
for at in range(0, 121, 3):
    time.sleep(0.006)
    sys.stderr.write("\\r%3d%%|%s| %d/120 [00:01, 9.1it/s]" % (at / 1.2, "#" * (at // 12), at))
sys.stderr.write("\\n")
"""
    told = run(tmp_path, python, text, looks=[200])
    assert told.done["last_step"] == 120
    assert told.one("ready")["step_shape"] == " bar"
    known = sorted(value for value in told.column("step_s") if value is not None)
    assert 0.0015 < known[len(known) // 2] < 0.02, "a redraw is three steps"


@pytest.mark.parametrize(
    ("texts", "steps"),
    [
        (["step 1", "step 2", "step 3", "step 4"], [3, 4]),
        (["rows 5", "rows 17", "rows 29", "rows 99"], [3, 4]),
        (["rows 5", "rows 17", "rows 30", "rows 99"], []),
        (["step 1", "step 100", "step 200", "step 300"], [4]),
        (["a 3", "a 2", "a 3", "a 4"], [4]),
        (["a 1", "a 1", "a 1", "a 2"], []),
        (["0% 1", "0% 2", "0% 3", "1% 4"], [3, 4]),  # the first number does not rise, but the second counts
        (["e 1 b 1", "e 1 b 2", "e 1 b 3", "e 2 b 1"], [3, 4]),
        ([f"2026-11-25 01:01:5{at},123 4711 step {at} loss 0.{at}" for at in range(1, 5)], [3, 4]),
        ([f"[4711] loss {loss} step {at}" for at, loss in enumerate(("2.5", "1", "nan", "0.5"))], [3, 4]),
        (["e 1 b 1", "x 1", "e 2 b 2", "x 2", "e 3 b 1", "x 3", "e 4 b 1"], [5, 7]),
        (["b 1", "b 2", "b 3", "b 1", "b 2", "b 2"], [3, 4, 5]),
        ([f"[{at:3d}/800] loss 1" for at in (8, 9, 10, 11, 99, 100)], [3, 4, 5, 6]),  # padded to one width
        ([f"step {at:<4d}| loss 1" for at in (8, 9, 10, 11, 100, 1000)], [3, 4, 5, 6]),
        ([str(10**20)] * 9 + ["no number", ""], []),
        (["\u0661 1", "\u0662 2", "\u0663 3"], []),
        ([f"2026-11-25 01:01:5{at},123 x INFO step {at} loss=0.{at}" for at in range(1, 5)], [3, 4]),
        ([f"[01:01:59.1] INFO: step {at}" for at in range(1, 5)], [3, 4]),
        ([f"INFO 2026-11-25T01:01:59Z at {at}" for at in range(1, 5)], [3, 4]),
    ],
)
def test_the_first_number_of_a_line_that_is_a_step_grows(texts: list[str], steps: list[int]) -> None:
    reader = printed.LineSteps(None)
    assert [place for place, text in enumerate(texts, 1) if reader.steps_of(text)] == steps


@pytest.mark.parametrize(
    ("line", "is_step"),
    [
        ("step {at} | loss=2.1 | norm=inf | skipped, scale {at}", True),
        ("step {at} | loss=nan, skipped", True),
        ("step {at} | loss=2.1 | norm=0.3 | saved", True),
        ("step {at} begins", False),
        ("step {at} | info: saved", False),
        ("rank {at} | loss=nan, skipped", False),
        ("nan {at}", False),
    ],
)
def test_a_step_that_is_skipped_for_an_infinity_is_a_step(line: str, is_step: bool) -> None:
    """Losses of 101 steps were compared with those of 118: `loss 0.78 → 0.65`, though each step had the same one."""
    usual = "step {at} | loss=2.1 | norm=0.3"
    reader = printed.LineSteps(None)
    made = [reader.steps_of((line if at % 7 == 4 else usual).format(at=at)) for at in range(1, 22)]
    assert sum(made) == (19 if is_step else 16)
    assert made[10] == is_step
    reader.steps_of(usual.format(at=22))
    assert reader.steps_of(line.format(at=22)) == reader.steps_of(line.format(at=24)) == 0, "it is the step's own line"


@pytest.mark.parametrize(
    ("text", "apart_s", "steps"),
    [
        ("shard {at}: 500 lines, {hash}", 0.0, 18),  # an id is a number
        ("step {at} {word}.txt done", 0.01, 13),
        ("{word}.txt: shard {at} of 9000", 0.01, 13),
        ("[{at}] read {word}", 0.01, 13),
        ("({at}): {word} 3", 0.0, 0),  # the layers of a model
        ("{word} {at}", 0.01, 0),  # nothing says that these numbers count the same
    ],
)
def test_a_rising_counter_is_a_step_whatever_else_varies_on_its_line(text: str, apart_s: float, steps: int) -> None:
    """`shard 7: 500 lines, 3fa81c02` was no step: a leak of open files was not judged, and took eight minutes."""
    ticks = itertools.count()
    reader = printed.LineSteps(None, clock=lambda: next(ticks) * apart_s)
    lines = [
        text.format(at=at, hash=hashlib.md5(b"%d" % at).hexdigest()[:8], word="xyzuvw"[: at % 5 + 1] + "zyw"[: at % 3])
        for at in range(1, 21)
    ]
    assert sum(map(reader.steps_of, lines)) == steps


REDRAWN = "Epoch 1: {0:3d}%|{1:<10}| {0}/100 [00:0{2}<00:0{2}, {3}it/s, loss={4}]"


def test_a_progress_bar_counts_by_its_counter_not_by_how_often_it_is_drawn() -> None:
    """A bar is drawn ten times a second whatever its loop does: a loop that was 3 times slower got a tick."""
    reader = printed.LineSteps(None)
    drawn = [(0, "?"), (3, "30.1"), (3, "30.1"), (7, "29"), (37, "1.2s"), (37, "30"), (100, "30")]
    texts = [REDRAWN.format(at, "\u2588" * (at // 10), at // 50, pace, at / 7) for at, pace in drawn]
    assert [reader.steps_of(f"\x1b[A{text}", True) for text in texts] == [0, 0, 0, 7, 30, 0, 63]
    assert reader.steps_of(texts[0].replace("Epoch 1", "Epoch 2"), True) == 0
    assert reader.steps_of(texts[3].replace("Epoch 1", "Epoch 2"), True) == 7
    assert reader.shape == "epoch bar"
    long = printed.LineSteps(None)
    assert [long.steps_of(f"{at}/1000000 =====>", True) for at in (1, 5000, 9500, 10500, 11000)] == [0, 0, 9, 1, 1]
    assert long.shape == " bar by 1000"
    assert long.steps_of("0.5 loss") == long.steps_of("loss nan in 0:1") == 0


@pytest.mark.parametrize("text", ["{}it [00:01, 30it/s]", "{} rows read", "Working {}%"])
def test_what_is_drawn_anew_without_a_total_is_no_step_unless_it_counts_by_one(text: str) -> None:
    reader = printed.LineSteps(None)
    assert [reader.steps_of(text.format(at), True) for at in (7, 30, 53, 76, 99)] == [0] * 5
    assert [reader.steps_of(text.format(at), True) for at in (101, 102, 103, 104)] == [0, 0, 1, 1]


def test_the_lines_that_are_steps_have_a_name_that_other_numbers_do_not_change() -> None:
    """Lines of another shape, or of every tenth step, in the new version would be compared as if they were the same."""
    shapes = []
    for text, by in (("epoch {}: loss=0.5", 1), ("\x1b[1mEpoch\x1b[0m {} | loss 0.5 | acc 1", 1), ("epoch {}", 10)):
        reader = printed.LineSteps(None)
        for at in range(5):
            reader.steps_of(text.format(at * by))
        shapes.append(reader.shape)
    assert shapes == ["epoch #", "epoch #", "epoch # by 10"]
    texts = [text for at in range(6) for text in (*(f"batch {8 * at + each} done" for each in range(8)), f"epoch {at}")]
    steps = {only: sum(map(printed.LineSteps(None, only).steps_of, texts)) for only in (None, "epoch #", "step #")}
    assert steps == {None: 46, "epoch #": 4, "step #": 0}, "a new version's debug output is no step"
    assert printed.LineSteps(None, "").is_off
    reader = printed.LineSteps(None)
    for at in range(3):
        reader.steps_of("x" * 500 + f" {at}")
    assert reader.shape is not None
    assert len(reader.shape) < 80


# ---------------------------------------------------------------- what it prints


@pytest.mark.smoke
def test_a_loss_that_is_only_printed_is_a_metric_of_its_step(tmp_path: Path, python: str) -> None:
    """Most training scripts have no logger: without the loss that they print, a wrong result would go unseen."""
    text = (
        STEP
        + """
import sys
import threading
import time
for number in range(1, 61):
    o.step()
    print("epoch 1 step", number, " Loss:   %.2e" % (1 / number), "acc=%d%%" % number, sep="\\t")
    sys.stderr.write("\\r%d: %.1f it/s" % (number, number / 2))
sys.stderr.write("\\n" + "x" * 100000 + "Loss: 7\\n")
"""
    )
    printed = {"loss": "Loss: {}", "accuracy": "acc={}%", "pace": "{} it/s", "other": "val_loss {}"}
    told = run(tmp_path, python, text, TORCH, printed=printed, looks=[100])
    assert told.column("loss")[:60] == [float("%.2e" % (1 / number)) for number in range(1, 61)]
    assert told.column("accuracy")[:60] == list(range(1, 61))
    assert told.column("pace")[1:59] == [number / 2 for number in range(1, 59)], "a line counts where it ends"
    assert "Loss:" in told.done["output_tail"]
    assert not told.column("other")


@pytest.mark.parametrize(
    ("pattern", "line", "value"),
    [
        ("loss: {}", "loss: -1.5e-05, lr 3", -1.5e-05),
        ("loss: {}", "loss:0.25", 0.25),
        ("loss={}", "val_loss= 3", 3.0),
        ("Train Loss: {} acc", "Train   Loss:\t.5 acc 1", 0.5),
        ("{} it/s", "100%|### | 10/10 [00:01, 9.5it/s]", 9.5),
        ("loss: {}", "loss: inf", float("inf")),
        ("loss: {}", "loss: none", None),
        ("loss {}", "loss information follows", None),
        ("{} it/s", "banan it/s", None),
        ("took {}s", "took nans", float("nan")),
        ("loss: {}", "loss: \u0131nf", None),
        ("{} images/s", "1,234.5 images/s", 1234.5),
        ("loss: {}", "loss: -12,345,678", -12345678.0),
        ("losses: {}", "losses: 1,2", 1.0),
        ("losses: {}", "losses: 1,2345", 1.0),
        ("a{}", "a" * 100000, None),
    ],
)
def test_a_printed_number_is_found_where_the_pattern_says(pattern: str, line: str, value: float | None) -> None:
    found = printed.Reader({"it": pattern}, None).values(line)
    assert found == ({} if value is None else {"it": pytest.approx(value, rel=0, nan_ok=True)})


@pytest.mark.parametrize(
    ("lines", "values"),
    [
        ("epoch 5: loss=0.61", {"loss": 0.61}),
        ("step 51 loss nan", {"loss": float("nan")}),
        ('{"step": 3, "loss": 0.3, "time": 1.5}', {"loss": 0.3}),
        ("{'loss': '0.3', 'epoch': '0.02'}", {"loss": 0.3}),
        (" 45%|####     | 45/100 [00:01<00:02, 30.1it/s, loss=0.12, acc=93%]", {"loss": 0.12, "acc": 93.0}),
        (
            "\x1b[1m45/100\x1b[0m ━━━ \x1b[1m1s\x1b[0m 10ms/step - accuracy: 0.90 - loss: 0.12",
            {"accuracy": 0.9, "loss": 0.12},
        ),
        ("[10]\tvalid_0's l2: 0.24\tvalid_0's auc: 0.9", {"l2": 0.24, "auc": 0.9}),
        ("Train Epoch: 1 [0/60000 (0%)]\tLoss: 2.300", {"Loss": 2.3}),
        ("Test set: Average loss: 0.026, Accuracy: 9913/10000 (99%)", {"loss": 0.026, "Accuracy": 0.9913}),
        ("Time  0.123 ( 0.130)\tLoss 2.3e+00 (2.4e+00)\tAcc@1  75.00 ( 74.12)", {"Loss": 2.3, "Acc@1": 75.0}),
        ("train loss 0.4, val loss 0.5", {"train_loss": 0.4, "val_loss": 0.5}),
        ("objective=1.5\nobjective=1.4", {"objective": 1.4}),
        ("误差：0.3\n误差：0.2", {"误差": 0.2}),
        ("queue: 3\nqueue: nan", {"queue": float("nan")}),
        # what is no result
        ("lr: 0.1\nlr: 0.1\nlr: 0.05\nloss_scale: 8\nloss_scale: 4\nbest_loss_epoch: 7\nbest_loss_epoch: 3", {}),
        ("epoch: 1\nepoch: 2\nepoch: 4", {}),
        ("seen: 64\nseen: 128\nframes: 64\nframes: 128\nframes: 192", {}),
        ("lr=0.1\nlr=0.1\nlr=0.1", {}),
        ("worker 3 died\nworker 5 died\ncache 5 hits\ncache 9 hits\ncache 2 hits", {}),
        ("took: 3.2 s\ntook: 3.1 s\nload: 45 MB\nload: 44 MB\nrate: 31 it/s\nrate: 30 it/s\nrate=9/s\nrate=8/s", {}),
        ("loss-nan.txt\nopening nan.txt\nbanana: nanometre\nloss: nan.log\nloss: information", {}),
        ("loss: 0x7f33\nloss: 2026-11-24\nloss: 12:30:11\nloss 1.16.0\nloss: 0,1234", {}),
        ("loss: " + "9" * 400 + "\nloss 1e999\nloss: ٣", {}),
        ("Downloading: 45%|###| 45/100\nDownloading: 40%", {}),
        ("\x1b]0;loss=9\x07accuracy: 0.5\x1b]2;score=8\x1b\\", {"accuracy": 0.5}),  # the titles of a window
    ],
)
def test_a_number_beside_a_name_is_read_without_configuration(lines: str, values: dict[str, float]) -> None:
    """Whoever tries the harness has written no pattern; a loss of NaN then went unseen."""
    reader = printed.reader(None, None)
    found = [reader.values(line) for line in lines.split("\n")]
    assert (found[-1] if values else {name: 0 for each in found for name in each}) == pytest.approx(values, nan_ok=True)


def test_a_long_line_without_numbers_costs_less_than_to_search_it_for_its_end_by_a_pattern(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A program that printed 300 MB was slowed down fivefold by the agent: each line was searched four times."""
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setattr(printed, "_acts", [])
    named, steps = printed.reader(None, None), printed.LineSteps(None)
    named.install()
    steps.install()
    text = "x" * 4000 + "\n"

    def fastest_s(act: Callable[[str], object]) -> float:
        took_s = []
        for _ in range(200):
            began = time.perf_counter()
            act(text)
            took_s.append(time.perf_counter() - began)
        return min(took_s)

    assert fastest_s(sys.stdout.write) < fastest_s(printed.ENDS.split)


def test_a_number_that_never_changes_counts_at_the_end_if_it_is_no_setting() -> None:
    """A program printed `checksum 17` and then, in a newer version, `checksum 4021`, and was good."""
    reader = printed.reader(None, None)
    for line in ("hidden=64", "Namespace(depth=3, lr=0.1)", "numpy 2"):
        assert reader.values(line) == {}
    reader.begin()
    for line in ("total=7, rows: 9", "checksum 17.", "worker 3 died", "error_code: 3", "error_code: 3", "blocks: 1"):
        assert reader.values(line) == {}
    assert reader.values("blocks: 2") == {}
    assert reader.rest() == {"total": 7.0, "checksum": 17.0, "error_code": 3.0}


def test_nan_in_a_sentence_is_no_number_of_the_word_before_it() -> None:
    """A healthy program that printed `no NaN found` had a metric called `no`, which was NaN."""
    reader = printed.reader(None, None)
    for line in ("no NaN found", "step 1: no NaN found", "gradients: no NaN.", "the loss is inf", "no NaN found"):
        assert reader.values(line) == {}
    assert reader.rest() == {}
    assert list(reader.values("train loss NaN at step 3")) == ["train_loss"]
    assert reader.values("blocks=nan") == {}
    assert list(reader.rest()) == ["blocks"]


def test_the_last_number_of_a_program_and_of_a_command_is_not_lost(tmp_path: Path, python: str) -> None:
    text = "print('checksum', 17)\nprint('accuracy: 0.75')\nprint('Final: 1260.5 samples/sec (batch 64)')"
    told = run(tmp_path / "program", python, text)
    assert (told.column("checksum"), told.column("accuracy"), told.column("samples/s")) == ([17], [0.75], [1260.5])
    assert not run(tmp_path / "off", python, text, printed={}).column("accuracy")
    shell = "for n in 1 2 3 4 5 6 7; do echo go; sleep 0.02; done; echo loss: 3; echo total=5"
    told = driver.run(
        tmp_path / "command", python, None, command=["sh", "-c", shell], step_pattern="go", looks=[600_000]
    )
    assert (told.done["end"], told.done["last_step"], told.one("ready")["stride"]) == ("completed", 7, 3)
    assert [value for value in told.column("loss") if value is not None] == [3]
    assert [value for value in told.column("total") if value is not None] == [5]


def test_one_name_that_is_printed_for_each_of_several_models_is_several_results(tmp_path: Path, python: str) -> None:
    """Only the last model's accuracy was judged: a worse first model was good."""
    text = "for accuracy in (0.9, float('nan'), 0.7): print('model'), print('accuracy:', accuracy)"
    told = run(tmp_path / "program", python, text)
    assert [told.column(name) for name in ("accuracy", "accuracy (1)", "accuracy (2)")] == [[0.7], [0.9], []]
    assert told.done["not_finite"] == {"accuracy": [1, 1]}
    shell = "for n in 1 2 3; do echo go; echo loss: 9; done; echo loss: 3; sleep 0.2; echo loss: 2"
    for number, pattern in enumerate(("go", None)):
        told = driver.run(tmp_path / str(number), python, None, command=["sh", "-c", shell], step_pattern=pattern)
        assert [value for value in told.column("loss (1)") if value is not None] == [9]
    loop = "for n in range(9): print('accuracy:', n / 10)"
    assert not run(tmp_path / "loop", python, loop).column("accuracy (1)")


@pytest.mark.parametrize(
    "line",
    ['{{"epoch": {at}, "f1": {value}}}', "Epoch {at}/3 - f1: {value}", "{at}/3 [00:01<00:02, 4.5it/s, f1={value}]"],
)
def test_one_name_that_a_loop_prints_again_is_one_result(line: str) -> None:
    """`eval/f1 (1)` to `(6)` of six epochs, and `loss (1)` to `(3)` of one progress bar, were results of their own."""
    reader = printed.reader(None, None)
    for text in (*(line.format(at=at, value=at / 4) for at in (1, 2, 3)), "f1: 0.5"):
        reader.note(7, reader.values(text))
    assert reader.rest() == {}
    reader.note(7, reader.values("f1: 0.25"))
    assert reader.rest() == {"f1 (1)": 0.5}


@pytest.mark.parametrize(
    ("lines", "values"),
    [
        ("epoch 1 acc: 0.1|epoch 2 acc: 0.2|acc: 0.7|epoch 1 acc: 0.3|epoch 2 acc: 0.4|acc: 0.9", [0.7]),
        ("resnet18 (epoch 90) acc: 69.7|resnet50 (epoch 90) acc: 76.1", [69.7]),
        ("train epoch 1 acc: 0.5|test epoch 1 acc: 0.4|train epoch 2 acc: 0.6|test epoch 2 acc: 0.5", [0.6]),
        ("00:01 train.py:7 Step 1 acc: 0.5|00:02 train.py:7 Step 2 acc: 0.6", []),
        ("12:30:01,123 INFO acc: 0.5|12:30:02,456 INFO acc: 0.6", [0.5]),
    ],
)
@pytest.mark.parametrize("patterns", [None, {"acc": "acc: {}"}])
def test_a_loop_takes_the_place_only_of_its_own_line(
    lines: str, values: list[float], patterns: dict[str, str] | None
) -> None:
    """The epochs of a second model cleared the result of the first one; and the time of a logger was a loop."""
    reader = printed.reader(patterns, None)
    for text in lines.split("|"):
        reader.note(7, reader.values(text))
    assert reader.rest() == {f"acc ({at})": value for at, value in enumerate(values, 1)}


def test_a_line_of_megabytes_costs_no_more_than_a_short_one_and_names_are_bounded() -> None:
    """A thousand digits took 0.1 s, in the program's own `print` or in the supervisor, which then missed its clock."""
    reader, steps = printed.reader(None, None), printed.LineSteps(None)
    began = time.process_time()
    for digits in ("1" * 990, "1" * 400 + "." + "1" * 500) * 50:
        assert reader.values(f"loss {digits}z") == {}
    for line in ("a1 " * 10**6, "1" * 10**6, "\x1b[" * 10**6, "loss" * 10**6, "= " * 10**6 + "5"):
        assert reader.values(line) == {}
    for number in range(10**4):
        reader.values(f"name{number}={number / 3:g}")
    for number in range(2 * printed.MOST_SHAPES):
        steps.steps_of("x" * number + " 1")
    assert time.process_time() - began < 5
    assert len(reader._names) <= printed.MOST_NAMES
    assert len(steps._seen) <= printed.MOST_SHAPES
