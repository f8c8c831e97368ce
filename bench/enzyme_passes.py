"""Passes of the wheel ``enzyme_ad`` on a module's text. It needs the wheel and nothing else, not even JAX.

Run by path, with an interpreter that has the wheel: reads ``{"text", "pipelines", "seconds"}`` as JSON and prints, per
pipeline, ``{"text"}`` or ``{"error"}``. A pipeline may end its process, so each runs in a fork.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any


def load() -> Any:
    """The wheel's extension module, without the package around it (which imports JAX). ImportError without it."""
    package = importlib.util.find_spec("enzyme_ad")
    for folder in (package.submodule_search_locations or ()) if package else ():
        for path in Path(folder).glob("jax/enzyme_call*.so"):
            found = importlib.util.spec_from_file_location("enzyme_call", path)
            assert found is not None and found.loader is not None
            module = importlib.util.module_from_spec(found)
            found.loader.exec_module(module)
            return module
    raise ImportError("no enzyme_ad")


def run(enzyme_call: Any, text: str, pipeline: str) -> str:
    """The module's text after the passes, its entry function named main again."""
    answer = enzyme_call.run_pass_pipeline([], text, pipeline)
    if not isinstance(answer, tuple):
        return str(answer)
    name, out = answer
    out = re.sub("@" + re.escape(name) + r"\b", "@main", out)
    return out.replace("func.func private @main", "func.func public @main")


def forked(enzyme_call: Any, text: str, pipeline: str, seconds: int) -> dict[str, str]:
    """`run` in a child: its text, or why there is none."""
    with tempfile.TemporaryFile("w+") as out:
        child = os.fork()
        if child == 0:
            try:
                signal.alarm(seconds)
                json.dump({"text": run(enzyme_call, text, pipeline)}, out)
            except BaseException as error:
                json.dump({"error": f"{type(error).__name__}: {error}"[:400]}, out)
            out.flush()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        out.seek(0)
        written = out.read()
    if os.WIFSIGNALED(status):
        return {"error": f"the passes ended the process ({signal.Signals(os.WTERMSIG(status)).name})"}
    answer: dict[str, str] = json.loads(written)
    return answer


def main() -> int:
    """Exit status 2 without the wheel."""
    try:
        enzyme_call = load()
    except ImportError as error:
        print(error, file=sys.stderr)
        return 2
    request = json.load(sys.stdin)
    answers = [forked(enzyme_call, request["text"], p, request["seconds"]) for p in request["pipelines"]]
    json.dump(answers, sys.stdout)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
