"""The workflow on a real SLURM: reservations as asked for, results as on a laptop, runs that survive what happens."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import pytest

from tests.needs import require
from tests.slurm.cluster import Cluster, wait_for, was_sent
from tests.slurm.conftest import PATIENCE, Checkout, Training

pytestmark = [pytest.mark.slurm, pytest.mark.slow, pytest.mark.timeout(2 * PATIENCE)]

# A measurement of this machine, and what shows it.
MEASURED = ("complexity", "claims", "report", "table1")


# ------------------------------------------------------------------------------------------------- without a fault
def test_jobs_reserve_what_the_rules_and_the_profile_ask_for(cluster: Cluster, finished: Checkout) -> None:
    jobs = cluster.jobs_of("train", "lmu-2k-x1-s1")
    assert jobs and jobs[0]["JobState"] == "COMPLETED"
    asked = {key: jobs[0].get(key) for key in ("Partition", "TresPerJob", "TimeLimit", "MinMemoryNode", "Requeue")}
    # the planner asks for 15 minutes, and the checkout's partitions.yaml grants a job with a GPU less
    expected = {"Partition": "gpu", "TresPerJob": "gres:gpu:1", "TimeLimit": "00:14:00", "MinMemoryNode": "3300M"}
    assert asked == {**expected, "Requeue": "1"}
    light = cluster.jobs_of("index")[0]
    assert (light["Partition"], light.get("TresPerJob"), light["TimeLimit"]) == ("cpu", None, "00:15:00")


def test_light_rules_are_not_submitted(cluster: Cluster, finished: Checkout) -> None:
    comments = [job["Comment"] for job in cluster.jobs() if "Comment" in job]
    submitted = {comment.split("_wildcards")[0].removeprefix("rule_") for comment in comments}
    assert not submitted & {"fetch", "specify", "figure", "paper_table", "claims", "effective_config"}
    assert {"encode", "deduplicate", "shard", "train", "evaluate", "fit", "report", "audit"} <= submitted


def test_after_fetch_a_run_needs_no_network(local: Checkout) -> None:
    require(local.offline, "this machine does not let a process leave the network (unshare --net)")
    assert (local.results / "audit/audit.json").is_file()


def test_results_are_those_of_a_local_run_byte_for_byte(finished: Checkout, local: Checkout) -> None:
    compared = 0  # other tests train further runs on the cluster
    for folder in ("results/smoke/tokens", "results/smoke/training", "results/smoke/evaluation", "paper_figures"):
        for path in sorted((local.folder / folder).rglob("*")):
            name = path.relative_to(local.folder)
            timed = path.name == "result.json" or path.name.startswith(MEASURED) or "live" in name.parts
            if path.is_file() and not timed and not path.name.endswith(".manifest.json"):
                assert path.read_bytes() == (finished.folder / name).read_bytes(), name
                compared += 1
    for name in ("fits.json", "curves.csv", "multipliers.csv", "counts.csv", "per_token_fits.csv", "per_token.parquet"):
        one, two = (checkout.results / "analysis" / name for checkout in (finished, local))
        assert one.read_bytes() == two.read_bytes(), name
    assert compared > 50


def test_job_logs_are_where_people_look(finished: Checkout) -> None:
    assert "done: " in (finished.results / "logs/train/lmu-2k-x1-s1.log").read_text()
    assert list(finished.folder.glob("results/slurm_logs/rule_train/lmu-2k-x1-s1/*.log"))


# ---------------------------------------------------------------------------------------------------------- faults
def test_a_cancelled_job_is_submitted_again_and_resumes_exactly(
    cluster: Cluster, finished: Checkout, tmp_path: Path
) -> None:
    with Training(cluster, finished, seed=11) as training:
        _, job = training.freeze()
        cluster.ask("scancel", job["JobId"])
        training.finish()
        assert len(cluster.jobs_of("train", training.run)) == 2
        assert "resuming at step" in (finished.results / f"logs/train/{training.run}.log").read_text()
        assert training.weights() == training.undisturbed(tmp_path)


def test_the_warning_before_the_time_limit_reaches_the_trainer_which_leaves_a_checkpoint(
    cluster: Cluster, finished: Checkout, tmp_path: Path
) -> None:
    with Training(cluster, finished, seed=12) as training:
        pid, job = training.freeze()
        hours, minutes, _ = map(int, job["RunTime"].split(":"))
        soon = 60 * hours + minutes + 2  # less than two minutes from now, when the warning is due, and more than one
        cluster.ask("scontrol", "update", f"JobId={job['JobId']}", f"TimeLimit={soon}")
        wait_for(lambda: was_sent(signal.SIGTERM, pid), "SLURM's warning")
        with contextlib.suppress(ProcessLookupError):  # SLURM lets stopped processes go on by itself, sooner or later
            os.kill(pid, signal.SIGCONT)
        training.finish()
        said = "".join(path.read_text() for path in finished.folder.glob(f"results/slurm_logs/*/{training.run}/*.log"))
        assert "stopped by a signal" in said and "a checkpoint was written" in said
        states = {found["JobId"]: found["JobState"] for found in cluster.jobs_of("train", training.run)}
        assert states.pop(job["JobId"]) == "FAILED", "it left by itself: TIMEOUT would mean that SLURM had to kill it"
        assert list(states.values()) == ["COMPLETED"]
        assert training.weights() == training.undisturbed(tmp_path)


def test_a_killed_snakemake_is_started_again_and_the_run_is_trained_once(
    cluster: Cluster, finished: Checkout, tmp_path: Path
) -> None:
    with Training(cluster, finished, seed=13) as training:
        pid, _ = training.freeze()
        assert training.controller is not None
        training.controller.kill()
        training.controller.wait()
        finished.run("slurm", "--unlock", environment=cluster.environment())
        training.controller = training.submit()
        wait_for(lambda: len(cluster.jobs_of("train", training.run)) == 2, "the second job")
        log = finished.results / f"logs/train/{training.run}.log"
        wait_for(lambda: log.is_file() and "waiting for it" in log.read_text(), "the second job finds the first")
        os.kill(pid, signal.SIGCONT)
        training.finish()
        assert "another job has finished this run already" in log.read_text()
        assert training.weights() == training.undisturbed(tmp_path)


def test_snakemake_as_a_job_that_is_interrupted_leaves_no_job_and_no_lock_and_goes_on(
    cluster: Cluster, finished: Checkout, tmp_path: Path
) -> None:
    """What `--signal=B:INT@300` does before the time limit of the controller's job."""
    with Training(cluster, finished, seed=15, as_job=True) as training:
        training.freeze()
        cluster.ask("scancel", "--batch", "--signal=INT", training.job)
        ended = ("CANCELLED", "FAILED")
        wait_for(lambda: all(job["JobState"] in ended for job in cluster.jobs_of("train", training.run)), "no job left")
        wait_for(lambda: cluster.state(training.job) == "FAILED", "Snakemake has ended by itself")
        training.controller = training.submit()
        training.finish()
        assert "resuming at step" in (finished.results / f"logs/train/{training.run}.log").read_text()
        assert training.weights() == training.undisturbed(tmp_path)


def test_a_run_whose_node_goes_down_resumes_on_another(cluster: Cluster, finished: Checkout, tmp_path: Path) -> None:
    with Training(cluster, finished, seed=14) as training:
        _, job = training.freeze()
        cluster.lose(job["NodeList"])
        try:
            training.finish()
        finally:
            cluster.ask("scontrol", "update", f"NodeName={job['NodeList']}", "State=RESUME")
        last = cluster.jobs_of("train", training.run)[-1]
        assert (last["JobState"], last["NodeList"] != job["NodeList"]) == ("COMPLETED", True)
        assert training.weights() == training.undisturbed(tmp_path)
