"""Unmodified programs with the real wheels of the frameworks: each step is counted once, the program computes the same
as without the agent, and its logged numbers arrive. `make stories` runs them; the first run mostly installs.
"""

from __future__ import annotations

import hashlib
import subprocess
import textwrap
from pathlib import Path

import pytest

from tests.agent.conftest import INTERPRETERS
from tests.agent.test_program import run

pytestmark = [pytest.mark.stories, pytest.mark.index, pytest.mark.timeout(1800)]
TIMEOUT_S = 1200  # only against hangs, not a measurement
BUDGET = [64, 100_000]

TORCH = """
    import torch
    torch.manual_seed(0)
    net, data = torch.nn.Linear(8, 1), torch.utils.data.TensorDataset(torch.randn(1200, 8))
    optimizer = torch.optim.Adam(net.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 100)
    for (batch,) in torch.utils.data.DataLoader(data, batch_size=4, shuffle=True, num_workers=2):
        optimizer.zero_grad()
        loss = net(batch).pow(2).mean()
        loss.backward()
        optimizer.step()
        scheduler.step()
    print("result %r" % loss.item())
"""
LIGHTNING = """
    import lightning, torch

    class Net(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch, number):
            loss = self.layer(batch[0]).pow(2).mean()
            self.log("loss", loss)
            return loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.01)

    lightning.seed_everything(0)
    data = torch.utils.data.TensorDataset(torch.randn(1200, 4))
    net, quiet = Net(), dict(enable_progress_bar=False, enable_checkpointing=False, enable_model_summary=False)
    trainer = lightning.Trainer(max_epochs=1, accelerator="cpu", log_every_n_steps=10, **quiet)
    trainer.fit(net, torch.utils.data.DataLoader(data, batch_size=4))
    print("result %r" % net.layer.weight.tolist())
"""
TRANSFORMERS = """
    import tempfile, torch
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

    class Data(torch.utils.data.Dataset):
        def __len__(self):
            return 600

        def __getitem__(self, at):
            return {"input_ids": torch.tensor([at % 50, 3, 4]), "labels": torch.tensor(at % 2)}

    set_seed(0)
    sizes = dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
    net = BertForSequenceClassification(BertConfig(vocab_size=50, **sizes))
    asked = TrainingArguments(tempfile.mkdtemp(), num_train_epochs=1, per_device_train_batch_size=1, report_to=[],
                              gradient_accumulation_steps=2, logging_steps=10, save_strategy="no", use_cpu=True)
    print("result %r" % Trainer(model=net, args=asked, train_dataset=Data()).train().training_loss)
"""
KERAS = """
    import numpy as np
    import tensorflow as tf
    random = np.random.RandomState(0)
    pictures, labels = random.rand(2400, 8).astype("float32"), random.randint(0, 3, 2400)
    net = tf.keras.Sequential([tf.keras.layers.Dense(3, kernel_initializer="zeros")])
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    net.compile(optimizer=tf.keras.optimizers.SGD(0.1), loss=loss)
    history = net.fit(pictures, labels, batch_size=8, shuffle=False, verbose=0)
    print("result %r" % float(history.history["loss"][0]))
"""
SESSIONS = """
    import numpy as np
    import tensorflow.compat.v1 as tf
    tf.disable_eager_execution()
    random = np.random.RandomState(0)
    given = tf.placeholder(tf.float32, [None, 4])
    loss = tf.reduce_mean(tf.square(tf.matmul(given, tf.Variable(tf.ones([4, 1])))))
    train = tf.train.GradientDescentOptimizer(0.01).minimize(loss)
    with tf.control_dependencies([train]):
        after = tf.identity(loss)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for number in range(300):
            fed = {given: random.rand(8, 4)}
            session.run([train, loss] if number % 2 else after, fed)
            last = session.run(loss, fed)
    print("result %r" % last)
"""
TF_FUNCTIONS = """
    import numpy as np
    import tensorflow as tf

    class Net(tf.Module):
        def __init__(self):
            super().__init__()
            self.weights = tf.Variable(tf.ones([4, 1]))

        @tf.function
        def loss(self, given):
            return tf.reduce_mean(tf.square(given @ self.weights))

        @tf.function
        def train_step(self, given):
            with tf.GradientTape() as tape:
                loss = self.loss(given)
            self.weights.assign_sub(0.01 * tape.gradient(loss, self.weights))
            update_state(loss)

    total = tf.Variable(0.0)
    update_state = tf.function(lambda loss: total.assign_add(loss))
    evaluate = tf.function(lambda net, given: net.loss(given))
    random, net = np.random.RandomState(0), Net()
    for number in range(300):
        given = tf.constant(random.rand(8, 4).astype("float32"))
        net.train_step(given)
        if number % 10 == 0:
            update_state(evaluate(net, given))
    print("result %r" % net.weights.numpy().tolist())
"""
JAX = """
    import functools
    import jax

    @jax.jit
    def loss(weights, given):
        return ((given @ weights) ** 2).mean()

    @functools.partial(jax.jit, static_argnums=2)
    def update(weights, given, times):
        return weights - 0.1 * times * jax.grad(loss)(weights, given)

    weights, key = jax.numpy.ones((4,)), jax.random.PRNGKey(0)
    for _ in range(300):
        key, used = jax.random.split(key)
        weights = update(weights, jax.random.normal(used, (8, 4)), 1)
    print("result %r" % weights.tolist())
"""
LOGGED = """
    def train(): pass

    for number in range(60):
        train()
        if number != 50:  # its row has what was logged after the look at step 50
            log(1.0 / (number + 1), number)
    close()
"""
WANDB = """
    import wandb
    run = wandb.init(mode="offline", project="p")
    log, close = (lambda loss, number: run.log({"loss": loss, "word": "no number"})), run.finish
"""
WANDB_GLOBAL = """
    import wandb
    wandb.init(mode="offline", project="p")
    log, close = (lambda loss, number: wandb.log({"loss": loss})), wandb.finish
"""
MLFLOW = """
    import os
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    import mlflow
    mlflow.set_tracking_uri("file://" + os.path.abspath("mlruns"))
    mlflow.start_run()
    def log(loss, number):
        if number % 2:
            mlflow.log_metric("loss", loss, step=number)
        else:
            mlflow.log_metrics({"loss": loss}, step=number)
    close = mlflow.end_run
"""
TENSORBOARD_X = """
    from tensorboardX import SummaryWriter
    writer = SummaryWriter("logs")
    log, close = (lambda loss, number: writer.add_scalar("loss", loss, number)), writer.close
"""
TENSORFLOW_1 = ["tensorflow==1.15.5", "protobuf<3.21", "numpy<1.19"]
TRIED = {
    "torch": ("3.11", ["torch==2.13.0", "numpy==2.2.6"], TORCH),
    "torch 1": ("3.10", ["torch==1.12.1", "numpy==1.26.4"], TORCH),
    "lightning": ("3.11", ["lightning==2.6.6", "torch==2.13.0"], LIGHTNING),
    "transformers": ("3.11", ["transformers==5.23.0", "accelerate", "torch==2.13.0"], TRANSFORMERS),
    "keras 2": ("3.11", ["tensorflow-cpu==2.15.1"], KERAS),
    "keras 3": ("3.12", ["tensorflow-cpu==2.21.0"], KERAS),
    "keras of tensorflow 1": ("3.7", TENSORFLOW_1, KERAS),
    "tensorflow 1": ("3.7", TENSORFLOW_1, SESSIONS),
    "sessions of tensorflow 2": ("3.12", ["tensorflow-cpu==2.21.0"], SESSIONS),
    "functions of tensorflow 2.10": ("3.10", ["tensorflow-cpu==2.10.1", "numpy<2"], TF_FUNCTIONS),
    "functions of tensorflow": ("3.12", ["tensorflow-cpu==2.21.0"], TF_FUNCTIONS),
    "jax": ("3.12", ["jax==0.12.0"], JAX),
}
LOGGERS = {
    "wandb": ("wandb==0.31.0", WANDB),
    "wandb.log": ("wandb==0.31.0", WANDB_GLOBAL),
    "mlflow": ("mlflow==3.17.2", MLFLOW),
    "tensorboardX": ("tensorboardX==2.6.5", TENSORBOARD_X),
}
ENVIRONMENTS = Path.home() / ".cache" / "harness" / "frameworks"


