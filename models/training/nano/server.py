"""A served miniature for measurements: starts `m3 serve`, asks over HTTP, stops it. Standard library only."""

import json
import random
import shutil
import socket
import struct
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any

NAME = "m3-nano"


class Server:
    """`m3 serve` on a free port, for the length of a `with` block."""

    def __init__(self, binary: str, model: Path, flags: list[str]) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.log = tempfile.TemporaryFile()
        command = [binary, "serve", str(model), "--port", str(self.port), "--served-model-name", NAME, *flags]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)

    def __enter__(self) -> "Server":
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                self.log.seek(0)
                raise SystemExit("m3 serve ended: " + self.log.read().decode(errors="replace")[-2000:])
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/ready", timeout=5):
                    return self
            except OSError:
                time.sleep(0.2)
        raise SystemExit("m3 serve was not ready within 120 s")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.process.terminate()
        self.process.wait(30)

    def chat(self, messages: list[dict[str, Any]], **options: Any) -> dict[str, Any]:
        """The answer's JSON; an error of the server ends the measurement."""
        body = {"model": NAME, "messages": messages, "temperature": 0, "max_tokens": 400, **options}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/v1/chat/completions", json.dumps(body).encode(), {"content-type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=1800) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise SystemExit(f"the server answered {error.code}: {error.read().decode()[:500]}") from error


def bf16(value: float) -> int:
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    return (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16


def with_random_index(model: Path, out: Path) -> None:
    """A copy of a checkpoint whose index projections are drawn anew, so that the choice of blocks says nothing about the text."""
    shutil.copytree(model, out, dirs_exist_ok=True)
    path = out / "model.safetensors"
    data = bytearray(path.read_bytes())
    (length,) = struct.unpack("<Q", data[:8])
    header, rng = json.loads(data[8 : 8 + length]), random.Random(3)
    for name, entry in header.items():
        if name.endswith(("index_q_proj.weight", "index_k_proj.weight")):
            rows, columns = entry["shape"]
            start = 8 + length + entry["data_offsets"][0]
            values = (bf16(rng.gauss(0.0, columns**-0.5)) for _ in range(rows * columns))
            struct.pack_into(f"<{rows * columns}H", data, start, *values)
    path.write_bytes(data)
