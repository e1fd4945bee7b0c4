"""Runs a suite, case after case."""

import os
import shlex
import shutil
import subprocess
import sys
import time

from .program import read_rows

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
LAB = os.path.join(ROOT, "lab", "lab")
LAB_TRIES = 3  # a busy machine can fail the check of the links once or twice, hardly ever three times
LAB_LACKS_RIGHTS, LAB_FAILED = 3, 125
COMPARISON_SECONDS = 1800


def why_not(case, program):
    """Why a case cannot run here, or an empty text."""
    if not program.has(case.command):
        return f"this tulle has no '{' '.join(case.command)}'"
    if case.needs_flag and f"{case.needs_flag} " not in program.help(case.command):
        return f"'{' '.join(case.command)}' has no {case.needs_flag}"
    if case.data and not program.has(("generate",)):
        return "this tulle has no 'generate'"
    return ""


def command_of(case, program, densities, json_path, data_path):
    """The command line of a case, with what starts its ranks."""
    own = [program.path, *case.command, *case.flags, "--json", json_path]
    if densities:
        own += ["--density", *map(str, densities)]
    if case.data:
        own += ["--data", data_path]
    if case.network is None:
        return own
    if case.network.kind == "sim":
        return [*own, "--transport", "sim", "--ranks", str(case.ranks)]
    if case.network.kind == "lab":
        flags = ["--mpi-flags", case.mpi_flags] if case.mpi_flags else []
        return [LAB, "with", "--hosts", str(case.ranks), "--rate", case.network.rate, "--check", "--quiet", "--timeout",
                str(COMPARISON_SECONDS), *flags, "--", *own]
    return [*mpirun(case.ranks), *shlex.split(case.mpi_flags), *own]


def mpirun(ranks):
    """Ranks may outnumber cores: they must not be bound to one, nor spin for long."""
    launcher = shutil.which("mpirun.openmpi")
    if not launcher:
        return ["mpirun", "-n", str(ranks)]
    return [launcher, "-n", str(ranks), "--oversubscribe", "--allow-run-as-root", "--bind-to", "none", "--mca",
            "mpi_yield_when_idle", "1", "--mca", "btl_base_warn_component_unused", "0"]


class Suite:
    """Runs cases, shows how far it is, and remembers what failed."""

    def __init__(self, cases, program, results):
        self.cases = list(cases)
        self.program = program
        self.results = results
        self.failures = []
        self.lab_is_missing = False

    def run(self):
        begun = time.monotonic()
        for number, case in enumerate(self.cases, 1):
            minutes = (time.monotonic() - begun) / 60
            self._say(f"[{number}/{len(self.cases)}, {minutes:.1f} min] {case}")
            reason = why_not(case, self.program)
            if reason:
                self._say(f"  skipped: {reason}")
            elif self.lab_is_missing and case.network and case.network.kind == "lab":
                self._say("  skipped: there is no lab here")
            else:
                self._run_case(case)

    def _run_case(self, case):
        self._keep(case)
        densities = self.results.densities_left(case)
        if not densities if case.densities else self.results.has(case):
            self._say("  done before")
            return
        for _ in range(LAB_TRIES):
            code = self._run_once(case, densities)
            if code != LAB_FAILED or not case.network or case.network.kind != "lab":
                break
            densities = self.results.densities_left(case)
        if code == LAB_LACKS_RIGHTS:
            self.lab_is_missing = True
        elif code != 0:
            self.failures.append(f"{case}: exit code {code}")

    def _run_once(self, case, densities):
        """Run the command, and keep its rows also when it is interrupted: a comparison writes its rows when it ends."""
        command = command_of(case, self.program, densities, self.results.part(case), self._data(case))
        try:
            return subprocess.run(command, stdout=subprocess.DEVNULL, check=False,
                                  env={**os.environ, "TULLE_PROGRESS": str(int(sys.stderr.isatty()))}).returncode
        finally:
            self._keep(case)

    def _data(self, case):
        """The file of a case's data, made where it is not there yet."""
        if not case.data:
            return ""
        kind, rows = case.data
        path = os.path.join(os.path.dirname(self.results.path), f"{kind}-{rows}.tcsr")
        if not os.path.exists(path):
            self._say(f"  making {os.path.basename(path)}")
            subprocess.run([self.program.path, "generate", "--like", kind, "--rows", str(rows), path + ".part"],
                           check=True, stdout=subprocess.DEVNULL)
            os.rename(path + ".part", path)
        return path

    def _keep(self, case):
        """Move what a case has written so far, maybe in a run that was killed, to the results."""
        path = self.results.part(case)
        if not os.path.exists(path):
            return
        rows = read_rows(path)
        for row in rows:
            row["suite_case"] = str(case)
            row.setdefault("git_commit", self.results.commit)
            if case.rename:
                row["algorithm"] = case.rename
            if row.get("verified") is False:
                self.failures.append(f"{case}: {row.get('algorithm')} at {row.get('density')}: {row.get('failure')}")
        self.results.append(rows)
        os.remove(path)
        self._say(f"  {len(rows)} rows")

    @staticmethod
    def _say(text):
        print(text, file=sys.stderr, flush=True)
