# start: what happens before the first job and after the last. Damage and copies are seen before Snakemake decides.

import atexit
import contextlib
import os
import signal
import sys

from lmu_scaling import records
from lmu_scaling.healing import damaged, describe, keep, mark
from lmu_scaling.lock import exclusive
from lmu_scaling.planning.disk import check_disk_space
from lmu_scaling.planning.refusals import refusal
from lmu_scaling.planning.slurm import keep_unanswered, split_arrays

RECORDS = Path(f"{RESULTS}/snakemake.json")
HELD = contextlib.ExitStack()
DAMAGED = []

if workflow.is_main_process:
    records.restore(RECORDS)
    DAMAGED = damaged(all_manifests())
    mark(all_manifests(), DAMAGED)
    if DAMAGED:
        print(describe(DAMAGED), file=sys.stderr)


if "snakemake_executor_plugin_slurm" in sys.modules:
    keep_unanswered(sys.modules["snakemake_executor_plugin_slurm"].Executor)
    split_arrays(sys.modules["snakemake_executor_plugin_slurm"].Executor)


def save_records():
    every = [*kept_rules(), workflow.get_rule("audit")]
    records.save(RECORDS, jobs_of(*every, temporary=True))


def hold_experiment():
    """Snakemake's own lock is in its working directory: it does not see one that shares only the results with it."""
    if workflow.execution_settings.lock:
        lock = exclusive(
            Path(f"{RESULTS}/.lock"),
            wait=False,
            what="another Snakemake works on this experiment",
            # this one was suspended, and the other has taken over: end as after Ctrl-C
            on_loss=lambda: os.kill(os.getpid(), signal.SIGINT),
        )
        HELD.enter_context(lock)


onstart:
    try:
        hold_experiment()
    except UserError as error:
        raise WorkflowError(str(error)) from None
    targets = set(workflow.dag_settings.targets)
    if not targets or targets - {"plan", "rehearsal", "audit"}:
        try:
            check_disk_space(CONFIG)
        except UserError as error:
            raise WorkflowError(str(error)) from None
    if DAMAGED:
        print(keep(DAMAGED), file=sys.stderr)


onsuccess:
    save_records()
    HELD.close()


def advise(said):
    """The last words: after Snakemake's own."""
    if refused := refusal(said):
        print(f"error: {refused}", file=sys.stderr)
    print(
        "Not finished. Run the same command to go on where it stopped.",
        file=sys.stderr,
    )


onerror:
    save_records()
    said = [Path(file).read_text("utf-8") for file in log if Path(file).is_file()]
    atexit.register(advise, "".join(said))
    HELD.close()
