# Replication of "Language Modeling using LMUs" (arXiv 2110.02402).
#
#   snakemake --cores all                                         the experiment in config.yaml
#   snakemake --cores all --configfile workflow/presets/smoke.yaml    another one
#   snakemake --cores all -- paper_figures/loss_vs_N.pdf          just one figure
#   snakemake --cores 1 plan                                      what a run will cost, before it runs
#
# Each stage has one word; it names its rules (workflow/rules/<stage>.smk), its package (lmu_scaling/<stage>/) and its
# results (results/<experiment>/<stage>/).

import sys

from snakemake.exceptions import WorkflowError
from snakemake.utils import min_version

sys.path.insert(0, workflow.basedir)

from lmu_scaling.config import read
from lmu_scaling.errors import UserError

min_version("9.19")

try:
    read(
        f"{workflow.basedir}/config.yaml"
    )  # Snakemake would not name the file, and show a traceback
except UserError as error:
    raise WorkflowError(str(error)) from None


configfile: f"{workflow.basedir}/config.yaml"


include: "workflow/rules/common.smk"
include: "workflow/rules/planning.smk"
include: "workflow/rules/corpus.smk"
include: "workflow/rules/tokens.smk"
include: "workflow/rules/training.smk"
include: "workflow/rules/evaluation.smk"
include: "workflow/rules/analysis.smk"
include: "workflow/rules/paper.smk"
include: "workflow/rules/audit.smk"
include: "workflow/rules/start.smk"


rule all:
    """Every figure, table and verdict of the experiment, and the audit of them."""
    default_target: True
    input:
        FIGURES,
        TABLES,
        f"{RESULTS}/report.html",
        f"{RESULTS}/analysis/claims.json",
        rules.audit.output,
        list(lost()),
