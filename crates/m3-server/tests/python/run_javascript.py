"""Runs the JavaScript client's script beside servers whose answers are known.

`M3_BINARY=… python run_javascript.py URL_OF_A_REAL_MODEL FOLDER`, FOLDER with `test_openai.mjs` and its packages.
"""

import json
import os
import subprocess
import sys

from scripted import call, calls, scripted

CALLED = [["get_weather", {"location": "Paris", "days": 3}], ["get_weather", {"location": "Köln 🌶", "days": 12}]]
ANSWER = "Paris has 18 °C and sun, 科隆 has 12."


def main():
    real, folder = sys.argv[1:]
    said = "<mm:think>Both.</mm:think>One moment. " + calls(*(call(name, **given) for name, given in CALLED))
    expected = json.dumps({"calls": CALLED, "content": "One moment.", "answer": ANSWER})
    with scripted(said) as asking, scripted(ANSWER) as telling, scripted('{"a":7}') as fitting:
        command = ["node", "test_openai.mjs", real, asking, telling, fitting]
        subprocess.run(command, cwd=folder, env=os.environ | {"EXPECTED": expected}, check=True)


if __name__ == "__main__":
    main()
