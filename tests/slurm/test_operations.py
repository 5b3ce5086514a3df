"""What administrators and sites do: drained nodes, restarted controllers, short partitions, refusals, small arrays."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.network_disk import NetworkDisk
from tests.slurm.cluster import Cluster, wait_for, was_sent
from tests.slurm.conftest import IMPATIENT, PARTITIONS, PATIENCE, SMALL, Checkout, Training, end

pytestmark = [pytest.mark.slurm, pytest.mark.slow, pytest.mark.timeout(2 * PATIENCE)]


@contextmanager
def profile(checkout: Checkout, partitions: dict[str, Any] = PARTITIONS, **changes: Any) -> Iterator[None]:
    """Edit the site's two files, and put them back."""
    files = [checkout.folder / "profiles/slurm" / name for name in ("profile.yaml", "partitions.yaml")]
    before = [file.read_text() for file in files]
    files[0].write_text(yaml.safe_dump({**yaml.safe_load(before[0]), **changes}))
    files[1].write_text(yaml.safe_dump({"partitions": partitions}))
    try:
        yield
    finally:
        for file, text in zip(files, before, strict=True):
            file.write_text(text)


def test_a_job_that_is_requeued_from_a_drained_node_goes_on_elsewhere(
    cluster: Cluster, finished: Checkout, tmp_path: Path
) -> None:
    with Training(cluster, finished, seed=21) as training:
        _, job = training.freeze()
        cluster.ask("scontrol", "update", f"NodeName={job['NodeList']}", "State=DRAIN", "Reason=test")
        try:
            cluster.ask("scontrol", "requeue", job["JobId"])
            cluster.kill_jobs_on(job["NodeList"])  # without cgroups SLURM does not reach a stopped process
            wait_for(lambda: cluster.state(job["JobId"]) == "PENDING", "the job waits again")
            cluster.ask("scontrol", "update", f"JobId={job['JobId']}", "StartTime=now")  # instead of in two minutes
            training.finish()
        finally:
            cluster.ask("scontrol", "update", f"NodeName={job['NodeList']}", "State=RESUME")
        (only,) = cluster.jobs_of("train", training.run)
        assert (only["JobId"], only["JobState"], only["Restarts"]) == (job["JobId"], "COMPLETED", "1")
        assert only["NodeList"] != job["NodeList"]
        assert "resuming at step" in (finished.results / f"logs/train/{training.run}.log").read_text()
        assert training.weights() == training.undisturbed(tmp_path)


def test_a_controller_and_munge_that_are_restarted_are_waited_for(
    cluster: Cluster, finished: Checkout, tmp_path: Path
) -> None:
    """The job ends while nobody can be asked about it, and SLURM does not answer for a whole round of questions."""
    with profile(finished, **{"slurm-status-attempts": 2}), Training(cluster, finished, seed=22) as training:
        assert training.controller is not None
        pid, job = training.freeze()
        with cluster.outage():
            os.kill(pid, signal.SIGCONT)
            wait_for((training.folder / "train.manifest.json").is_file, "the run ends")
            with pytest.raises(TimeoutError):  # two rounds, and the pauses between them
                wait_for(lambda: training.controller.poll() is not None, "", 25)
        training.finish()
        assert [found["JobId"] for found in cluster.jobs_of("train", training.run)] == [job["JobId"]]
        assert training.weights() == training.undisturbed(tmp_path)


def test_a_partition_of_one_minute_is_enough(cluster: Cluster, finished: Checkout, tmp_path: Path) -> None:
    """A run that lasts longer is warned in time, and resumes in the next minute. Slow machines need several of them."""
    brief = {"cpu": {"max_runtime": 2880}, "brief": {"max_runtime": 1, "max_gpu": 2}}
    with profile(finished, brief, retries=9), Training(cluster, finished, seed=23) as training:
        pid, job = training.freeze()
        wait_for(lambda: was_sent(signal.SIGTERM, pid), "SLURM's warning")
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
        training.finish()
        jobs = cluster.jobs_of("train", training.run)
        assert {(each["Partition"], each["TimeLimit"]) for each in jobs} == {("brief", "00:01:00")}
        assert len(jobs) > 1 and jobs[-1]["JobState"] == "COMPLETED"
        assert cluster.state(job["JobId"]) == "FAILED", "it left by itself; SLURM did not have to kill it"
        assert "resuming at step" in (finished.results / f"logs/train/{training.run}.log").read_text()
        assert training.weights() == training.undisturbed(tmp_path)


