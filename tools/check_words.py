"""Plain words in the packages of `ENABLED`: names, first words of docstrings, lengths of sentences.

Must not offer a way to silence a finding: the text changes, or the package is not enabled yet.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Packages, files and folders of protos that hold the rules. Paths are only added, never removed.
ENABLED = (
    "estimator",
    "federation/bridge",
    "federation/capacity",
    "federation/cli",
    "federation/failover",
    "federation/history",
    "federation/model",
    "federation/operations",
    "federation/plans",
    "federation/scheduler",
    "federation/services",
    "federation/simulation",
    "federation/store/decision_tables.py",
    "federation/store/document_rows.py",
    "federation/store/journal_tables.py",
    "federation/store/lists.py",
    "federation/store/plan_rows.py",
    "federation/store/plan_tables.py",
    "federation/store/plans.py",
    "federation/store/readable_rows.py",
    "federation/store/statements.py",
    "lab/count_tests.py",
    "lab/filled_databases.py",
    "lab/fuzz/requests.py",
    "lab/lock_orders.py",
    "lab/statement_tours.py",
    "migrations",
    "proto/federation",
    "tests/api/test_limits.py",
    "tests/api/test_newer_bindings.py",
    "tests/api/test_offered_capacity.py",
    "tests/architecture/test_reasons.py",
    "tests/architecture/test_words.py",
    "tests/contract/store/test_reading_by_hand.py",
    "tests/contract/store/test_rows_of_before.py",
    "tests/contract/store/test_statement_plans.py",
    "tests/contract/store/test_statements.py",
    "tests/forked_workers.py",
    "tests/properties/test_failover.py",
    "tests/properties/test_growth.py",
    "tests/properties/test_moved_groups.py",
    "tests/properties/test_promise_sums.py",
    "tests/properties/test_replica_fleet.py",
    "tests/properties/test_what_rooms_remember.py",
    "tests/rows",
    "tests/unit/capacity/test_filled_nodes.py",
    "tests/unit/capacity/test_merged_parts.py",
    "tests/unit/cli/test_apply.py",
    "tests/unit/cli/test_events.py",
    "tests/unit/cli/test_kinds.py",
    "tests/unit/cli/test_kubectl_habits.py",
    "tests/unit/cli/test_labels.py",
    "tests/unit/cli/test_old_names.py",
    "tests/unit/failover",
    "tests/unit/history",
    "tests/unit/model/test_reasons.py",
    "tests/unit/plans",
    "tests/unit/scheduler/test_decide.py",
    "tests/unit/services/failover",
    "tests/unit/services/scheduling/test_earmarks.py",
    "tests/unit/services/watching",
    "tests/unit/simulation",
    "tests/unit/store/test_row_structs.py",
    "tests/unit/store/test_rows_of_before.py",
    "tests/unit/tools/test_forked_workers.py",
    "tools",
)

VAGUE_NAMES = frozenset(
    [
        "each",
        "every",
        "found",
        "known",
        "given",
        "told",
        "asked",
        "wanted",
        "left",
        "kept",
        "made",
        "here",
        "there",
        "more",
        "most",
        "others",
        "before",
    ]
)
VAGUE_PREFIXES = ("MOST_", "LEAST_")
FIRST_WORDS = frozenset(
    [
        "What",
        "Who",
        "Whoever",
        "Whose",
        "Those",
        "Such",
        "So",
        "Of",
        "Where",
        "As",
        "Nobody",
        "None",
    ]
)
MAX_SENTENCE_WORDS = 30

CODE = re.compile(r"``.+?``|`.+?`|\"\"\"|https?://\S+", re.DOTALL)
SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]]*\s+(?=[\"'(`A-Z0-9])")
WORD = re.compile(r"[^\W_]")
LIST_ITEM = re.compile(r"\s*(?:[-*]|\d+[.)])\s+")
DIRECTIVE = re.compile(r"#\s*(?:noqa|type:|ruff:|pragma:|!|-\*-)|.*buf:lint")


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """A docstring or a block of comments, and the line where it begins."""

    line: int
    content: str
    is_docstring: bool


def violations(path: Path, source: str) -> Iterator[str]:
    """Yield a line of text for each finding in one Python or proto file."""
    findings: list[tuple[int, str]] = []
    if path.suffix == ".proto":
        texts = list(proto_comments(source))
    else:
        tree = ast.parse(source)
        texts = [*docstrings(tree), *comments(source)]
        findings.extend(vague_names(tree))
    for text in texts:
        findings.extend(text_findings(text))
    for line, finding in sorted(findings):
        yield f"{path}:{line}: {finding}"


def vague_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield vague names of locals and parameters, and constants that say MOST_ or LEAST_."""
    functions = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    ]
    bindings = {
        (line, name) for function in functions for line, name in function_bindings(function)
    }
    # A comprehension of a module or a class has locals, too.
    for node in ast.walk(tree):
        if isinstance(node, ast.comprehension):
            bindings |= set(target_names(node.target))
    for line, name in sorted(bindings):
        if name in VAGUE_NAMES:
            yield line, f"'{name}' does not say what it holds"
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) if name.startswith(VAGUE_PREFIXES):
                yield node.lineno, f"'{name}' is called MAX_… or MIN_… here"


