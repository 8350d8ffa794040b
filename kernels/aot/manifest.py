"""Reads `manifest.toml`, refuses what it does not know, and expands rows into instances.

An instance is one compiled function: a row, one set of resolved constexprs and options, and the shapes that need it.
What each instance costs to compile or whether it may be compiled at all is not decided here.
"""

import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

POINTEES = {"bf16": 2, "f16": 2, "f32": 4, "fp8e4nv": 1, "u8": 1, "i8": 1, "i16": 2, "i32": 4, "i64": 8, "u32": 4, "u64": 8}
SCALARS = {"i32", "i64", "u32", "u64", "f32"}
MAP_ELEMENTS = {"bf16", "f32", "u8", "fp8e4nv"}
OPTIONS = {"num_warps": 4, "num_stages": 3, "launch_pdl": False, "maxnreg": None}
ROW_KEYS = {
    "name", "kind", "source", "function", "targets", "args", "constexprs", "shapes", "variants", "expect", "spills",
    "max_shared", "max_registers", "threads", "shared", *OPTIONS,
}
REQUIRED = ["name", "source", "function", "targets", "args", "shapes"]
TARGETS = ["sm90"]
NAME = re.compile(r"[a-z][a-z0-9_]*\Z")
ARGUMENT = re.compile(r"(?P<name>[A-Za-z_]\w*): (?P<type>\*?\w+|tensor<\w+>\[[^\]]+\])(?P<rest>( @\d+| null)*)\Z")
TENSOR = re.compile(r"tensor<(\w+)>\[(\w+), (\w+)\]\Z")


class ManifestError(Exception):
    """A row that cannot be meant; the sentence names it."""


@dataclass(frozen=True)
class Argument:
    """One parameter in launch order. `multiple` = what value (or address) must divide by; 1 = anything."""

    name: str
    type: str
    multiple: int
    nullable: bool

    def text(self):
        return f"{self.name}: {self.type}" + (f" @{self.multiple}" if self.multiple > 1 else "") + (" null" if self.nullable else "")


@dataclass
class Row:
    """One `[[kernel]]`, checked."""

    name: str
    kind: str
    source: Path
    function: str
    targets: list
    args: list
    constexprs: dict
    shapes: list
    variants: list
    options: dict
    promises: dict
    threads: int
    shared: int


@dataclass
class Instance:
    """One function to compile. `shapes` are names of shapes, `variant` an index into the row's variants."""

    row: Row
    variant: int
    constexprs: dict
    options: dict
    shapes: list = field(default_factory=list)

    def title(self):
        settings = {**self.constexprs, **{key: value for key, value in self.options.items() if value}}
        return f"{self.row.name}[" + ", ".join(f"{key}={value}" for key, value in settings.items()) + "]"


def parse_argument(row, text):
    found = ARGUMENT.match(text)
    if not found:
        raise ManifestError(f"kernel {row}: argument `{text}` is not `name: type [@multiple] [null]`")
    kind, rest = found["type"], found["rest"]
    multiple = max([1, *map(int, re.findall(r"@(\d+)", rest))])
    tensor = TENSOR.match(kind)
    known = kind in SCALARS or (kind[0] == "*" and kind[1:] in POINTEES) or (tensor and tensor[1] in MAP_ELEMENTS)
    if not known:
        raise ManifestError(
            f"kernel {row}: argument `{text}` has type {kind}; there are {', '.join(sorted(SCALARS))},"
            f" * of {', '.join(POINTEES)}, and tensor<{'|'.join(sorted(MAP_ELEMENTS))}>[ROWS, COLUMNS]"
        )
    nullable = " null" in rest
    if nullable and kind[0] != "*":
        raise ManifestError(f"kernel {row}: argument `{text}` is no pointer, so it cannot be null")
    if multiple & (multiple - 1) or (kind == "f32" and multiple > 1):
        raise ManifestError(f"kernel {row}: argument `{text}`: a multiple is a power of two, and not for f32")
    if kind[0] == "*":
        multiple = max(multiple, POINTEES[kind[1:]])
    return Argument(found["name"], kind, multiple, nullable)


