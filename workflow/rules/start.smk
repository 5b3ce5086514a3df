# start: what happens before the first job and after the last. Damage and copies are seen before Snakemake decides.

import sys

from lmu_scaling import records
from lmu_scaling.healing import damaged, describe, keep, mark
from lmu_scaling.planning.disk import check_disk_space

RECORDS = Path(f"{RESULTS}/snakemake.json")
DAMAGED = []

if workflow.is_main_process:
    records.restore(RECORDS)
    DAMAGED = damaged(all_manifests())
    mark(all_manifests(), DAMAGED)
    if DAMAGED:
        print(describe(DAMAGED), file=sys.stderr)


def save_records():
    every = [*kept_rules(), workflow.get_rule("audit")]
    records.save(RECORDS, jobs_of(*every, temporary=True))


onstart:
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


onerror:
    save_records()
    print(
        "Not finished. Run the same command to go on where it stopped.",
        file=sys.stderr,
    )