def function_bindings(
    function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda,
) -> Iterator[tuple[int, str]]:
    """Yield the parameters of a function and all names that its body binds."""
    arguments = function.args
    for parameter in (
        *arguments.posonlyargs,
        *arguments.args,
        *arguments.kwonlyargs,
        *filter(None, (arguments.vararg, arguments.kwarg)),
    ):
        yield parameter.lineno, parameter.arg
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            yield node.lineno, node.name


def target_names(target: ast.expr) -> Iterator[tuple[int, str]]:
    for node in ast.walk(target):
        if isinstance(node, ast.Name):
            yield node.lineno, node.id


def docstrings(tree: ast.Module) -> Iterator[Passage]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        content = ast.get_docstring(node, clean=True)
        if content is not None:
            yield Passage(line=node.body[0].lineno, content=content, is_docstring=True)


def comments(source: str) -> Iterator[Passage]:
    """Yield the comments of a Python file; neighbouring lines of one column are one text."""
    yield from joined(
        (*token.start, token.string.lstrip("#").strip())
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT and not DIRECTIVE.match(token.string)
    )


def proto_comments(source: str) -> Iterator[Passage]:
    """Yield the comments of a proto file as texts whose first word counts, as in docstrings."""
    lines = [
        (number, match.start(), match.group(1).strip())
        for number, line in enumerate(source.splitlines(), 1)
        if (match := re.search(r"(?<![:\"])//(.*)$", line)) and not DIRECTIVE.match(line)
    ]
    for text in joined(lines):
        yield Passage(line=text.line, content=text.content, is_docstring=True)


def joined(lines: Iterable[tuple[int, int, str]]) -> Iterator[Passage]:
    block: list[str] = []
    first_line, last = 0, (-1, -1)
    for line, column, content in lines:
        if block and (line, column) != (last[0] + 1, last[1]):
            yield Passage(line=first_line, content="\n".join(block), is_docstring=False)
            block = []
        if not block:
            first_line = line
        block.append(content)
        last = (line, column)
    if block:
        yield Passage(line=first_line, content="\n".join(block), is_docstring=False)


def text_findings(text: Passage) -> Iterator[tuple[int, str]]:
    first = re.match(r"[\w']+", text.content)
    if text.is_docstring and first and first.group() in FIRST_WORDS:
        yield text.line, f"begins with '{first.group()}': a noun or a verb comes first"
    for sentence in sentences(text.content):
        count = word_count(sentence)
        if count > MAX_SENTENCE_WORDS:
            beginning = " ".join(sentence.split()[:6])
            yield text.line, f"{count} words, at most {MAX_SENTENCE_WORDS}: '{beginning} …'"


def sentences(content: str) -> Iterator[str]:
    """Yield the sentences of a text; drawings, tables and examples of code are none."""
    for paragraph in paragraphs(content):
        shortened = CODE.sub(lambda match: "Code" if match.group()[0] in "`h" else "", paragraph)
        yield from SENTENCE_END.split(shortened)


def paragraphs(content: str) -> Iterator[str]:
    lines: list[str] = []
    for line in [*content.splitlines(), ""]:
        is_prose = line.strip() and not line.startswith("    ") and "|" not in line
        if not is_prose or LIST_ITEM.match(line):
            if lines:
                yield " ".join(lines)
            lines = []
        if is_prose:
            lines.append(LIST_ITEM.sub("", line, count=1).strip())


def word_count(sentence: str) -> int:
    return sum(1 for word in sentence.split() if WORD.search(word))


def enabled_files(root: Path) -> Iterator[Path]:
    for place in ENABLED:
        path = root / place
        if not path.exists():
            raise SystemExit(f"tools/check_words.py enables {place}, which is not there")
        files = [path] if path.is_file() else [*path.rglob("*.py"), *path.rglob("*.proto")]
        for file in sorted(files):
            yield file.relative_to(root)


def main() -> int:
    """Print the findings in all enabled files; return 1 where there is one, else 0."""
    findings = [
        finding
        for path in dict.fromkeys(enabled_files(ROOT))
        for finding in violations(path, (ROOT / path).read_text(encoding="utf-8"))
    ]
    print("\n".join(findings))
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
