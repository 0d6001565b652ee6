"""The agent is a small program that runs a scenario inside an image and reports what it measured.

Standard library only, CPython 3.6 to 3.15; it imports nothing of the harness. It is copied next to the scenario as

    ROOT/start.py                 starts the supervisor:  python -B ROOT/start.py
    ROOT/harness_agent/…          this package
    ROOT/job.json                 what to do (below)
    ROOT/scenario/NAME.py, …      the scenario's script and its `files:`

Two processes. The *supervisor* keeps the conversation on its stdin and stdout and watches; the *scenario process*
(a fresh interpreter) imports the script, steps and samples itself into a shared mmap, so that the samples survive
its death. With a `command` the supervisor samples the command's process tree from outside instead.

job.json
    {"marker": "hex, unique to the trial", "script": "scenario/x.py" or null, "params": {...},
     "program": {"path": "scenario/train.py" or null, "module": "mypkg.train" or null, "args": [...],
                 "launcher": ["torchrun", …], "steps_are": "auto", "torch", … or "module:name"} or null,
                                                in place of a script (scenario/program_run.py)
     "command": [...] or null, "step_pattern": regex or null, "judge_exit": false,
     "printed": {"loss": "loss: {}"},           of a program or a command: the numbers to read from its output; null:
                                                those beside a name (scenario/printed.py)
     "serve": {…} or null,                      of a command that is a server, to which requests are sent
                                                (serving/client.py), by a `script` of the user's (serving/scripted.py),
                                                or by another command, a `generator` (serving/generator.py)
     "client": ["/usr/bin/python3", "-I"],      the words that start the interpreter of the client, in which {root} is
                                                the root of the trial; absent: the agent's
     "lines": "epoch #",                        of a program whose steps may be lines of output: the only ones that are;
                                                "": none; null or absent: the first that recur (scenario/printed.py)
     "looks": [500, 1000, 2000, 4000],          step counts at which to look; the last is the budget
     "look_times_s": [10, 20, 40, null],        seconds in steps after the first, at which to look if they pass before
                                                the step counts; the last ends the trial. Null or absent: only steps
     "timeout_s": 1200.0,                       most seconds for setup and all the steps
     "answer_timeout_s": 300.0,                 most seconds to wait for an answer to a look
     "slices": 3,                               the launches that are alive together, of which one makes steps at a
                                                time (below); 0 or absent: this one is alone
     "results": "out.json" or null,             the file of a command's results (scenario/result_file.py)
     "in_place": {"folder": "/home/me/bench",   of a command that runs on the machine as it is: where it runs; the
                  "variables": {"IMAGE": "a:1"}, variables that the matrix file sets, of which "varied" differs between
                  "varied": "IMAGE",            versions; and the command that ends what it starts elsewhere
                  "stop": [...]} or null,       (stopping.py)
     "probe": {"name": "optrace", …} or null,   a wrapping probe with its settings (inside/__init__.py)
     "mounts": [{"at": "/data", "from": "/srv/d", "files": hash or null, …}, …]
                                                mounted data (mounted.py); those with `files` are looked at
     "caches": [{"at": "~/.cache/hub", "own": "/", "path": "/x", "from": "/y" or null}, …]
                                                folders in which this trial alone writes, each a copy of another one, or
                                                empty (caches.py); nothing outside of `own` is removed for them
     "survey": true,                            only describe the mounts, in `mounted` messages, and exit
     "environment": ["CUDA_*", "TF_*", ...]}    names (fnmatch) whose values `hello` may report

Every message to the harness is one line on stdout, after a newline: marker, a space, a JSON object with "type".
Anything else on stdout is noise from the image. Messages, in order:

    hello     {"protocol": 1, "agent": "…", "python": "3.8.10", "implementation": "CPython", "libc": "glibc 2.36",
               "own_s": 0.05,                   seconds that the agent itself took until here
               "packages": {"numpy": "1.26.4", …}, "wheels": {"numpy": "cp311-cp311-manylinux_2_17_x86_64", …},
               "cpu": "model name", "page_kib": 4, "huge_pages": "madvise",
               "rlimits": {"stack": "67108864:-1", …}, "cgroup": {"version": 1, "limit_bytes": 123 or null},
               "environment": {"CUDA_VERSION": "11.8"},
               "environment_names": ["PATH", …],
               "mounts": {"/data": hash or problem},   of the mounts that were looked at
               "gpus": [{"index": 0, "uuid": "GPU-…", "name": "NVIDIA GeForce RTX 4090", "compute_capability": "8.9",
                         "driver": "535.104.05", "cuda": "12.2", "memory_mib": 24564, "power_limit_w": 450.0,
                         "ecc": false, "mig": null, "parent": null, "processes": 0}, …]}
                                                if the driver's library exists; a MIG instance takes the place of
                                                its card, whose UUID is `parent`; what the driver does not report is
                                                null. With several cards, "gpu_links": {"0 and 1": "PHB, peer access"}.
                                                "gpu_problem": "…" instead, if that library does not start
    ready     {"setup_s": 0.2, "first_step_s": 0.1, "libraries": ["libcufft.so.10.3", …], "probes": ["rss", …],
               "stride": 1, "step_kind": null or "torch", "step_shape": null or "epoch #"}
                                                after setup and the first step; step_kind: whose steps a program makes
                                                (scenario/hooks/), "function", "line" or "request";
                                                step_shape: which lines these are. For lines it comes later, before
                                                the first look or the end
    progress  {"step": 1234, "rss_kib": 81234}  about once a second; of a server that is late, once with a "note"
    samples   {"columns": {"step": [1, 2, …], "rss_kib": […], "anon_kib": […], "heap_kib": […], "blocks": […],
               "step_s": […], "gpu_pool_kib": […], "gpu_kib": […], "gpu_process_kib": […]}}
               the rows since the last one, in chunks of at most 10,000 (fewer if a line would exceed 1 MiB);
               null for a missing number; no column for a probe that this process does not have
    counts    {"columns": {"step": [1, 47, 500, …], "open_files": […], "sockets": […], "pipes": […], "threads": […],
               "processes": […], "zombies": […], "shm": […], "disk": […], "worker_memory": […],
               "worker_memory_kept": […]}}
               what the process tree holds besides memory, counted by the supervisor from time to time (census.py);
               null if it could not be counted; shm, disk and the memory of the workers (probes/processes.py) in KiB.
               Sent before a look and before `done`, if there is anything new. It has all rows so far, and replaces
               the message before.
    over_time {"columns": {"at_s": [0.05, 0.1, …], "rss_kib": […], "anon_kib": […]}}
               of a program or a command: the memory of all its processes, by the seconds since its start without those
               in which it had to wait (census.py). Sent once, before `done`.
    look      {"step": 500, "look": {fields of model.Look}, "last": false}      after the samples it covers.
               One with "last": true is never answered; `done` follows. It is taken at the budget, and once more
               at the same step after an answer of stop, or if the time limit ended the steps. A trial that
               failed in a step has none.
    parked    {"step": 47, "frozen": true}      of a launch in slices: after `ready`, and at the end of each slice.
               frozen: all its processes stand still
    mounted   {"text": "12000 files seen"}      of a survey: progress, and at last
              {"mounts": [{"at": "/data", "kind": "folder", "entries": 3, "bytes": 123, "files": hash, "inodes": hash,
                           "content": hash, "problem": "…"}, …]}
    file      {"name": "optrace.json", "text": "…"}        what a wrapping probe found, in parts to be joined in order
    done      {"end": "completed|stopped|crash|oom|hang|setup|infrastructure", "message": "…", "signal": null or 11,
               "exit_code": null or 3, "last_step": 4000, "peak_rss_kib": 1.0, "probe_cost": 0.004, "at_exit": false,
               "starved": false, "oom_in_setup": false, "shortfall": "|timeout|own_end|no_step",
               "remedy": "|function|longer|command", "run_s": null or 12.5,
               "end_s": null or 0.1, "busy_s": null or 40.0, "kept_waiting": null or 0.02, "failed_ago_s": null or 0.3,
               "outlived_by": null or ["sleep", …], "unread": "",
               "output_head": "first 16 KiB of the scenario's stdout and stderr", "output_tail": "last 64 KiB of it",
               "output_middle": "one line of each form between them, 16 KiB of them",
               "output_bytes": null or 1234, "not_finite": {"loss": [3, 17]}, "buffered": "", "stacks": "…",
               "ranks": [{"rank": 0, "steps": 4000, "step_s": 0.01, "own_s": 0.008, "grown_kib": 3.0,
                          "not_finite": ["loss"], "about": {"backend of torch": "gloo", …}}, …]}
               always the last, after the samples not yet sent. The last line of the message of a crash, an oom, a hang
               or a failed setup says where it happened: "step 3: …", "after step 2: …", "setup: …". probe_cost: probe
               time / step time, a fraction. at_exit: it failed after its last step. starved: the kernel killed one of
               its processes because others use up the machine's memory; the end is then "infrastructure". oom_in_setup:
               memory ran out before the first step; the end is then "setup". shortfall: why it made fewer steps than
               its budget without a fault; "no_step" with the end "completed": none of a program was seen, and its whole
               run is the one step. remedy: the kind of advice to give if no step was seen. run_s: the seconds that a
               program or a command took, if it ended by itself. end_s: those from the last step to the end of the
               process; null for a program that the agent ended. busy_s: those after which the agent ended a program
               that was busy after its last step; null for one that went on to another step. kept_waiting: of the time
               in which the first thread could run, the share in which others ran. outlived_by: the names of the
               processes that were alive OUTLIVING_S after a program or a command had ended well. output_bytes:
               printed after the first step (null: none was made). not_finite: metric -> how many steps returned NaN,
               an infinity or too large a number, and the first of these steps. buffered: why the rows of a command are
               not steps (supervisor/command.py). unread: why the file of a command's results gave no numbers.
               failed_ago_s: of a program, the seconds since a rank failed first.
               ranks: of a program with several (supervisor/group.py): the medians of the
               step time, and of what is left of it without the waits that hooks see, after the first quarter.

The scenario process and the command run in ROOT/scenario, with /dev/null as stdin. For a command, `ready` comes with
its first row (setup_s null), and its looks have rss_kib and its kinds, rss_peak_kib, cpu_s, what was read and written,
and what the driver reports of the GPUs; its last look is at its end, if that was before the budget. For a
server, setup_s is the time until it was ready, the columns have first_token_s, token_s and failed, and end_s begins
with SIGTERM.

    python -B ROOT/start.py gpus        prints the GPUs of `hello` as one JSON object, and exits

The harness answers each look but the last with one line on stdin: {"answer": "go"} or {"answer": "stop"}. It answers
`parked` with {"slice": 0.5}: the scenario goes on for that many seconds, and for at least LEAST_STEPS steps
(supervisor/job.py), unless a look or its end comes first. While it is parked, all its processes are stopped
(SIGSTOP), and no time limit runs.

{"leave": true}, sent when the launch has ended on another node, ends the trial as stopped, or as its ranks have failed.

End of stdin means that the harness is gone: the agent kills the scenario, ends what it started elsewhere, and exits.
"""

PROTOCOL = 1
VERSION = "3"
