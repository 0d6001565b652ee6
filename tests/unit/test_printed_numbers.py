"""Which numbers of a program's output are its metrics, in the lines that popular programs and libraries print."""

import re

import pytest

from harness.agent import result_names
from harness.agent.scenario import printed

RESULTS = r"""
Epoch 3/10 - loss: 0.2214 - accuracy: 0.9 - val_loss: 0.3 => loss accuracy val_loss
1875/1875 [==============================] - 4s 2ms/step - loss: 0.2214 - accuracy: 0.9345 => loss accuracy
Epoch 0:  40%|████      | 40/100 [00:01<00:02, 25.1it/s, v_num=3, train_loss=0.42] => train_loss
[LightGBM] [Info] Iteration:3, training auc : 0.9 => training_auc
[100]   training's auc: 0.91    valid_1's auc: 0.82 => auc valid_1_auc
[17]    train-rmse:0.25713  eval-rmse:0.31 => train-rmse eval-rmse
[10:22:31] [17] validation_0-logloss:0.35 => validation_0-logloss
0:  learn: 0.6862   test: 0.6871    best: 0.6871 (0)    total: 61.2ms   remaining: 1m 1s => learn test best
{'loss': 1.2345, 'grad_norm': 3.2, 'learning_rate': 5e-05, 'epoch': 0.5} => loss grad_norm
{'eval_loss': '0.52', 'eval_accuracy': '0.81', 'eval_runtime': '2.5', 'epoch': '1.0'} => eval_loss eval_accuracy
{"step": 3, "train/loss": 0.25, "lr": 0.001} => train/loss
step 250: train loss 2.4293, val loss 2.4461 => train_loss val_loss
iter 100: loss 2.3456, time 123.45ms, mfu 12.3% => loss
Epoch: [0][  10/5005]   Time  0.2 ( 0.5)    Data  0.0 ( 0.1)    Loss 6.9e+00 (7.0e+00)  Acc@1  0.5 ( 0.10) => Loss Acc@1
Test: [  0/196]  eta: 0:01:00  loss: 0.9 (0.9)  acc1: 78.0 (78.0)  time: 0.3  max mem: 900 => loss acc1
 * Acc@1 76.130 Acc@5 92.862 => Acc@1 Acc@5
Train Epoch: 1 [640/60000 (1%)] Loss: 2.135927 => Loss
Test set: Average loss: 0.0263, Accuracy: 9913/10000 (99%) => loss Accuracy
Iteration 5, loss = 0.45 => loss
Iteration 10, inertia 1234.5. => inertia
Epoch 5, Norm: 1.20, NNZs: 30, Bias: -0.1, T: 750, Avg. loss: 0.3 => Norm Bias loss
| epoch   1 |   200/ 2928 batches | lr 20.00 | ms/batch  9.1 | loss  7.63 | ppl  2061.11 => loss ppl
2026-11-25 11:30:00 | INFO | fairseq | epoch 001:    100 / 1000 loss=12.1, ppl=4400.5 => loss ppl
INFO:root:Epoch[0] Batch [20]   Speed: 1234.5 samples/sec   accuracy=0.75 => accuracy
WARNING:root:loss: 0.5 => loss
train.py:45 loss 0.5 => loss
[Epoch 10] D loss: 0.693 G loss: 0.7 => loss G_loss
Validation Loss: 0.345 | Validation Acc: 88.2% => Validation_Loss Validation_Acc
mean reward: 12.5 +/- 3.2 => reward
|    rollout/ep_rew_mean | 21.3     |   fps | 345.5 | => rollout/ep_rew_mean
| epoch | 3 | train_loss | 0.5 | accuracy | 0.9 | => train_loss accuracy
step=100, elbo=-123.4 => elbo
Best trial: 3. Best value: 0.123 => value
iter 7 objective 1.5 gap 0.3 => objective gap
total energy -1.25 => energy
epoch 3 log likelihood: -119.5 => log_likelihood
epoch 3 | negative log-likelihood: 119.5 => negative_log-likelihood
epoch 3 | negative log likelihood: 119.5 => negative_log_likelihood
epoch 3 - log likelihood: -119.5 => log_likelihood
-log likelihood: 119.5 => neg_log_likelihood
epoch 3 -2 log likelihood: 340.5 => neg_log_likelihood
-2 Log-Likelihood: 340.5 => neg_Log-Likelihood
gap -2 loss 0.5 => loss
Cost after iteration 100: 0.25 => Cost
val acc after epoch 3/10: 0.25 (best 0.5) => val_acc best
"""
PROSE = r"""
/x/_cd.py:695: ConvergenceWarning: Objective did not converge. Duality gap: 1.2e+01, tolerance: 5.6e+00
/x/_classification.py:1344: UndefinedMetricWarning: Precision is ill-defined. Use `zero_division=0.5`
train.py:12: UserWarning: Current loss in 0.5
train.py:3: FutureWarning: mylib.Trainer(fp16=True) is deprecated and will be removed in 3.0; use precision='16.5'
[rank0] PossibleUserWarning: score=0.5 is a guess
WARNING:root:precision=0.5 is deprecated, use accuracy: 0.5
wandb:        loss 0.01667
[LightGBM] [Warning] No further splits with positive gain, best gain: -inf
[LightGBM] [Warning] bagging_fraction is set=0.8, subsample=1.5 will be ignored. Current value: bagging_fraction=0.8
WARNING:root:NaN or Inf found in input tensor: 0.5
WARNING:tensorflow:5 out of the last 5 calls triggered retracing. (1) creating 0.5
2026-11-25 11:30:00.123: W tensorflow/core/framework/allocator.cc:82] Allocation of 5138 exceeds 10.5% of memory.
[W socket.cpp:426] [c10d] The server socket cannot be initialized on 0.5
2026-11-25 11:30:00 main.py:45 start
2026-11-25 11:30:00 main.py:45: start
INFO | main | 12.5 | start
Downloading:  45%|####     | 45/100 [00:01<00:02, 30.5it/s]
Reducing learning rate of group 0 to 1.0000e-04.
Adjusting factor 0.5 of group 0
Epoch 00010: reducing learning rate of group 0 to 1.5000e-03.
Epoch 00010: early stopping at 0.25
Early stopping, best iteration is: 35
Training until validation scores don't improve for 50 rounds
worker 3 died
loaded 0.25 of the data
found 3.5 percent missing
we use 0.5 as threshold
skipping step, loss scaler 0 reducing loss scale to 0.5
using cache found in /root 2.5
downloading data.zip 4.2
processed 0.75 in 3 s
converged after 0.5 sweeps
saved model to model-0.53.pt
checkpoint 0.53 was written
fitting 5 folds for each of 3 candidates, totalling 15 fits
best score so far 0.5
split 0.8 for training and 0.2 for testing
certain 95.5 of 100
PyTorch 2.13.0 CUDA 12.4
device 0 has 3.5 free
finished 12.5
summary: 0 errors, 0 failed, 0 retries
"""
QUOTED = """
/x/_cd.py:695: ConvergenceWarning: did not converge
  model = descend(alpha=0.5, loss=0.5)
Traceback (most recent call last):
  File "/x/train.py", line 12, in main
    total = scale(gap=0.5, score=0.5)
"""
DECIMAL = re.compile(r"(?<![.\d])\d+\.\d+(?![\d.])")


