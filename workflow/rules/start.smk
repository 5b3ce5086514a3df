# start: what happens before the first job and after the last. Damage and copies are seen before Snakemake decides.

import sys

from lmu_scaling import records
from lmu_scaling.healing import damaged, describe, keep
from lmu_scaling.planning.disk import check_disk_space

RECORDS = Path(f"{RESULTS}/snakemake.json")
DAMAGED = []

if workflow.is_main_process and workflow.dag_settings is not None:
    TARGETS = set(workflow.dag_settings.targets) - {"all"}
    records.restore(RECORDS)
    DAMAGED = damaged(all_manifests())
    # a file stands for the job that makes it: its manifest is always an output
    broken = sorted({damage.manifest for damage in DAMAGED})
    if DAMAGED and not TARGETS:
        forced = {*workflow.dag_settings.forcerun, *broken}
        workflow.dag_settings.forcerun = frozenset(forced)
    elif DAMAGED:
        advice = f"Make them again: snakemake --cores all --forcerun {' '.join(broken)}"
        print(f"{describe(DAMAGED)}\n{advice}", file=sys.stderr)


def save_records():
    records.save(RECORDS, jobs_of(*kept_rules(), workflow.get_rule("audit")))


onstart:
    if not TARGETS or TARGETS - {"plan", "rehearsal", "audit"}:
        try:
            check_disk_space(CONFIG)
        except UserError as error:
            raise WorkflowError(str(error)) from None
    if DAMAGED and not TARGETS:
        print(keep(DAMAGED), file=sys.stderr)


onsuccess:
    save_records()


onerror:
    save_records()
    print(
        "Not finished. Run the same command to go on where it stopped.",
        file=sys.stderr,
    )
