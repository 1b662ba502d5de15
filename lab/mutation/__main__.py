"""Faults put into the product one at a time, and the share of them that tests see.

Prints no verdict: it counts, and names the faults that no test saw.
"""

from __future__ import annotations

import argparse
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from pathlib import Path

from federation.embedded_postgres.server import EmbeddedPostgres
from lab.mutation.records import GONE, SURVIVED, TIMEOUT, UNTESTED, Job, Results, Verdict
from lab.programs import clean_up_when_ended, parser
from lab.servers import found_binaries
from tools import dist

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (
    "federation/scheduler",
    "federation/capacity",
    "federation/services/scheduling",
    "estimator/estimation",
    "federation/codec",
)
# Layers of tests in this process; programs and documentation take too long for a run each.
TESTS = ("unit", "contract/store", "properties", "vectors", "replays", "api", "agent")
# Tests of what is not in the packages above, and does not use them.
UNRELATED = ("deploy", "demo", "tools", "embedded_postgres", "authenticators")
THROWN_AWAY = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
FOLDER = Path(tempfile.gettempdir()) / "fedsched-mutation"
TEMPLATE = "mutation_template"
JOB_VARIABLE = "FEDSCHED_MUTATION_JOB"
MIGRATE = "import sys; from federation.store.migrate import upgrade; upgrade(sys.argv[1])"


def main() -> int:
    parsed = parser("mutation", __doc__)
    parsed.add_argument("--commit", default="HEAD", help="the tree to try (default HEAD)")
    parsed.add_argument("--count", type=int, default=400, help="mutants (default 400)")
    parsed.add_argument("--seed", type=int, default=1)
    parsed.add_argument("--same-as", type=Path, help="results of another run: its mutants again")
    parsed.add_argument("--resume", action="store_true", help="go on with the folder's map")
    parsed.add_argument("--results", type=Path, default=FOLDER / "results.json")
    parsed.add_argument("--show", action="store_true", help="print the results, and run nothing")
    options = parsed.parse_args()
    results_path: Path = options.results.resolve()
    if not options.show:
        os.nice(19)
        if not options.resume:
            shutil.rmtree(FOLDER, ignore_errors=True)
            results_path.unlink(missing_ok=True)
        FOLDER.mkdir(parents=True, exist_ok=True)
        run(options, FOLDER, results_path)
    show(Results.read(results_path))
    return 0


def run(options: argparse.Namespace, folder: Path, results: Path) -> None:
    """Try the mutants in a copy of the tree, with one PostgreSQL for all of them."""
    tree = folder / "tree"
    commit = subprocess.check_output(
        ["git", "rev-parse", options.commit], cwd=ROOT, text=True
    ).strip()
    unpack(commit, tree)
    server = EmbeddedPostgres(found_binaries(), folder / "postgres", settings=THROWN_AWAY)
    try:
        server.start()
        environment = {
            # Programs that tests start would compile all that they import anew.
            **{k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"},
            "PYTHONPATH": str(tree),
            "PYTHONHASHSEED": "0",
            "OPENBLAS_NUM_THREADS": "1",
            "FEDERATION_TEST_DATABASE_URL": server.url,
            JOB_VARIABLE: str(folder / "job.json"),
        }
        make_template(server, tree, environment)
        Job(
            root=str(tree),
            folder=str(folder),
            commit=commit,
            packages=PACKAGES,
            count=options.count,
            seed=options.seed,
            same_as=str(options.same_as.resolve()) if options.same_as else "",
            results=str(results),
            server_url=server.url,
            template=TEMPLATE,
        ).write(folder / "job.json")
        run_session(folder, tree, environment)
    finally:
        server.discard()


def unpack(commit: str, tree: Path) -> None:
    """Write the files of a commit, and this program, which it may not have.

    Bytecode of an earlier run of the same commit stays.
    """
    marker = tree / ".mutated-commit"
    if not marker.exists() or marker.read_text(encoding="ascii") != commit:
        shutil.rmtree(tree, ignore_errors=True)
    archive = subprocess.check_output(["git", "archive", commit], cwd=ROOT)
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        dist.unpack(files, tree)
    program = tree / "lab" / "mutation"
    shutil.rmtree(program, ignore_errors=True)
    shutil.copytree(Path(__file__).parent, program)
    marker.write_text(commit, encoding="ascii")


def make_template(server: EmbeddedPostgres, tree: Path, environment: dict[str, str]) -> None:
    from lab.databases import connect
    from lab.databases import run as run_on_loop

    async def create() -> None:
        connection = await connect(server.url)
        await connection.execute(f'CREATE DATABASE "{TEMPLATE}"')
        await connection.close()

    run_on_loop(create())
    command = [sys.executable, "-c", MIGRATE, server.url_of(TEMPLATE)]
    subprocess.run(command, cwd=tree, env=environment, check=True)


def run_session(folder: Path, tree: Path, environment: dict[str, str]) -> None:
    folders = [f"tests/{name}" for name in TESTS if (tree / "tests" / name).exists()]
    ignored = [f"--ignore=tests/unit/{name}" for name in UNRELATED]
    command = [
        *(sys.executable, "-m", "pytest", "-q", "-p", "lab.mutation.session"),
        *("-p", "no:cacheprovider", "--basetemp", str(folder / "tmp")),
        *ignored,
        *folders,
    ]
    with (folder / "pytest.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=tree, env=environment, stdout=log)
    try:
        process.wait()
    finally:
        process.terminate()
        process.wait()


def show(results: Results) -> None:
    """Print the figures, then the faults that no test saw."""
    print(f"commit {results.commit}, seed {results.seed}, {results.test_files} files of tests")
    print(f"mutants  {results.judged} of {results.sites}, gone {len(results.with_status(GONE))}")
    print(f"killed   {results.killed} ({results.share_killed:.1%}), of them by time ", end="")
    print(len(results.with_status(TIMEOUT)))
    print(f"survived {len(results.with_status(SURVIVED))}", end="")
    print(f", run by no test {len(results.with_status(UNTESTED))}")
    print(f"controls {dict(Counter(control.split()[0] for control in results.controls))}")
    for name, key in (("package", package_of), ("operator", operator_of)):
        print(f"\n{name:32} mutants  killed")
        keys = Counter(key(verdict) for verdict in results.verdicts if verdict.status != GONE)
        missed = Counter(key(verdict) for verdict in results.with_status(SURVIVED, UNTESTED))
        for value, number in sorted(keys.items()):
            print(f"{value:32} {number:7}  {1 - missed[value] / number:6.1%}")
    print()
    for verdict in results.with_status(SURVIVED, UNTESTED):
        mutant = verdict.mutant
        cut = ", more run it" if verdict.covering > verdict.tests else ""
        print(
            f"{verdict.status:8} {mutant.path}:{mutant.line} {mutant.function} "
            f"[{mutant.operator}] {one_line(mutant.original)} -> {one_line(mutant.replacement)} "
            f"({verdict.tests} tests{cut})"
        )


def package_of(verdict: Verdict) -> str:
    return next(package for package in PACKAGES if verdict.mutant.path.startswith(package))


def operator_of(verdict: Verdict) -> str:
    return verdict.mutant.operator


def one_line(text: str) -> str:
    return " ".join(text.split())


if __name__ == "__main__":
    clean_up_when_ended()
    sys.exit(main())
