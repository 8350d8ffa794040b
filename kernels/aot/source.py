"""Source files of a row with everything of this folder that they import or include, and the cache key made of them.

Equal key = equal bytes of every file that can change the code, equal row, equal tools. Python's own packages count
as tools and are pinned by `requirements.txt`.
"""

import ast
import hashlib
import json
import re
from functools import lru_cache
from pathlib import Path

from .manifest import ROOT

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


def _python_imports(path):
    """Files of this folder that a Python source names in its imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module] if node.module else []
            names += [f"{node.module}.{alias.name}" if node.module else alias.name for alias in node.names]
        for name in names:
            relative = Path(*name.split("."))
            for base in (ROOT, path.parent):
                candidates = [base / relative.with_suffix(".py"), base / relative / "__init__.py"]
                found.update(candidate for candidate in candidates if candidate.is_file())
    return found


def _includes(path):
    places = ((base / name).resolve() for name in INCLUDE.findall(path.read_text()) for base in (path.parent, ROOT))
    return {place for place in places if place.is_file()}


@lru_cache(maxsize=None)
def closure(path):
    """The file and all it draws in, sorted."""
    seen, waiting = set(), [path]
    while waiting:
        current = waiting.pop()
        if current not in seen:
            seen.add(current)
            waiting += _python_imports(current) if current.suffix == ".py" else _includes(current)
    return tuple(sorted(seen))


@lru_cache(maxsize=None)
def digest(path):
    """SHA-256 over the closure's names and bytes."""
    whole = hashlib.sha256()
    for file in closure(path):
        content = file.read_bytes()
        whole.update(f"{file.relative_to(ROOT)}\0{len(content)}\0".encode())
        whole.update(content)
    return whole.hexdigest()


def key(instance, target, tools):
    """Names the compiled file in the cache."""
    row = instance.row
    facts = {
        "kind": row.kind, "function": row.function, "args": [argument.text() for argument in row.args],
        "constexprs": instance.constexprs, "options": instance.options, "threads": row.threads, "shared": row.shared,
        "source": digest(row.source), "target": target, "tools": tools,
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
