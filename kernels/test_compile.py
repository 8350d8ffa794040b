"""Tests of the compile driver: what a manifest may not say, what a promise catches, what the cache notices.

Rows of these tests are made here, around `selfcheck/scale_add.py`. Run in the pinned environment:
`python kernels/test_compile.py`. No GPU takes part.
"""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from aot import checks, manifest, source

HERE = Path(__file__).resolve().parent
SHAPES = """
[[shape]]
set = "m3"
name = "big"
hidden = 6144
head_dim = 128
[[shape]]
set = "m3"
name = "same heads"
hidden = 3072
head_dim = 128
[[shape]]
set = "nano"
name = "small"
hidden = 64
head_dim = 32
"""
ROW = {
    "name": '"scale_add"', "source": '"selfcheck/scale_add.py"', "function": '"scale_add"', "targets": '["sm90"]',
    "args": '["x: *bf16 @16", "y: *bf16 @16", "out: *bf16 @16", "count: i32", "factor: f32"]',
    "constexprs": "{ BLOCK = 1024 }", "shapes": '["m3", "nano"]',
}


def text(*rows):
    """A manifest of these rows; each is ROW with changes, None removes a key."""
    parts = [SHAPES]
    for row in rows:
        lines = [f"{key} = {value}" for key, value in {**ROW, **row}.items() if value is not None]
        parts.append("[[kernel]]\n" + "\n".join(lines))
    return "\n".join(parts)


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def written(self, *rows):
        path = self.folder / "manifest.toml"
        path.write_text(text(*rows))
        return path


class Manifest(Folder):
    def test_every_impossible_row_is_refused_by_name(self):
        for change, part in [
            ({"colour": '"red"'}, "unknown key colour"),
            ({"function": None}, "function is missing"),
            ({"name": '"Scale"'}, "lower-case letters"),
            ({"kind": '"hip"'}, "kind is hip; there are triton and cuda"),
            ({"kind": '"cuda"'}, "says its threads"),
            ({"shapes": '["m4"]'}, "shapes names m4; there are m3, nano"),
            ({"targets": '["sm91"]'}, "targets names sm91"),
            ({"source": '"selfcheck/none.py"'}, "does not exist"),
            ({"args": '["x"]'}, "is not `name: type"),
            ({"args": '["x: *bf17"]'}, "has type *bf17"),
            ({"args": '["n: i32 @12"]'}, "power of two"),
            ({"args": '["n: i32 null"]'}, "cannot be null"),
            ({"args": '["n: i32", "n: i32"]'}, "n is there twice"),
            ({"constexprs": '{ BLOCK = "$depth" }'}, "BLOCK wants $depth"),
        ]:
            with self.subTest(part), self.assertRaises(manifest.ManifestError) as refused:
                manifest.expand(*manifest.load(self.written(change)), "sm90")
            self.assertIn(part, str(refused.exception))
            self.assertIn("Scale" if "Scale" in str(change) else "scale_add", str(refused.exception))

    def test_same_name_twice_is_refused(self):
        with self.assertRaisesRegex(manifest.ManifestError, "scale_add is there twice"):
            manifest.load(self.written({}, {}))

    def test_each_distinct_set_of_constexprs_is_one_instance(self):
        loaded = manifest.load(self.written({"constexprs": '{ BLOCK = "$head_dim" }'}))
        instances = manifest.expand(*loaded, "sm90")
        found = [(instance.constexprs, instance.shapes) for instance in instances]
        self.assertEqual(found, [({"BLOCK": 128}, ["big", "same heads"]), ({"BLOCK": 32}, ["small"])])

    def test_variants_override_options_and_multiply_shapes(self):
        variants = '[{ name = "a", num_warps = 8 }, { name = "b", BLOCK = 64 }]'
        instances = manifest.expand(*manifest.load(self.written({"variants": variants})), "sm90")
        found = [(i.variant, i.constexprs["BLOCK"], i.options["num_warps"]) for i in instances]
        self.assertEqual(found, [(0, 1024, 8), (1, 64, 4)])

    def test_pointers_are_aligned_to_their_element_at_least(self):
        self.assertEqual(manifest.parse_argument("k", "x: *f32").multiple, 4)
        self.assertEqual(manifest.parse_argument("k", "x: *f32 @16 null"), manifest.Argument("x", "*f32", 16, True))

    def test_committed_manifest_expands(self):
        self.assertTrue(manifest.expand(*manifest.load(), "sm90"))


