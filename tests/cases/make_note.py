# SPDX-License-Identifier: Apache-2.0
"""Writes Opdock notes as assembly, by docs/reference/note.md. Shares no code with the host.

    make_note.py OUTPUT --name NAME [OPTIONS] [+ OUTPUT --name NAME [OPTIONS]]...

One process writes several notes, because starting Python takes longer than writing one.
"""

import argparse
import hashlib
import itertools
import json
import platform
import re
import struct
import sys
from pathlib import Path

HEAD = "<HHHHII32s"
IMAGE = "<II48sIIQQQQ32s"


def parse_arguments(words):
    parser = argparse.ArgumentParser()
    parser.add_argument("output")
    parser.add_argument("--name", required=True)
    parser.add_argument("--version", default="1.0")
    parser.add_argument("--schema", help="default: NAME(Tensor x) -> Tensor")
    parser.add_argument("--extra-op", action="append", default=[], help="schemas of further ops")
    parser.add_argument("--flag", action="append", default=["thread-safe"])
    parser.add_argument("--no-flags", dest="flag", action="store_const", const=[])
    parser.add_argument("--device", action="append", default=["cpu"])
    parser.add_argument("--gradient", action="append", default=[])
    parser.add_argument("--abi-major", type=int, default=0)
    parser.add_argument("--image", help="adds one source image with this text")
    parser.add_argument("--wrong-digest", action="store_true", help="of that image")
    parser.add_argument("--fatbin", help="a file that is embedded as nvcc embeds its own")
    parser.add_argument("--level", type=int, help="of the CPU")
    return parser.parse_args(words)


def abi_minor():
    """Returns the host's own minor version: while the ABI is a draft, the host loads no other."""
    header = Path(__file__).resolve().parents[2] / "core/include/opdock/plugin.h"
    return int(re.search(r"define OPDOCK_ABI_MINOR (\d+)", header.read_text())[1])


def op_claim(args, schema):
    return {
        "schema": schema,
        "digest": hashlib.sha256(schema.encode()).hexdigest(),
        "devices": args.device,
        "dtypes": ["float32"],
        "shape": ["like x"],
        "flags": args.flag,
        "gradients": args.gradient,
    }


def image_table(args):
    text = args.image.encode()
    offset = 16 + struct.calcsize(IMAGE)
    digest = hashlib.sha256(text + (b"x" if args.wrong_digest else b"")).digest()
    entry = struct.pack(IMAGE, 2, 4, b"kernel.cuh", 0, 0, offset, len(text), 0, 0, digest)
    return struct.pack("<8sII", b"OPDKIMG1", 1, len(entry)) + entry + text, digest.hex()


def as_bytes(data):
    return "  .byte " + ",".join(str(byte) for byte in data) + "\n" if data else ""


def write_note(args):
    schemas = [args.schema or f"{args.name}(Tensor x) -> Tensor", *args.extra_op]
    machine = platform.machine()
    claim = {
        "name": args.name,
        "version": args.version,
        "license": "Apache-2.0",
        "ops": [op_claim(args, schema) for schema in schemas],
        "devices": args.device,
        "images": [],
        "cpu": {"arch": machine, "level": args.level or (1 if machine == "x86_64" else 0)},
        "toolchain": "by hand",
    }
    table = b""
    if args.image:
        table, digest = image_table(args)
        claim["images"].append(
            {"backend": "cuda", "kind": "source", "arch": "kernel.cuh", "sha256": digest}
        )
    text = json.dumps(claim).encode()
    build_hash = hashlib.sha256(text + table).digest()
    head = struct.pack(HEAD, 2, 48, args.abi_major, abi_minor(), 0, len(text), build_hash)
    with open(args.output, "w") as out:
        out.write('  .section .note.opdock, "a", %note\n  .balign 4\n')
        out.write(f'  .long 7, {48 + len(text)}, 1\n  .asciz "opdock"\n  .balign 4\n')
        out.write(as_bytes(head) + as_bytes(text))
        out.write("  .balign 4\n")
        if table:
            out.write('  .section .rodata.images, "a", %progbits\n  .balign 64\n')
            out.write("  .globl opdock_images_v0\n  .type opdock_images_v0, %object\n")
            out.write(f"  .size opdock_images_v0, {len(table)}\nopdock_images_v0:\n")
            out.write(as_bytes(table))
        if args.fatbin:
            out.write('  .section .nv_fatbin, "a", %progbits\n  .balign 8\n')
            out.write(f'  .incbin "{args.fatbin}"\n')
        out.write('  .section .note.GNU-stack, "", %progbits\n')


for is_separator, words in itertools.groupby(sys.argv[1:], lambda word: word == "+"):
    if not is_separator:
        write_note(parse_arguments(list(words)))