def names(text: str) -> list[str]:
    """Return the names of the metrics of a program that prints these lines three times, each time with other numbers
    after the decimal point."""
    reader, found = printed.reader(None, None), {}
    for factor in (1.0, 0.9, 0.81):
        changed = DECIMAL.sub(lambda number, by=factor: f"{float(number[0]) * by:.4g}", text.strip("\n"))
        for line in changed.split("\n"):
            found.update(reader.values(line))
    return list(found | reader.rest())


@pytest.mark.parametrize("line", RESULTS.strip("\n").split("\n"))
def test_the_results_that_frameworks_print_are_metrics(line: str) -> None:
    """A rule that leaves out the words of a warning must not lose a loss: a NaN would go unseen."""
    printed_line, _, wanted = line.rpartition(" => ")
    found = names(printed_line)
    assert [name for name in wanted.split() if name not in found] == []
    assert [name for name in found if name not in wanted.split()] in ([], ["NNZs", "T"], ["trial"])


@pytest.mark.parametrize("text", [*PROSE.strip("\n").split("\n"), QUOTED])
def test_the_words_of_a_warning_or_a_sentence_are_no_metrics(text: str) -> None:
    """`best gain: -inf` in a warning of LightGBM was an infinity that no older version had, and `main.py:45` a result
    that another release of the file changed."""
    assert names(text) == []


