"""A sweep through a real SLURM on this machine; `make test-slurm` runs this file only.

The daemons run on loopback with files of their own under /tmp: nothing of the system's
configuration is read or changed, and they are ended by their process ids.
"""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from discogp_lib.errors import ConfigError
from discogp_lib.slurm import Slurm, SlurmOptions
from tests.checkout import Checkout

pytestmark = pytest.mark.slurm

CONFIG = """\
ClusterName=discogp
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
SlurmctldPort={controller}
SlurmdPort={worker}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CredType=cred/munge
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
JobRequeue=1
ReturnToService=2
MinJobAge=3600
SchedulerParameters=sched_interval=1,batch_sched_delay=0
NodeName={host} NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
PartitionName=small Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


def free_port() -> int:
    with closing(socket.socket()) as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def wait_for(condition: Callable[[], object], seconds: float = 120) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.2)


def ask(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def slurm() -> Iterator[Path]:
    """A cluster of one node with four processors; `SLURM_CONF` names its configuration."""
    for program in ("munged", "slurmctld", "slurmd", "sbatch"):
        if not shutil.which(program):
            pytest.fail(f"{program} is missing: apt-get install slurm-wlm munge")
    if os.geteuid() != 0:
        pytest.fail("SLURM's daemons are started here, and that takes root")
    folder = Path("/tmp") / f"discogp-slurm-{os.getpid()}"  # munged wants a path others may enter
    for name in ("state", "spool"):
        (folder / name).mkdir(parents=True)
    folder.chmod(0o755)
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o600)
    host = socket.gethostname().split(".")[0]
    config = folder / "slurm.conf"
    ports = {"controller": free_port(), "worker": free_port()}
    config.write_text(CONFIG.format(host=host, folder=folder, **ports))
    os.environ["SLURM_CONF"] = str(config)
    munge = ["munged", "--foreground", "--force", f"--key-file={key}"]
    munge += [f"--socket={folder}/munge.socket", f"--pid-file={folder}/munge.pid"]
    munge += [f"--log-file={folder}/munge.log", f"--seed-file={folder}/munge.seed"]
    daemons = []
    try:
        for command in (munge, ["slurmctld", "-D", "-c"], ["slurmd", "-D", "-N", host]):
            log = (folder / f"{command[0]}.out").open("w")
            daemons.append(subprocess.Popen(command, stdout=log, stderr=log))
            if command is munge:
                wait_for((folder / "munge.socket").exists, 20)
        wait_for(lambda: "idle" in ask("sinfo", "--noheader", "--format=%T"), 60)
        yield folder
        ask("scancel", "--user=root")
        wait_for(lambda: not ask("squeue", "--noheader"), 60)
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
            daemon.wait(timeout=30)
        del os.environ["SLURM_CONF"]
        shutil.rmtree(folder)


@pytest.fixture
def checkout(slurm: Path, tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


SLURM = ("--executor", "slurm", "--partition", "small", "--cpus-per-task", "1", "--poll", "0.5")


def running() -> list[str]:
    return ask("squeue", "--noheader", "--array", "--states=RUNNING", "--format=%i").split()


def processes(job: str) -> list[int]:
    """The Python processes of a job that hold its run."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            environment = path.read_bytes().split(b"\0")
            command = path.with_name("cmdline").read_bytes()
        except OSError:
            continue
        first, _, index = job.partition("_")
        wanted = {f"SLURM_ARRAY_JOB_ID={first}".encode(), f"SLURM_ARRAY_TASK_ID={index}".encode()}
        if wanted <= set(environment) and b"submitit.core._submit" in command:
            found.append(int(path.parent.name))
    return found


def test_jobs_that_are_killed_or_requeued_are_finished(checkout: Checkout):
    sweep = checkout.start("sweep", "--profile", "quick", "--seeds", "0", *SLURM)
    seen: list[str] = []
    wait_for(lambda: len(seen) == 2 or seen.extend(j for j in running() if j not in seen))
    killed, requeued = seen[:2]
    wait_for(lambda: processes(killed))
    for pid in processes(killed):
        os.kill(pid, signal.SIGKILL)
    assert "error" not in ask("scontrol", "requeue", requeued)
    said, _ = sweep.communicate(timeout=400)
    assert sweep.returncode == 0, said
    assert said.splitlines()[-1] == "4 runs done, 0 failed"
    assert len(list((checkout.root / "results").rglob("record.json"))) == 4
    states = ask("scontrol", "--oneliner", "show", "job")
    by_id = {job_id(line): line for line in states.splitlines()}
    assert "JobState=FAILED" in by_id[killed]
    assert "Restarts=1" in by_id[requeued]
    assert "JobState=COMPLETED" in by_id[requeued]
    # The array of the two searches, the killed one again, and what was waiting for them.
    assert len({name.split("_")[0] for name in by_id}) >= 3


def job_id(line: str) -> str:
    fields = dict(part.split("=", 1) for part in line.split() if "=" in part)
    return f"{fields.get('ArrayJobId', fields['JobId'])}_{fields.get('ArrayTaskId', '0')}"


def test_failed_runs_are_listed_and_ctrl_c_cancels(checkout: Checkout):
    methods = checkout.root / "discogp_lib" / "methods" / "__init__.py"
    methods.write_text(
        methods.read_text() + "\n\ndef _broken(*_, **__):\n    raise ZeroDivisionError('by nought')"
        "\n\n\nMETHODS['magnitude'] = _broken\n"
    )
    narrowed = ("--tasks", "P36", "--seeds", "0")
    code, said = checkout.run("sweep", "--profile", "quick", *narrowed, *SLURM)
    assert code == 1, said
    assert "1 runs done, 1 failed\n  pararel/P36 magnitude seed 0: ZeroDivisionError" in said

    sweep = checkout.start("sweep", "--profile", "slow", *SLURM)
    wait_for(lambda: len(running()) == 2)
    os.kill(sweep.pid, signal.SIGINT)
    said, _ = sweep.communicate(timeout=60)
    assert sweep.returncode == 130
    assert "interrupted; call it again" in said
    wait_for(lambda: not ask("squeue", "--noheader"), 60)


def test_mistakes_are_told_before_anything_is_sent(checkout: Checkout):
    with pytest.raises(ConfigError, match="leaves a job no time to be requeued"):
        SlurmOptions(minutes=5)
    for options, sentence in {
        ("--sbatch", "account"): "takes KEY=VALUE",
        ("--partition", "nowhere"): "SLURM did not take the jobs",
    }.items():
        code, said = checkout.run("sweep", "--profile", "quick", *SLURM, *options)
        assert code == 2, said
        assert sentence in said
        assert "Traceback" not in said


def test_a_job_asks_for_what_was_told(tmp_path: Path):
    options = SlurmOptions("big", gpus_per_task=1, cpus_per_task=3, sbatch={"account": "me"})
    executor = Slurm(tmp_path, options)._executor._executor
    script = executor._make_submission_file_text("true", "id")
    wanted = ("partition=big", "gpus-per-task=1", "cpus-per-task=3", "account=me", "time=240")
    assert [line for line in wanted if f"#SBATCH --{line}\n" not in script] == []