def environment(version: str, packages: list[str]) -> str:
    """Return the interpreter of an environment with these packages, which is kept for the next time."""
    if version not in INTERPRETERS:
        pytest.skip(f"no Python {version} on this machine")
    folder = ENVIRONMENTS / hashlib.sha256(repr((version, packages)).encode()).hexdigest()[:16]
    python, whole = str(folder / "bin" / "python"), folder / "installed"
    if not whole.exists():
        for command in (
            [INTERPRETERS[version], "-m", "venv", "--clear", str(folder)],
            [python, "-m", "pip", "install", "-q", "--no-cache-dir", *packages],
        ):
            subprocess.run(command, check=True, timeout=TIMEOUT_S)
        whole.touch()
    return python


@pytest.mark.parametrize("name", TRIED)
def test_a_real_framework_s_steps_are_counted_and_its_result_is_its_own(tmp_path: Path, name: str) -> None:
    version, packages, text = TRIED[name]
    python = environment(version, packages)
    alone = subprocess.run(
        [python, "-c", textwrap.dedent(text)], capture_output=True, check=True, timeout=TIMEOUT_S, cwd=tmp_path
    ).stdout.decode()
    (tmp_path / "root").mkdir()
    told = run(tmp_path / "root", python, text, looks=BUDGET, timeout_s=600.0)

    assert (told.done["end"], told.done["last_step"]) == ("stopped", 300), told.done["message"]
    assert told.done["message"].startswith("the program ended by itself after 300 of 100000 steps")
    result = [line for line in alone.splitlines() if line.startswith("result ")]
    assert result
    assert result[0] in told.done["output_tail"].splitlines()


@pytest.mark.parametrize("name", LOGGERS)
def test_a_real_logger_s_numbers_are_metrics_of_their_steps(tmp_path: Path, name: str) -> None:
    package, text = LOGGERS[name]
    python = environment("3.11", [package])
    program = textwrap.dedent(text) + textwrap.dedent(LOGGED)
    told = run(tmp_path, python, program, steps_are="__main__:train", timeout_s=600.0)

    assert told.done["last_step"] == 60, told.done["message"]
    steps = [step for step in range(1, 61) if step != 50]
    logged = [1 / (50 if step == 51 else step) for step in steps]
    assert [told.column("loss")[step - 1] for step in steps] == pytest.approx(logged)