def test_the_answers_of_a_benchmark_are_its_last_times_and_rates() -> None:
    """Nothing said that `requests/s`, the only number that a command printed, was not judged."""
    reader = printed.reader(None, None, but="SIZE", measures=True)
    lines = (
        "requests/s: 90.5", "Latency: 12", "size: 3", "port: 8080", "loss 0.5", "requests/s: 99.1",
        "throughput: 250.0 images/s", "download: 30 MB/s", "warmup 3 s", "elapsed: 12 s",
    )  # fmt: skip
    assert [each for line in lines for each in reader.values(line)] == ["loss"]
    assert reader.rest() == {"requests/s": 99.1, "Latency": 12.0, "throughput": 250.0}
    assert reader.rest(measures=False) == {}


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("p99 latency: 870 ms", 0.87),
        ("p99 latency: 1.31 s", 1.31),
        ("latency = 870ms", 0.87),
        ("latency: 12\u00b5s", 12e-6),
        ("latency: 12 \u03bcs", 12e-6),
        ("latency: 12 ms: good", 0.012),
        ("p50: 2 min", 120.0),
        ("throughput: 1.2k tokens/s", 1200.0),
        ("throughput: 0.61k", 610.0),
        ("speed: 1.5M rows/s", 1.5e6),
        ("throughput: 610 tokens/s", 610.0),
        ("latency: 1 min 3 s", None),
        ("latency: 5 s/it", None),
        ("latency: 5K", None),
        ("throughput: 3 h", None),
        ("Speed: 0.2ms preprocess", None),
        ("elapsed time: 870 ms", None),
        ("throughput: 30 MB/s", 3e7),
    ],
)
def test_a_pace_in_another_unit_is_another_number(line: str, value: float | None) -> None:
    """`870 ms` and then `1.31 s`, `1.2k tokens/s` and then `0.61k`, were `Nothing bad: all 3 cells are good`."""
    reader = printed.reader(None, None, measures=True)
    assert reader.values(line) == {}
    assert list(reader.rest().values()) == ([] if value is None else [pytest.approx(value)])


def told_at_the_end(*lines: str) -> dict[str, float]:
    """Return the numbers of a program without steps that prints these lines, its times and rates included."""
    reader = printed.reader(None, None, measures=True)
    for line in lines:
        reader.values(line)
    return reader.rest()


def test_a_name_that_could_be_a_unit_is_a_name() -> None:
    """`latency: 12.3 min: 10.1` was a latency of 738."""
    assert told_at_the_end("latency: 12.3 min: 10.1 s: .5") == {"latency": 12.3, "min": 10.1, "s": 0.5}


@pytest.mark.parametrize("name", ["neg_log_likelihood", "negative_log_likelihood", "neg_Log-Likelihood"])
def test_less_of_a_negative_likelihood_is_better(name: str) -> None:
    """`-2 log likelihood: 340` was `log_likelihood`: an improvement was a regression."""
    assert result_names.worse_if(name) == "rise"


