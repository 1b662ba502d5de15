"""A fault put into a running program: the code of its functions is replaced.

Must not import anything anew: objects that exist keep their identity.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from types import CodeType, FunctionType

Place = tuple[str, int]


class NotPatched(Exception):
    """No function of this process has the code that is to be replaced."""


def codes_in(code: CodeType) -> Iterator[CodeType]:
    """Yield the code of all functions that a code object contains, itself included."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes_in(constant)


def functions_of(source: bytes, path: str) -> dict[Place, CodeType]:
    """Return the code of each function in a source, by qualified name and first line."""
    module = compile(source, path, "exec", dont_inherit=True)
    return {(code.co_qualname, code.co_firstlineno): code for code in codes_in(module)}


def outermost(function: str) -> str:
    """Return the qualified name of the function that contains all others of a dotted name."""
    return function.partition(".<locals>")[0]


def patch(source: bytes, path: str, function: str, line: int) -> None:
    """Give functions of this process the code that they have in another source of their file.

    `line` is the line of the fault: of functions with one name the nearest one above is meant.
    Raises NotPatched.
    """
    name = outermost(function)
    codes = functions_of(source, path)
    begins = [first for qualname, first in codes if qualname == name and first <= line]
    if not begins:
        raise NotPatched(f"{path}: no function {name} above line {line}")
    inside = {
        (code.co_qualname, code.co_firstlineno): code for code in codes_in(codes[name, max(begins)])
    }
    patched = 0
    # Programs freeze what they have imported, and frozen objects are not listed.
    gc.unfreeze()
    for living in gc.get_objects():
        if not isinstance(living, FunctionType) or living.__code__.co_filename != path:
            continue
        code = inside.get((living.__code__.co_qualname, living.__code__.co_firstlineno))
        if code is None:
            continue
        if len(code.co_freevars) != len(living.__code__.co_freevars):
            raise NotPatched(f"{path}: {name} takes other variables of its surroundings")
        living.__code__ = code
        patched += 1
    if not patched:
        raise NotPatched(f"{path}: no function {name} is alive")
