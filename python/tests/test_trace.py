"""Model files from code. The tests of whole models need torch and transformers, and a command: $ESPALIER or build/bin."""
import json
import os
import pathlib
import subprocess
import sys

import numpy
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMMAND = pathlib.Path(os.environ.get("ESPALIER", ROOT / "build" / "bin" / "espalier"))
TINY = {"vocab_size": 128, "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "max_position_embeddings": 64}
# The shipped model files of these families are hidden from the trace: it reads only models/parts.
FAMILIES = {
    "llama": ("LlamaForCausalLM", {}),
    "qwen2": ("Qwen2ForCausalLM", {"tie_word_embeddings": True}),
    "qwen3": ("Qwen3ForCausalLM", {"head_dim": 16}),
    "mistral": ("MistralForCausalLM", {"sliding_window": 5, "head_dim": 8}),
    "gemma2": ("Gemma2ForCausalLM", {"num_hidden_layers": 3, "head_dim": 16, "sliding_window": 5,
                                     "query_pre_attn_scalar": 24, "attn_logit_softcapping": 2.0}),
    "olmo2": ("Olmo2ForCausalLM", {}),
    "granite": ("GraniteForCausalLM", {"attention_multiplier": 0.3, "residual_multiplier": 0.4, "logits_scaling": 2.5}),
    "starcoder2": ("Starcoder2ForCausalLM", {"sliding_window": None}),
    "phi": ("PhiForCausalLM", {"num_key_value_heads": None}),
    "gpt_neox": ("GPTNeoXForCausalLM", {"rotary_pct": 0.5}),
    "stablelm": ("StableLmForCausalLM", {"use_parallel_residual": True}),
    "glm4": ("Glm4ForCausalLM", {"head_dim": 16}),
    "cohere": ("CohereForCausalLM", {"logit_scale": 0.3}),
    "mixtral": ("MixtralForCausalLM", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "qwen3_moe": ("Qwen3MoeForCausalLM", {"head_dim": 16, "num_experts": 4, "num_experts_per_tok": 2,
                                          "moe_intermediate_size": 24, "norm_topk_prob": True}),
}


def traced(folder, output, *words):
    return subprocess.run([sys.executable, "-m", "espalier.trace", str(folder), "-o", str(output), "--espalier",
                           str(COMMAND), *words], capture_output=True, text=True, check=False,
                          env={**os.environ, "PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1"})


def config(folder, family, **changes):
    architecture, keys = FAMILIES[family]
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(
        {"model_type": family, "architectures": [architecture], "pad_token_id": None} | TINY | keys | changes))
    return folder


@pytest.fixture
def needs_torch():
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    if not COMMAND.is_file():
        pytest.skip(f"no command {COMMAND}")


@pytest.mark.parametrize("family", FAMILIES)
def test_family(family, tmp_path, needs_torch):
    """The trace compares loss, gradients and converted weights with transformers, and fails where they differ."""
    output = tmp_path / "models" / "own.yaml"
    done = traced(config(tmp_path / "hf", family), output)
    assert done.returncode == 0, done.stderr
    assert "checked" in done.stderr
    assert "parts/attention.yaml" in output.read_text()


def test_a_fault_names_the_line(tmp_path, needs_torch):
    """A model with linear positions by ALiBi: nothing is written."""
    folder = tmp_path / "bloom"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({
        "model_type": "bloom", "architectures": ["BloomForCausalLM"], "vocab_size": 128, "hidden_size": 32, "n_layer": 2,
        "n_head": 4, "pad_token_id": None}))
    done = traced(folder, tmp_path / "models" / "own.yaml")
    assert done.returncode == 1
    assert "modeling_bloom.py:" in done.stderr
    assert not (tmp_path / "models").exists() or not any((tmp_path / "models").iterdir())


def test_layouts():
    """Names and axes of a weight file follow from the numbers of its elements. Needs no torch."""
    layout = pytest.importorskip("espalier.trace.layout")
    q = numpy.arange(24).reshape(3, 2, 2, 2)  # hidden, kv_heads, group, head_dim
    k = 24 + numpy.arange(12).reshape(3, 2, 2)
    down = 36 + numpy.arange(12).reshape(4, 3)
    parameters = {"q": (["hidden", "kv_heads", "group", "head_dim"], q), "k": (["hidden", "kv_heads", "head_dim"], k),
                  "down": (["ffn", "hidden"], down)}
    halves = numpy.concatenate([q.reshape(3, 8).T, k.reshape(3, 4).T])
    groups = numpy.concatenate([q.reshape(3, 2, 4).transpose(1, 2, 0), k.transpose(1, 2, 0)], axis=1).reshape(12, 3)
    file = {"h.0.qk.weight": halves, "h.0.down.weight": down.T}
    assert layout.layouts(file, {"h.0.": parameters}, "h.") == {
        "h.{i}.qk.weight": "q k = (| kv_heads group head_dim) hidden", "h.{i}.down.weight": "down = hidden ffn"}
    assert layout.layouts({"h.0.qk.weight": groups}, {"h.0.": parameters}, "h.") == {
        "h.{i}.qk.weight": "q k = (kv_heads | group head_dim) hidden"}
    experts = {"up": (["expert", "hidden", "ffn"], numpy.arange(12).reshape(2, 2, 3))}
    assert layout.layouts({f"h.0.e.{i}.up": experts["up"][1][i].T for i in range(2)}, {"h.0.": experts}, "h.") == {
        "h.{i}.e.{expert}.up": "up = ffn hidden"}
    with pytest.raises(layout.NotUnderstood, match="has no part in the logits"):
        layout.layouts({"h.0.other": numpy.array([99])}, {"h.0.": parameters}, "h.")


def test_a_document_is_what_differs():
    pytest.importorskip("yaml")
    from espalier.trace.document import difference, merged, text_of
    base = {"sizes": {"a": {"default": 1}, "b": {"only": 2}}, "weights": {"mcore": {"x": "y"}}}
    wanted = {"sizes": {"a": {"default": 3}, "b": {}}, "weights": {}}
    written = difference(base, wanted)
    assert written == {"sizes": {"a": {"default": 3}, "b": {"only": None}}, "weights": {"mcore": None}}
    assert merged(base, written)["sizes"]["a"] == {"default": 3}
    assert "  b: {only: null}\n" in text_of(written, "a model")
