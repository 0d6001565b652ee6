"""Tells from the name of a number what it is: a result of which a rise or a drop is worse, any other number, or a
counter, a time, a size or a setting, which is no result.

A name is taken apart into words: `val/top5_acc` is val, top, acc. The first or the last word, without words that only
say of what it is a result (`val`, `mean`), tells what it is. The judge uses the same rule.
"""

import re
from functools import lru_cache


def _words(text: str) -> "frozenset[str]":
    return frozenset(text.split())


RISES = _words(
    "bpb brier cer ece eer err errors kl l1 l2 logloss lpips mae mape mse nll nrmse ppl regret rmse rmsle"
    " smape wape wer"
)
DROPS = _words(
    "acc auc auprc auroc bleu dice f1 iou jaccard kappa likelihood loglik loglikelihood map mcc miou mrr ndcg precision"
    " psnr r2 recall rew reward rouge rougel score ssim success top1 top5"
)
NEGATED = _words("neg negative")
"""With these, less of a likelihood is better."""
SCORERS = _words("absolute brier log mae mse rmse squared")
"""Scikit-learn names scores by these, of which less is worse: `neg_mean_squared_error`."""
ENDINGS = (("loss", "rise"), ("error", "rise"), ("perplexity", "rise"), ("accuracy", "drop"))
NEITHER = _words(
    "alpha beta bound code coef coefficient count delta diff factor gamma gap limit margin n num number std target"
    " threshold tol tolerance total var variance weight weights"
)
"""Beside these, `loss` or `score` is no result: `error_code`, `loss_weight`, `num_errors`."""
COUNTERS = _words(
    "batch batches chunk chunks device devices epoch epochs example examples frames id ids idx image images index it"
    " item items iter iteration iterations iters job jobs layer layers line lines node nodes page pages process"
    " processes rank ranks remaining row rows sample samples seen shape step steps stride take thread threads token"
    " tokens took worker workers"
)
RESOURCES = _words(
    "address build byte bytes clock cpu cpus cuda cudnn data date day days driver duration elapsed eta fps freq gb"
    " gib gpu gpus hour hours ips kb kib latency lr mb mem memory mib min mins minute minutes ms ns per pid ping port"
    " progress python qps rss s scale scaler sec second seconds secs seed seeds size sizes speed throughput time"
    " timestamp tps tz us v ver version versions vram warmup year"
)
"""Times, sizes, settings and parts of the machine."""
NEVER = COUNTERS | RESOURCES
MEASURED = RESOURCES - _words(
    "address build clock cuda cudnn data date day driver eta pid ping port progress python scale scaler seed seeds"
    " timestamp us v ver version versions warmup year"
)
"""Words for times, rates and amounts: numbers that a benchmark prints as its answer."""
RATES = _words("fps ips qps speed throughput tps")
A_SECOND = ("/s", "/sec", "/second", "per_s", "per_sec", "per_second")
"""Words and endings of rates, of which less is worse."""
FAULTS = _words("dropped err error errors failed failures fault faults misses retries retransmits stalls timeouts")
"""Of a rate of these, more is worse."""
DURATIONS = _words("duration elapsed latency")
"""Words for times, of which more is worse, beside those that end in `time`."""
PERCENTILE = re.compile(r"p(?:50|75|9\d|99\d{1,2})$")
"""`p50`, `p99`: what a benchmark prints of its latencies. `P10` is a precision, and `P100` a card."""
PACE = re.compile(r"(?:^|_)s/[a-z]+$")
"""A time for each of what a program does: `s/step`, `s/request`."""
MOMENTS = _words("uptime datetime")
"""Words that end in `time` and are no durations."""
AFTER = _words(
    "at avg average ema epoch eval evaluation final k last macro mean micro pct percent rate running smoothed step sum"
    " test top train training val valid validation weighted"
)
"""Words that may follow the one that tells: `loss_avg`, `acc_top5`, `train_loss_epoch`."""
UNITS = _words("batch image item iteration per sample step token epoch")
"""Beside a word that tells, these say over what it was taken: `epoch_loss`, `token_acc`."""
WHICH = _words("argmax argmin at best first last")
"""With these, the number is that of an epoch or a step: `best_loss_epoch`."""
LINKS = _words("after and as at before by far for from in is of on or since than to until was with")
"""None of these alone is a name: `stopped early at 512`."""
WORD = re.compile(r"[^\W_]+")
EARLIER = "%s (%d)"
"""Name of a number that the program printed again under its own name, after the same step: `accuracy (1)`."""
LARGEST = 1e30
"""A larger number is no figure. Returned by a step, or printed with an exponent, it counts like NaN."""
IS_EARLIER = re.compile(r" \(\d\)$")


