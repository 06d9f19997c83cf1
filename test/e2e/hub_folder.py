#!/usr/bin/env python3
"""Lays a folder out as the cache of Hugging Face's hub does. Usage: hub_folder.py DIR MODELS--ORG--NAME HASH"""
import hashlib
import pathlib
import sys

source, target, commit = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
snapshot = target / "snapshots" / commit
for folder in (target / "blobs", target / "refs", snapshot):
    folder.mkdir(parents=True)
for file in source.iterdir():
    data = file.read_bytes()
    blob = hashlib.sha256(data).hexdigest()
    (target / "blobs" / blob).write_bytes(data)
    (snapshot / file.name).symlink_to(f"../../blobs/{blob}")
(target / "refs" / "main").write_text(commit)