@pytest.mark.parametrize(
    ("lines", "rates"),
    [
        ("iter 0: 1251.0 img/s, 0.00 s elapsed\niter 100: 1250.5 img/s\nFinal: 1260 samples/sec (batch 64)",
         {"img/s": 1250.5, "samples/s": 1260.0}),
        ("step 9: 1251.0 img/s\nFinal: 1260.0 img/sec", {"img/s": 1260.0}),
        ("Benchmark: 80 iters, batch 32, 254.0 img/s, GPU util 0%", {"img/s": 254.0}),
        ("ResNet50 fp16: 812.5 images/sec\nResNet50 fp32: 401 images/sec",
         {"ResNet50_fp16_images/s": 812.5, "ResNet50_fp32_images/s": 401.0}),
        ("avg: 812.5 images/sec", {"images/s": 812.5}),
        ("Average 1,812.5 tokens per second", {"tokens/s": 1812.5}),
        ("prefill 1.2k tokens/s, decode 64.5 tokens/s", {"prefill_tokens/s": 1200.0, "decode_tokens/s": 64.5}),
        ("Result: 95.5 it/s", {"it/s": 95.5}),
        ("Result: 1.23 s/it", {"s/it": 1.23}),
        ("[done] 870 ms/step, 12 req/s", {"s/step": 0.87, "req/s": 12.0}),
        ("Triad: 12000.5 MB/s\nCopy: 1.5 GiB/s", {"Triad_B/s": 12000.5e6, "Copy_B/s": 1.5 * 2**30}),
        ("matmul 4096: 12.5 TFLOPS", {"FLOP/s": 12.5e12}),
        ("matmul: 12.5 GFLOP/s", {"FLOP/s": 12.5e9}),
        ("rendered at 59.9 FPS", {"fps": 59.9}),
        ("2026-01-01 12:00:00 INFO 100.5 steps/s", {"steps/s": 100.5}),
        ("2026-01-01 12:00:00,123 INFO 100.5 steps/s", {"steps/s": 100.5}),
        ("\n".join(f"{name}.txt: 1{at}5.5 rows/s" for at, name in enumerate("abcdefghijklm")), {"rows/s": 1125.5}),
        ("throughput: 250.0 images/s", {}),
        ("Epoch 0:  40%|████      | 40/100 [00:01<00:02, 25.1it/s, v_num=3]", {}),
        ("100it [00:01, 95.3it/s]\n1875/1875 [=====] - 4s 12ms/step", {}),
        ("Epoch 1/3 - 4s - 2ms/step", {}),
        ("Downloading x (12.5 MB/s)\nReceiving objects: 10.5 MiB/s\n━━━━━ 2.1/2.1 MB 30.5 MB/s eta 0:00:00", {}),
        ("car moves at 12.5 m/s\n4.1 GFLOPs, 25.6 MB\nread 12.5 MB in 10.5 s", {}),
        ("rate limit: 100 req/s\ntarget 30 FPS", {}),
        ("UserWarning: only 12.5 img/s\n1-25 img/s\nv2.12 img/s\n1e40 img/s\n0.5 img/s", {}),
    ],
)  # fmt: skip
def test_a_number_before_a_unit_of_rate_is_an_answer(lines: str, rates: dict[str, float]) -> None:
    """A benchmark that fell from `1250.0 img/s` to 600 was `Nothing bad`, and `80 iters` was its result."""
    reader = printed.reader(None, None, measures=True)
    read = [name for line in lines.split("\n") for name in reader.values(line)]
    told = {name: value for name, value in reader.rest().items() if name != "throughput"}
    assert (read, told) == ([], {name: pytest.approx(value) for name, value in rates.items()})
    assert not set(rates) & set(reader.rest(measures=False))
    assert all(result_names.worse_measure(name) == ("rise" if "s/" in name[:2] else "drop") for name in rates)


@pytest.mark.parametrize("line", ["checksum: 12345 ok", "solutions: 92 found", "energy: 12 kcal"])
def test_a_whole_number_before_a_word_may_be_a_result(line: str) -> None:
    """`checksum: 12345 ok` was no metric, and nobody was told of another checksum."""
    reader = printed.reader(None, None, measures=True)
    reader.values(line)
    assert list(reader.rest()) == [line.partition(":")[0]]