class Promises(unittest.TestCase):
    FACTS = {
        "shared": 1000, "static_shared": 24, "registers": 100, "threads": 256, "stack": 8, "local": 0,
        "opcodes": {"HGMMA": 4, "FFMA": 9},
    }

    def breaches(self, promises, **facts):
        row = type("Row", (), {"promises": promises})
        return checks.breaches(row, {**self.FACTS, **facts})

    def test_kept_promises_say_nothing(self):
        promises = {"expect": ["wgmma", "!mma", "FFMA"], "spills": 8, "max_shared": 1024, "max_registers": 100}
        self.assertEqual(self.breaches(promises), [])

    def test_each_broken_promise_is_a_sentence(self):
        for promises, facts, part in [
            ({"expect": ["tma"]}, {}, "has no tma instruction"),
            ({"expect": ["!wgmma"]}, {}, "has 4 wgmma instructions; the row forbids them"),
            ({"spills": 0}, {}, "spills 8 bytes a thread; the row promises 0"),
            ({"max_shared": 1023}, {}, "max_shared is 1023, but it needs 1024"),
            ({"max_registers": 99}, {}, "max_registers is 99, but it needs 100"),
            ({}, {"shared": 232448}, "232472 bytes of shared memory; a block may use 232448"),
            ({}, {"threads": 1024}, "1024 threads of 100 registers"),
        ]:
            found = self.breaches(promises, **facts)
            self.assertEqual(len(found), 1, found)
            self.assertIn(part, found[0])


class Compile(Folder):
    def run_driver(self, *rows):
        command = [sys.executable, HERE / "compile.py", "--manifest", self.written(*rows), "--out", self.folder / "out"]
        return subprocess.run([*map(str, command), "--jobs", "2"], capture_output=True, text=True, check=False)

    def test_failures_name_kernel_and_variant(self):
        wrong = self.run_driver(
            {"expect": '["wgmma"]'},
            {"name": '"spilling"', "constexprs": "{ BLOCK = 16384 }", "num_warps": "1", "maxnreg": "40", "spills": "0"},
            {"name": '"renamed"', "args": ROW["args"].replace("factor", "scale")},
            {"name": '"foreign"', "constexprs": "{ BLOCK = 1024, WIDTH = 3 }"},
            {"name": '"uneven"', "constexprs": "{ BLOCK = 1000 }"},
            {"name": '"absent"', "function": '"nothing"'},
        )
        self.assertEqual(wrong.returncode, 1)
        for part in [
            "scale_add[BLOCK=1024, num_warps=4, num_stages=3]: has no wgmma instruction",
            "spilling[BLOCK=16384, num_warps=1, num_stages=3, maxnreg=40]: spills",
            "renamed[BLOCK=1024, num_warps=4, num_stages=3]: CompileError: the row's arguments are (x, y, out, count, scale);",
            "foreign[BLOCK=1024, WIDTH=3, num_warps=4, num_stages=3]: CompileError: scale_add has no parameter WIDTH",
            "uneven[BLOCK=1000, num_warps=4, num_stages=3]:",
            "absent[BLOCK=1024, num_warps=4, num_stages=3]: CompileError: scale_add.py has no @triton.jit function nothing",
        ]:
            self.assertIn(part, wrong.stderr)
        self.assertFalse((self.folder / "out" / "sm90.json").exists(), "a failed build leaves no index")

    def test_second_run_is_cached_and_equal(self):
        first = self.run_driver({})
        self.assertIn("1 instances, 0 cached", first.stdout, first.stderr)
        cubin = next((self.folder / "out").glob("cache/sm90/*.cubin"))
        before = cubin.read_bytes()
        self.assertIn("1 instances, 1 cached", self.run_driver({}).stdout)
        cubin.with_suffix(".json").unlink()
        self.assertIn("1 instances, 0 cached", self.run_driver({}).stdout)
        self.assertEqual(cubin.read_bytes(), before, "the same input makes the same bytes")


class Cache(unittest.TestCase):
    def test_imports_and_row_are_part_of_the_key(self):
        files = {path.name for path in source.closure(HERE / "compile.py")}
        self.assertTrue({"compile.py", "manifest.py", "tools.py"} <= files, files)
        rows, shapes = manifest.load()
        instance = next(i for i in manifest.expand(rows, shapes, "sm90") if i.row.name == "scale_add")
        key = source.key(instance, "sm90", {"triton": "3.9.0"})
        self.assertNotEqual(key, source.key(instance, "sm90", {"triton": "3.9.1"}))
        instance.constexprs = {"BLOCK": 512}
        self.assertNotEqual(key, source.key(instance, "sm90", {"triton": "3.9.0"}))


if __name__ == "__main__":
    unittest.main()
