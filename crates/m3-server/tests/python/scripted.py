"""`m3 serve` with a model whose answer is known: the scripted backend behind the bundled tokenizer and template.

    with scripted("<mm:think>hm</mm:think>Hello.") as base: ...

Clients can then be held to exact content. Needs `M3_BINARY`, the program under test with the plugins beside it; the
bundled model is found from this file. It is no model of how fast or how well anything answers.
"""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

BUNDLED = pathlib.Path(__file__).resolve().parents[4] / "tests" / "data" / "random" / "m3-nano"
NAME = "scripted"
# Ends a turn in the bundled vocabulary.
END_OF_TURN = 980
NAMESPACE = "]<]minimax[>["


def call(tool, /, **arguments):
    """One tool call in the model's own markup; values are given as the text that the model writes."""
    fields = "".join(f"{NAMESPACE}<{key}>{value}{NAMESPACE}</{key}>" for key, value in arguments.items())
    return f'{NAMESPACE}<invoke name="{tool}">{fields}{NAMESPACE}</invoke>\n'


def calls(*invokes):
    return f"{NAMESPACE}<tool_call>\n{''.join(invokes)}{NAMESPACE}</tool_call>"


def token_ids(text):
    command = [os.environ["M3_BINARY"], "tokenize", str(BUNDLED), "--text", text]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["tokens"]


def model_folder(folder, text, **more):
    """The bundled model with a script in its config; its other files are linked, not copied."""
    for path in BUNDLED.iterdir():
        if path.name != "config.json":
            (folder / path.name).symlink_to(path)
    config = json.loads((BUNDLED / "config.json").read_text())
    config["m3_null"] = {"script": token_ids(text), "eos": END_OF_TURN} | more
    (folder / "config.json").write_text(json.dumps(config))


def wait_ready(server, base):
    """Ready, or an error when the program has ended or 120 s are over."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        assert server.poll() is None, f"the server ended with {server.returncode}"
        try:
            urllib.request.urlopen(f"{base}/ready").close()
            return
        except urllib.error.HTTPError:
            time.sleep(0.05)
    raise AssertionError("the server was not ready after 120 s")


@contextlib.contextmanager
def scripted(text, *flags, **more):
    """A ready server that says `text` to everything; its address without `/v1`. `more` goes to the backend."""
    with tempfile.TemporaryDirectory() as folder:
        model_folder(pathlib.Path(folder), text, **more)
        fixed = ["serve", folder, "--backend", "null", "--port", "0", "--served-model-name", NAME]
        with subprocess.Popen(
            [os.environ["M3_BINARY"], *fixed, *flags], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=sys.stderr if os.environ.get("M3_SERVER_LOG") else subprocess.DEVNULL, text=True,
        ) as server:
            try:
                base = next(word for line in server.stdout for word in line.split() if word.startswith("http://"))
                wait_ready(server, base)
                yield base
            finally:
                server.kill()


def metric(base, name, label=""):
    text = urllib.request.urlopen(f"{base}/metrics").read().decode()
    for line in text.splitlines():
        if line.startswith(name) and label in line:
            return float(line.rsplit(" ", 1)[1])
    raise AssertionError(f"no metric {name} {label}")


def assert_idle(base, seconds=30):
    """Nothing runs, waits or holds a page: what was closed early was aborted."""
    deadline = time.monotonic() + seconds
    while metric(base, "m3_requests_running") + metric(base, "m3_requests_waiting") + metric(base, "m3_pages{", '"leased"'):
        assert time.monotonic() < deadline, "requests or pages are still held"
        time.sleep(0.05)


def run_all(names, title):
    """Every `test_…` of a module's globals, one after another; a failure ends the program with its traceback."""
    tests = [(name, test) for name, test in names.items() if name.startswith("test_")]
    for name, test in tests:
        start = time.monotonic()
        test()
        print(f"{name}: ok ({time.monotonic() - start:.2f} s)", flush=True)
    print(f"{len(tests)} tests passed with {title}")
