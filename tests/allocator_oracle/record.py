"""Builds the oracle, writes its answers as test data, or compares them with ours. See README.md."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

from programs import Program, answers, random_program

HERE = Path(__file__).parent
DATA = HERE.parent / "data" / "allocator_torch.json"
HEADERS = ("torch/include/c10/", "torch/include/torch/headeronly/", "torch/lib/libc10")


def build(wheel: Path, cuda: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder, [name for name in archive.namelist() if name.startswith(HEADERS)])
    (folder / "versions").write_text("libcudart.so.13 { global: *; };\n")
    library, include = folder / "torch" / "lib", f"-I{cuda / 'include'}"
    shared = ["gcc", "-shared", "-fPIC", "-w", "-O1", include]
    runtime, nvml = folder / "libcudart.so.13", folder / "libnvidia-ml.so.1"
    version = [f"-Wl,--version-script={folder / 'versions'}", "-Wl,-soname,libcudart.so.13"]
    _run([*shared, HERE / "cudart.c", HERE / "unused.c", "-o", runtime, *version])
    _run([*shared, HERE / "nvml.c", "-o", nvml, "-Wl,-soname,libnvidia-ml.so.1"])
    compile_ = ["g++", "-std=c++20", "-O1", "-w", include, f"-I{folder / 'torch' / 'include'}"]
    libraries = [library / "libc10_cuda.so", library / "libc10.so", runtime]
    _run([*compile_, HERE / "drive.cpp", "-o", folder / "drive", *libraries, f"-Wl,-rpath,{library}:{folder}"])


def oracle(folder: Path, program: Program) -> list[str]:
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(folder),
        "PYTORCH_CUDA_ALLOC_CONF": program.options,
        "STUB_TOTAL": str(program.capacity),
        "STUB_OUTSIDE": str(program.outside),
    }
    commands = "".join(f"{command}\n" for command in program.commands)
    return _run([folder / "drive"], input=commands, env=environment).splitlines()


def _run(command: list[str | Path], **more: object) -> str:
    done = subprocess.run(command, check=False, text=True, capture_output=True, **more)  # type: ignore[call-overload]
    if done.returncode:
        sys.exit(f"{command[0]} failed: {done.stderr[:2000]}")
    return str(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wheel", type=Path)
    parser.add_argument("--cuda", type=Path, default=Path("/usr/local/cuda"))
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--compare", type=int, default=0, metavar="PROGRAMS")
    parser.add_argument("--first", type=int, default=0, metavar="SEED")
    asked = parser.parse_args()
    if asked.wheel:
        build(asked.wheel, asked.cuda, asked.build)
    if asked.write:
        programs = [random_program(seed, length=110) for seed in range(60)]
        rows = [
            {**vars(program), "commands": ";".join(program.commands), "answers": oracle(asked.build, program)}
            for program in programs
        ]
        DATA.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
    differ = 0
    for seed in range(asked.first, asked.first + asked.compare):
        program = random_program(seed)
        ours, theirs = answers(program), oracle(asked.build, program)
        if ours != theirs:
            differ += 1
            first = next((pair for pair in zip(ours, theirs) if pair[0] != pair[1]), ("", ""))
            print(f"program {seed}, {program.options}:\n  ours   {first[0][:400]}\n  theirs {first[1][:400]}")
    if asked.compare:
        print(f"{asked.compare} programs, {differ} differ")
        sys.exit(differ > 0)


if __name__ == "__main__":
    main()
