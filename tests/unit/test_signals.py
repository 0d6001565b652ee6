"""The table of signals: a signal that is missing in a page would be judged without an explanation."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from harness.agent.scenario import printed
from harness.judge.comparison.level_rules import RULES
from harness.matrix.shape import schema
from harness.model import GROUPS, LEVELS, LIMITED, SIGNALS, Limits, signal_of, worse_if, worse_measure

DOCS = Path(__file__).parents[2] / "docs"


def shown_limit(name: str) -> str:
    signal = SIGNALS[name]
    assert signal.limit is not None
    return {
        "share": f"{100 * signal.limit:g}%", "size a step": f"{signal.limit:g}KiB", "count a step": f"{signal.limit:g}",
    }[signal.limit_unit]  # fmt: skip


@pytest.mark.parametrize("name", LIMITED)
def test_the_matrix_page_has_each_limit_with_its_default(name: str) -> None:
    key = "leak" if name == "memory" else name
    rows = [line for line in (DOCS / "matrix.md").read_text().splitlines() if line.startswith(f"| `{key}` |")]
    assert any(SIGNALS[name].help in row and f"`{shown_limit(name)}`" in row for row in rows)


@pytest.mark.parametrize("name", [name for name in SIGNALS if name not in LEVELS])
def test_the_page_of_signals_tells_of_each(name: str) -> None:
    """It tells of levels as a whole: the matrix page has each of them."""
    assert f"`{name}`" in (DOCS / "verdicts.md").read_text()


@pytest.mark.parametrize("name", LIMITED)
def test_the_matrix_file_takes_each_limit(name: str) -> None:
    key = "leak" if name == "memory" else name
    assert schema()["$defs"]["Scenario"]["properties"]["limits"]["properties"][key]["description"]
    assert Limits().of(name) == SIGNALS[name].limit


def test_every_level_has_a_figure_and_every_signal_a_place() -> None:
    assert set(RULES) == set(LEVELS)
    assert {signal.group for signal in SIGNALS.values()} == set(GROUPS)


def test_what_a_signal_explains_exists() -> None:
    assert {name for signal in SIGNALS.values() for name in signal.explains} <= set(SIGNALS)


def test_a_metric_of_the_scenario_is_a_signal_of_its_own() -> None:
    assert signal_of("metrics.loss").title == "loss"
    assert signal_of("metrics.loss").kind == "value"


WORSE = {
    "rise": "loss val_loss train/loss loss_G loss1 mse l2 error_rate train_loss_epoch step_loss mean_squared_error "
    "neg_log_likelihood negative_loglikelihood val_bpb brier_score smape test_wer_score",
    "drop": "acc val/top5_acc acc@1 accuracy_top_5 f1_macro map_50_95 mAP r2_score ep_rew_mean token_acc best_acc "
    "log_likelihood val_loglik likelihood mrr val_top1 success_rate kappa val_acc_pct neg_brier_score neg_log_loss "
    "neg_mean_squared_error neg_mae",
    "change": "error_code loss_weight num_errors score_threshold total checksum params 误差 objective cache_hits",
    None: "loss_scale best_loss_epoch lr learning_rate time took_s ms it/s eta step epoch pid n_iter gpu_mem port "
    "tokens_per_sec batch_size runtime version seed at after",
}  # fmt: skip


@pytest.mark.parametrize(("worse", "names"), WORSE.items())
def test_the_name_of_a_number_tells_what_is_worse(worse: str | None, names: str) -> None:
    """A `loss_scale` that rose, and a `best_loss_epoch`, were accused as a loss; a `neg_log_loss` that rose, too."""
    assert {name: worse_if(name) for name in names.split()} == dict.fromkeys(names.split(), worse)


@pytest.mark.parametrize(
    ("worse", "names"),
    [
        ("drop", "throughput fps tokens_per_sec requests/s it/s decode_speed"),
        ("rise", "latency latency_p99 p50 p999 elapsed runtime run_time duration_ms"),
        (None, "uptime p10 p100_gpu accuracy_p95 latency_at_1000_qps memory loss accuracy epoch seed"),
    ],
)
def test_the_name_of_a_time_or_a_rate_tells_what_is_worse(worse: str | None, names: str) -> None:
    assert {name: worse_measure(name) for name in names.split()} == dict.fromkeys(names.split(), worse)


def test_the_agent_reads_the_results_that_the_judge_knows() -> None:
    """They had a rule each: a printed `error_code` was a result at once, and a `rew` that drops was none."""
    words = [name for names in WORSE.values() for name in names.split() if name.isidentifier()]
    for before, word, after in product(("", "val_", "train/", "best_"), words, ("", "_avg", "_epoch", "2", "_code")):
        name, reader = f"{before}{word}{after}"[:40], printed.Named(None)
        counts = {"rise": True, "drop": True, "change": False, None: False}
        assert bool(reader.values(f"{name}=0.5")) == counts[worse_if(name)]
        assert bool(reader.rest()) == (worse_if(name) == "change")


def test_the_peak_of_a_leaking_worker_is_no_finding_of_its_own() -> None:
    """The peak is that of the largest single process, which may be the worker that leaks."""
    assert "peak_memory" in SIGNALS["worker_memory"].explains
    assert "single process" in SIGNALS["peak_memory"].help