@lru_cache(1024)
def worse_if(name: str) -> str:
    """Return which change of a number is worse: `rise`, `drop`, or `change` if the name does not tell; "" for a name
    that is no result."""
    words = _parts(name)
    if any(map(_told, words)) and not WHICH.intersection(words):
        words = [word for word in words if word not in UNITS]
    if "learning" in words or LINKS.issuperset(words) or any(word in NEVER or word.endswith("time") for word in words):
        return ""
    while len(words) > 1 and (words[-1] in AFTER or not words[-1]):
        words.pop()
    if words[-1] == "score" and any(map(_told, words[:-1])):
        words.pop()  # of what another word tells: `brier_score`
    if "likelihood" in words[-1] and NEGATED.intersection(words):
        return "rise"
    ends = [] if NEITHER.intersection(words) else words[-1:] + words[:1]
    worse = next(filter(None, map(_told, ends)), "change")
    return "drop" if worse == "rise" and words[0] == "neg" and SCORERS.intersection(words) else worse


def is_measure(name: str) -> bool:
    """Return whether a number that is no result is a time, a rate or an amount of memory."""
    words = _parts(name)
    return not worse_if(name) and any(word in MEASURED or word.endswith("time") for word in words)


@lru_cache(1024)
def worse_measure(name: str) -> str:
    """Return which change of a time or a rate is worse, `rise` or `drop`; "" for any other number."""
    if not is_measure(name):
        return ""
    words = _parts(name)
    is_rate = (name.lower().endswith(A_SECOND) or not RATES.isdisjoint(words)) and FAULTS.isdisjoint(words)
    is_time = PACE.search(name) is not None or any(
        word in DURATIONS or (word.endswith("time") and word not in MOMENTS) for word in words
    )
    if is_rate == is_time:  # `latency_at_1000_qps`
        return ""
    return "drop" if is_rate else "rise"


def is_pace(name: str, unit: str) -> bool:
    """Return whether a number with this unit is a rate or a latency: a rate in thousands or more, or a latency in a
    unit of time. Most other times are those of a run, which is timed anyway."""
    worse = worse_measure(name)
    return worse == "drop" if unit in ("k", "K", "M", "G") else worse == "rise" and "latency" in _parts(name)


def is_error(name: str) -> bool:
    """Return whether a number is an error, whose size is its absolute value."""
    words = _parts(name)
    return worse_if(name) == "rise" and any(word in ("err", "errors") or word.endswith("error") for word in words)


def _parts(name: str) -> "list[str]":
    """Return the words of a name. A percentile is a latency, unless another word tells of what: `accuracy_p95`."""
    whole = WORD.findall(name.lower())
    words = [_plain(word) for word in whole]
    if any(map(_told, words)):
        return words
    return ["latency" if PERCENTILE.match(word) else part for word, part in zip(whole, words)]  # noqa: B905 (Python 3.6)


def _plain(word: str) -> str:
    """Return a word without the digits at its end, unless they make another word: `f1`."""
    return word if word in RISES or word in DROPS else word.rstrip("0123456789")


def _told(word: str) -> str:
    if word in RISES:
        return "rise"
    if word in DROPS:
        return "drop"
    return next((worse for ending, worse in ENDINGS if word.endswith(ending)), "")
