"""Why SLURM refused a job, and which line of the profile to change, from what `sbatch` said."""

from __future__ import annotations

import re
from typing import NamedTuple

from lmu_scaling.errors import UserError

AFFECTS_RESULTS = False
SBATCH = re.compile(r"sbatch: error: (?:Batch job submission failed: )?([^\n']+)")
ACCOUNT = re.compile(r"(The given account [^\n]+ appears to be invalid)")
PARTITIONS, PROFILE = "profiles/slurm/partitions.yaml", "profiles/slurm/profile.yaml"


class Remedy(NamedTuple):
    """Where to look and what to change when SLURM's message contains one of these words."""

    words: str
    where: str
    what: str


REMEDIES = (
    Remedy("qos|policy", PROFILE, "lower jobs, or choose a QOS that you may use (set-resources: train: slurm_extra)"),
    Remedy("account", PROFILE, "set default-resources: slurm_account to one that `sacctmgr show associations` lists"),
    Remedy("time limit", PARTITIONS, "set max_runtime to what `sinfo -o '%P %l'` prints, in minutes"),
    Remedy("partition", PARTITIONS, "name the partitions that `sinfo -o '%P %l %G'` lists"),
    Remedy("gres|gpu", PROFILE, "set set-resources: train: gpu_model as `sinfo -o %G` names it"),
    Remedy("node conf|memory", PARTITIONS, "set max_mem_mb and max_gpu to what a node has (`sinfo -o '%P %m %G'`)"),
    Remedy("contact|connect|timed out", PROFILE, "nothing: SLURM's controller does not answer; wait until it does"),
)


class JobRefused(UserError):
    """SLURM does not accept a job."""


def refusal(log: str) -> JobRefused | None:
    """The last refusal in Snakemake's log; None if there is none."""
    said = [match[1].strip() for match in (*SBATCH.finditer(log), *ACCOUNT.finditer(log))]
    if not said:
        return None
    fitting = (remedy for remedy in REMEDIES if re.search(remedy.words, said[-1], re.IGNORECASE))
    remedy = next(fitting, Remedy("", PROFILE, "correct what the message says"))
    return JobRefused(f"SLURM refused a job: {said[-1]}", remedy.where, f"{remedy.what}; then run the same command")