def test_a_number_of_counted_things_is_no_result() -> None:
    reader = printed.reader(None, None, measures=True)
    for line in (
        "Benchmark: 80 iters",
        "total: 5 epoch 3",
        "checksum: 17 rows: 2",
        "errors: 3 rows",
        "size 3 batches",
        "metric: 0.5 batch loss: 2",
        "norm: 1.5 step_time = 3",
        '{"gap": 2.5 epoch "score": 1}',
    ):
        reader.values(line)
    assert reader.rest() == {"total": 5.0, "checksum": 17.0, "metric": 0.5, "norm": 1.5, "gap": 2.5, "step_time": 3.0}


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        ("batch=64 fps=812.5", {"fps": 812.5}),
        ("frames=  100 fps= 25", {"fps": 25.0}),
        ("epoch 10 fps 25.5", {"fps": 25.5}),
        ("size 4096 GFLOPS: 950", {"GFLOPS": 950.0}),
        ("4096 | 812.5 img/s | 12.3 ms", {"img/s": 812.5}),
        ("fps: 25.5\nrendered at 59.9 FPS", {"fps": 25.5}),
    ],
)
def test_a_number_before_the_name_of_the_next_is_no_rate(lines: str, wanted: dict[str, float]) -> None:
    """`batch=64 fps=812.5` was 64 fps."""
    assert told_at_the_end(*lines.split("\n")) == wanted


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("Throughput: 250.5 images per second", {"Throughput": 250.5}),
        ("GET: 125000 requests per second", {"requests/s": 125000.0}),
        ("Requests per second:    812.34 [#/sec] (mean)", {"Requests_per_second": 812.34}),
        ("tokens per sec = 1.2k", {"tokens_per_sec": 1200.0}),
    ],
)
def test_one_rate_has_one_name(line: str, wanted: dict[str, float]) -> None:
    """`GET: 125000 requests per second` was two results, and the `Requests per second` of ab was a `second`."""
    assert told_at_the_end(line) == wanted
    assert [result_names.worse_measure(name) for name in wanted] == ["drop"]


def test_a_rate_of_errors_is_no_rate_of_which_less_is_worse() -> None:
    """`12.5 errors/s` that fell to `3.5` was a regression, and a rise was good."""
    reader = printed.reader(None, None, measures=True)
    for at, unit in enumerate(("errors/s", "misses/s", "Faults/sec", "retries per second", "timeouts/s"), 10):
        reader.values(f"Result: {at}.5 {unit}")
        assert not result_names.worse_measure(unit.replace(" ", "_"))
    reader.values("dropped packets: 3.5 packets/s")
    reader.values("dropped 12.5 packets/s, sent 812.5 packets/s")
    assert reader.rest() == {"packets/s": 812.5}
    assert result_names.worse_measure("error_time") == "rise"


def test_the_last_rate_of_a_name_is_told_or_none() -> None:
    """`12.5 img/s` was told of a program whose last line is `9 img/s`; and of 256 units, all first numbers."""
    reader = printed.reader(None, None, measures=True)
    for line in ("ssd: 12.5 img/s", "vit: 30.5 img/s", "ssd: 9 img/s", "7 req/s"):
        reader.values(line)
    assert reader.rest() == {"img/s": 30.5}
    units = [first + second for first in "abcdefghijklmnopq" for second in "abcdefghijklmnopq"]
    for value in (12.5, 13.5):
        for unit in units:
            reader.values(f"{value} x{unit}/s")
    assert set(reader.rest().values()) == {30.5, 13.5}
    assert len(reader._rates) == printed.MOST_NAMES


def test_a_loss_that_diverges_is_no_missing_number_but_a_long_id_is() -> None:
    """`loss: 1e300` was left out, so that "no longer prints a number as `loss`" was said of it."""
    assert printed.Named([]).values("loss: 1e300") == {"loss": 1e300}
    assert printed.Named([]).values(f"loss: {10**40}") == {}