def _parse_row(raw, sets):
    name = raw.get("name", "(no name)")
    unknown = set(raw) - ROW_KEYS
    if unknown:
        raise ManifestError(f"kernel {name}: unknown key {sorted(unknown)[0]}; there are {', '.join(sorted(ROW_KEYS))}")
    missing = [key for key in REQUIRED if key not in raw]
    if missing:
        raise ManifestError(f"kernel {name}: {missing[0]} is missing")
    if not NAME.match(name):
        raise ManifestError(f"kernel {name}: a name is lower-case letters, digits and _")
    kind = raw.get("kind", "triton")
    if kind not in ("triton", "cuda"):
        raise ManifestError(f"kernel {name}: kind is {kind}; there are triton and cuda")
    if kind == "cuda" and "threads" not in raw:
        raise ManifestError(f"kernel {name}: a cuda row says its threads")
    for key, known in (("shapes", sets), ("targets", TARGETS)):
        for item in raw[key]:
            if item not in known:
                raise ManifestError(f"kernel {name}: {key} names {item}; there are {', '.join(known)}")
    args = [parse_argument(name, text) for text in raw["args"]]
    names = [argument.name for argument in args] + list(raw.get("constexprs", {}))
    twice = [item for item in names if names.count(item) > 1]
    if twice:
        raise ManifestError(f"kernel {name}: {twice[0]} is there twice")
    source = ROOT / raw["source"]
    if not source.is_file():
        raise ManifestError(f"kernel {name}: source {raw['source']} does not exist")
    promises = {key: raw[key] for key in ("expect", "spills", "max_shared", "max_registers") if key in raw}
    options = {key: raw.get(key, default) for key, default in OPTIONS.items()}
    return Row(
        name, kind, source, raw["function"], raw["targets"], args, raw.get("constexprs", {}), raw["shapes"],
        raw.get("variants", [{}]), options, promises, raw.get("threads", 0), raw.get("shared", 0),
    )


def load(path=ROOT / "manifest.toml"):
    """Rows in the file's order, and shapes as {name: (set, dims)}."""
    raw = tomllib.loads(Path(path).read_text())
    shapes = {}
    for shape in raw.get("shape", []):
        dims = {key: value for key, value in shape.items() if key not in ("set", "name")}
        if shape["name"] in shapes:
            raise ManifestError(f"shape {shape['name']} is there twice")
        shapes[shape["name"]] = (shape["set"], dims)
    names = {frozenset(dims) for _, dims in shapes.values()}
    if len(names) > 1:
        odd = sorted(frozenset.union(*names) - frozenset.intersection(*names))
        raise ManifestError(f"shapes must all say the same dims; {odd[0]} is not in every one")
    sets = sorted({belongs for belongs, _ in shapes.values()})
    rows = [_parse_row(row, sets) for row in raw.get("kernel", [])]
    names = [row.name for row in rows]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ManifestError(f"kernel {twice[0]} is there twice")
    return rows, shapes


def _resolve(row, values, shape, dims):
    resolved = {}
    for key, value in values.items():
        if isinstance(value, str) and value.startswith("$"):
            if value[1:] not in dims:
                raise ManifestError(
                    f"kernel {row.name}: {key} wants {value}, which shape {shape} does not have; it has {', '.join(dims)}"
                )
            value = dims[value[1:]]
        resolved[key] = value
    return resolved


def expand(rows, shapes, target):
    """Every instance that this target needs, each once however many shapes share it."""
    instances = {}
    for row in rows:
        if target not in row.targets:
            continue
        for shape, (belongs, dims) in shapes.items():
            if belongs not in row.shapes:
                continue
            for index, variant in enumerate(row.variants):
                settings = {key: value for key, value in variant.items() if key in OPTIONS}
                values = {key: value for key, value in variant.items() if key not in OPTIONS and key != "name"}
                constexprs = _resolve(row, {**row.constexprs, **values}, shape, dims)
                key = (row.name, index, tuple(constexprs.items()))
                if key not in instances:
                    instances[key] = Instance(row, index, constexprs, {**row.options, **settings})
                instances[key].shapes.append(shape)
    return list(instances.values())
