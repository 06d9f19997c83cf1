"""Writes a model file of Espalier from the code of a Hugging Face model: ``python -m espalier.trace FOLDER -o x.yaml``.

A tiny copy of the model is run once while every call of torch is recorded (record). The recorded graph is rewritten as
ops of Espalier (match, attention, experts): a region of the graph is recognised by what it computes, not by how it is
written, for it is run again with other inputs. The ops are cut into blocks and fitted to the parts of configs/models
(blocks). Other tiny copies, each with one key of config.json changed, say which key is which size (keys). The file is
written (layout, write) and checked against transformers (check).
"""