REFUSED_ACCOUNT = """#!/bin/sh
echo 'sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified' >&2
exit 1
"""


@pytest.mark.parametrize("what", ["partition", "account"])
def test_a_refusal_says_which_line_of_the_profile_to_change(
    cluster: Cluster, finished: Checkout, tmp_path: Path, what: str
) -> None:
    """An account can only be refused where SLURM has an accounting database: there sbatch answers as it does here."""
    environment = cluster.environment()
    partitions = PARTITIONS
    if what == "partition":
        partitions = {"cpu": {"max_runtime": 2880}, "nowhere": {"max_runtime": 14, "max_gpu": 2}}
    else:
        (tmp_path / "sbatch").write_text(REFUSED_ACCOUNT)
        (tmp_path / "sbatch").chmod(0o755)
        environment["PATH"] = f"{tmp_path}:{environment['PATH']}"
    with profile(finished, partitions, retries=0), Training(cluster, finished, seed=24, start=False) as training:
        controller = finished.start("slurm", *IMPATIENT, "--", training.target, environment=environment)
        try:
            assert controller.wait(PATIENCE) != 0
        finally:
            end(controller)
        said = (finished.folder / "snakemake.log").read_text()
    messages = {
        "partition": "invalid partition specified: nowhere|Invalid partition name specified",
        "account": "Invalid account or account/partition combination specified",
    }
    files = {"partition": "partitions.yaml", "account": "profile.yaml"}
    lines = said[said.index("error: SLURM refused a job") :].splitlines()
    assert any(message in lines[0] for message in messages[what].split("|")), lines[0]
    assert lines[1].strip() == f"where: profiles/slurm/{files[what]}"
    assert what in lines[2] and lines[2].endswith("then run the same command")


def test_arrays_larger_than_the_site_allows_are_submitted_in_parts(cluster: Cluster, finished: Checkout) -> None:
    """Five parts of the corpus, and arrays of three tasks at most. The tokens are those of one part."""
    digest = yaml.safe_load((finished.results / "tokens/index.json").read_text())["digest"]
    overlay = SMALL.replace("models:", "experiment: arrays\ncorpus: {parts: 5}\nmodels:", 1)
    finished.overlay.write_text(overlay)
    target = "results/arrays/tokens/index.json"
    with profile(finished, **{"slurm-array-jobs": "encode,shard"}):
        printed = finished.run("slurm", *IMPATIENT, "--", target, environment=cluster.environment())
    assert "sbatch failed" not in printed
    sizes = [job["ArrayTaskId"] for job in cluster.jobs() if "ArrayTaskId" in job]
    assert len(sizes) == 10 and len({job["ArrayJobId"] for job in cluster.jobs() if "ArrayJobId" in job}) == 4, sizes
    assert yaml.safe_load((finished.folder / target).read_text())["digest"] == digest


def test_nodes_that_see_files_late_and_whose_clocks_differ_train_the_same(
    cluster: Cluster, finished: Checkout, tmp_path: Path
) -> None:
    """The login node and the compute node see each other's files after four seconds, and have no common locks."""
    disk = NetworkDisk(finished.folder / "results", tmp_path / "scratch", late=4.0)
    machine = disk.machine("login", clock=-300)
    environment = {**cluster.environment(), **{key: machine[key] for key in machine if key.startswith(("DISK", "LD_"))}}
    with Training(cluster, finished, seed=25, start=False) as training:
        training.controller = finished.start("slurm", *IMPATIENT, "--", training.target, environment=environment)
        training.finish()
        (job,) = cluster.jobs_of("train", training.run)
        assert job["JobState"] == "COMPLETED"
        assert any(path.name.startswith("login-n") for path in disk.state.iterdir()), "the node made files of its own"
        assert training.weights() == training.undisturbed(tmp_path)
