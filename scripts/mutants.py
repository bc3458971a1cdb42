"""Measure how many small errors in the code the tests notice.

    python scripts/mutants.py contrast_core/rows contrast_core/moments --number 60 --seed 0

The script draws mutations at random from the given files and folders. A mutation changes an
operator, a comparison, a constant, an axis or a sign, swaps minimum and maximum, or removes a
statement. The script applies one mutation at a time to a copy of the project, and runs the tests
that execute the mutated line. It prints the share of mutations that make a test fail, and lists the
mutations that survive. `mutants.toml` lists mutations that no test needs to notice, with the
reason. They are not counted. The exit status is 1 if the share is below `--least`.

The script measures once, with coverage contexts, which tests execute a line, and keeps the result
in `--coverage`. Coverage cannot trace the machine code of numba. If no test seems to execute a
line, the script therefore runs all tests that execute any line of the same file. The script needs
the extra `test`, and a system that can fork processes.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

import coverage
import pytest

ROOT = Path(__file__).resolve().parents[1]
KNOWN = Path(__file__).with_name("mutants.toml")
QUIET = ("-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", "-p", "no:napari")
OPERATORS = {
    **{ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/"), ast.Div: ("/", "*")},
    **{ast.FloorDiv: ("//", "/"), ast.Pow: ("**", "*"), ast.Mod: ("%", "//")},
    **{ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">")},
    **{ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.Is: ("is", "is not")},
    **{ast.And: ("and", "or"), ast.Or: ("or", "and")},
}
SWAPS = {"min": "max", "minimum": "maximum", "argmin": "argmax", "fmin": "fmax", "any": "all"}
SWAPS |= {there: here for here, there in SWAPS.items()}


class Mutation(NamedTuple):
    """Replacement of the bytes of a file from `start` to `stop`."""

    path: Path
    line: int
    start: int
    stop: int
    new: str
    code: str  # the original line
    changed: str  # the mutated line

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.code}  ->  {self.changed}"

    def applied(self, source: bytes) -> bytes:
        return source[: self.start] + self.new.encode() + source[self.stop :]


def mutations(path: Path, root: Path = ROOT) -> list[Mutation]:
    """Return all mutations of a file."""
    source = (root / path).read_bytes()
    lines = source.splitlines(keepends=True)
    begins = [sum(map(len, lines[:number])) for number in range(len(lines) + 1)]

    def first(node: ast.expr | ast.stmt) -> int:
        return begins[node.lineno - 1] + node.col_offset

    def last(node: ast.expr | ast.stmt) -> int:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return begins[node.end_lineno - 1] + node.end_col_offset

    def between(left: ast.expr, operator: ast.AST, right: ast.expr) -> tuple[int, int, str] | None:
        if type(operator) not in OPERATORS:
            return None
        old, new = OPERATORS[type(operator)]
        at = source.find(old.encode(), last(left), first(right))
        return None if at < 0 else (at, at + len(old), new)

    def changes(node: ast.AST) -> Iterator[tuple[int, int, str] | None]:
        match node:
            case ast.BinOp(left=left, op=op, right=right):
                yield between(left, op, right)
            case ast.BoolOp(op=op, values=[left, right, *_]):
                yield between(left, op, right)
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                yield between(left, op, right)
            case ast.Constant(value=int(value)) if not isinstance(value, bool):
                yield first(node), last(node), str(value + 1)
                yield first(node), last(node), f"({value - 1})"
            case ast.UnaryOp(op=ast.USub()):
                yield first(node), first(node) + len("-"), "+"
            case ast.UnaryOp(op=ast.Not()):
                yield first(node), first(node) + len("not"), "not not"
            case ast.Call(func=ast.Name(id=name) as function) if name in SWAPS:
                yield first(function), last(function), SWAPS[name]
            case ast.Call(func=ast.Attribute(attr=name) as function) if name in SWAPS:
                yield last(function) - len(name), last(function), SWAPS[name]
            case ast.keyword(arg="axis", value=ast.Constant(value=int(value)) as axis):
                yield first(axis), last(axis), "0" if value else "1"
            case ast.AugAssign() | ast.Expr(value=ast.Call()):
                yield first(node), last(node), "pass"

    found = []
    for node in _executed(ast.parse(source)):
        for change in changes(node):
            if change is not None:
                start, stop, new = change
                line = source.count(b"\n", 0, start) + 1
                begin, end = begins[line - 1], max(begins[line], stop)
                changed = source[begin:start] + new.encode() + source[stop:end]
                texts = (lines[line - 1].decode().strip(), changed.decode().strip())
                found.append(Mutation(path, line, start, stop, new, *texts))
    return found


def _executed(node: ast.AST) -> Iterator[ast.AST]:
    """Yield nodes except annotations, decorators, f-strings, assertions, errors and warnings."""
    yield node
    left_out = {"annotation", "returns", "decorator_list", "type_params"}
    for name, value in ast.iter_fields(node):
        if name in left_out:
            continue
        for child in value if isinstance(value, list) else [value]:
            worded = isinstance(child, ast.Raise | ast.JoinedStr | ast.Assert)
            called = getattr(getattr(child, "func", None), "id", "")
            if isinstance(child, ast.AST) and not worded and called not in ("warn", "TypeVar"):
                yield from _executed(child)


def measured(data_file: Path, packages: list[Path], tests: list[str]) -> coverage.CoverageData:
    """Return the tests that execute each line, read from `data_file` if this file exists."""
    if not data_file.exists():
        print("mutants: measuring which tests execute which line", file=sys.stderr)
        folders = [path if path.is_dir() else path.parent for path in packages]
        options = [f"--cov={folder}" for folder in folders]
        options += ["--cov-context=test", "--cov-report=", "-m", "not slow", *QUIET, *tests]
        environment = os.environ | {"COVERAGE_FILE": str(data_file), "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "pytest", *options]
        done = subprocess.run(command, cwd=ROOT, env=environment, stdout=sys.stderr, check=False)
        if done.returncode:
            raise SystemExit("mutants: the tests fail on the code as it is")
    data = coverage.CoverageData(str(data_file))
    data.read()
    return data


class Chooser:
    """Function that returns the tests to run for a mutation, starting with the smallest tests.

    The size of a test is the number of lines that it executes. The second case of a parametrised
    test comes after the first cases of all tests, because it seldom notices more than the first.
    """

    def __init__(self, data: coverage.CoverageData, most: int) -> None:
        self.most = most
        self.contexts = {
            str(Path(path).resolve().relative_to(ROOT)): data.contexts_by_lineno(path)
            for path in data.measured_files()
        }
        self.size = Counter(
            test
            for by_line in self.contexts.values()
            for tests in by_line.values()
            for test in tests
        )

    def __call__(self, mutation: Mutation) -> list[str]:
        by_line = self.contexts.get(str(mutation.path), {})
        found = {test.rpartition("|")[0] for test in by_line.get(mutation.line, ()) if test}
        if not found:
            found = {
                test.rpartition("|")[0] for tests in by_line.values() for test in tests if test
            }
        cases: Counter[str] = Counter()
        order = []
        for test in sorted(found, key=lambda test: (self.size[f"{test}|run"], test)):
            cases[test.partition("[")[0]] += 1
            order.append((cases[test.partition("[")[0]], test))
        return [test for _, test in sorted(order, key=itemgetter(0))][: self.most]


def outcome(root: Path, tests: list[str], seconds: float) -> str:
    """Run the tests in a new process, and return "survived", "caught" or "timed out"."""
    child = os.fork()
    if child == 0:
        os.chdir(root)
        sys.path.insert(0, str(root))
        os.environ["PYTHONPATH"] = str(root)  # tests start processes that import the mutated code
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        try:
            os._exit(int(pytest.main([*QUIET, *tests])))
        finally:
            os._exit(1)
    os.setpgid(child, child)
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                return "caught" if status else "survived"
            time.sleep(0.02)
        return "timed out"
    finally:
        # End the child, and also what its tests have started, such as a display.
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        with suppress(ChildProcessError):  # if it was waited for above
            os.waitpid(child, 0)


def equivalent(mutation: Mutation) -> str:
    """Return the reason why no test needs to notice a mutation, or "" if none is known."""
    known = tomllib.loads(KNOWN.read_text(encoding="utf-8")).get("equivalent", [])
    for one in known:
        change = (str(mutation.path), mutation.code, mutation.changed)
        if change == (one["file"], one["code"], one["changed"]):
            return str(one["reason"])
    return ""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("packages", nargs="+", type=Path, help="files and folders to mutate")
    parser.add_argument("--number", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tests", nargs="*", default=["tests"])
    parser.add_argument(
        "--most", type=int, default=200, help="largest number of tests to run for a mutation"
    )
    parser.add_argument(
        "--seconds", type=float, default=300.0, help="time limit for the tests of a mutation"
    )
    parser.add_argument(
        "--coverage", type=Path, help="file that says which tests execute each line"
    )
    parser.add_argument(
        "--least",
        type=float,
        default=0.92,
        help="smallest share of noticed mutations at which the exit status is 0",
    )
    given = parser.parse_args(arguments)
    files = [
        path.resolve().relative_to(ROOT)
        for each in given.packages
        for path in (sorted(each.rglob("*.py")) if each.is_dir() else [each])
    ]
    every = [mutation for path in files for mutation in mutations(path)]
    drawn = random.Random(given.seed).sample(every, min(given.number, len(every)))
    with tempfile.TemporaryDirectory() as folder:
        data = measured(given.coverage or Path(folder) / "coverage", given.packages, given.tests)
        choose = Chooser(data, given.most)
        copy = Path(folder) / "project"
        ignored = shutil.ignore_patterns(".git", ".venv", "__pycache__", "_build", ".mypy_cache")
        shutil.copytree(ROOT, copy, ignore=ignored)
        states: Counter[str] = Counter()
        listed: dict[str, list[str]] = {"survived": [], "timed out": [], "same": []}
        sample = {test for mutation in drawn for test in choose(mutation)[:1]}
        if sample and outcome(copy, sorted(sample), 10 * given.seconds) != "survived":
            raise SystemExit("mutants: some of the tests to run fail even without a mutation")
        for number, mutation in enumerate(sorted(drawn), 1):
            source = (copy / mutation.path).read_bytes()
            tests = choose(mutation)
            reason = equivalent(mutation)
            state = "same" if reason else "survived"
            if tests and not reason:
                (copy / mutation.path).write_bytes(mutation.applied(source))
                state = outcome(copy, tests, given.seconds)
                (copy / mutation.path).write_bytes(source)
            states[state] += 1
            if state in listed:
                listed[state].append(f"{mutation}  ({reason or f'{len(tests)} tests'})")
            print(f"{number}/{len(drawn)} {state} {mutation}", file=sys.stderr, flush=True)
    counted = len(drawn) - states["same"]
    caught = states["caught"] + states["timed out"]  # a test that never ends is noticed too
    print(f"{caught} of {counted} mutations caught ({caught / max(counted, 1):.0%})")
    titles = ("Survivors", "Caught by the time limit, or slow", "Change no result")
    for title, lines in zip(titles, listed.values(), strict=True):
        if lines:
            print(f"{title}:", *lines, sep="\n  ")
    return int(caught < given.least * counted)


if __name__ == "__main__":
    # Python would otherwise use the old bytecode of a mutated file if its time and length are
    # unchanged.
    sys.dont_write_bytecode = True
    sys.exit(main())
