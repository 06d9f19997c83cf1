#!/usr/bin/env python3
"""lm-evaluation-harness measures one Llama twice: with transformers, and over HTTP from `espalier serve`. The log
likelihood of each answer and the choices must be equal. Usage: lm_eval_oracle.py ESPALIER FOLDER [--record]

With --record, writes lm_eval.json beside this file: the requests that lm-evaluation-harness posts, and for each the
number of tokens of its context, the log likelihood of the tokens behind the context, and whether greedy decoding gives
them. These two values are those of transformers. test/e2e/lm_eval.py posts the same requests without the harness."""
import http.server
import json
import pathlib
import random
import subprocess
import sys
import threading
import urllib.request

import lm_eval
import tokenizers
import torch
import transformers

espalier, folder = sys.argv[1], pathlib.Path(sys.argv[2])
root = pathlib.Path(__file__).resolve().parents[2]
folder.mkdir()
hf = folder / "hf"
END = 1  # the token that ends a text, and before a text that has no context


def run(*words):
    subprocess.run(list(map(str, words)), stdout=subprocess.DEVNULL, check=True)


def tokenizer_of(size):
    """Returns a tokenizer whose words are w2, w3, ... and </s>, which ends a text."""
    words = {"<unk>": 0, "</s>": END, **{f"w{i}": i for i in range(2, size)}}
    model = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    model.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=model, unk_token="<unk>", eos_token="</s>",
                                                pad_token="</s>")


def ids(text):
    return [int(word[1:]) for word in text.split()]


def tasks_of(size):
    """Returns a choice among answers and a measure of perplexity. Some answers are the greedy ones."""
    draw = random.Random(5)
    words = lambda count: " ".join(f"w{draw.randrange(2, size)}" for _ in range(count))
    lines = [{"text": words(6), "choices": [words(draw.randrange(1, 5)) for _ in range(3)], "gold": draw.randrange(3)}
             for _ in range(12)]
    model = transformers.AutoModelForCausalLM.from_pretrained(hf, dtype=torch.float32)
    for number, line in enumerate(lines[::3]):
        text = ids(line["text"])
        for _ in range(1 + number % 2):
            text.append(int(model(torch.tensor([text])).logits[0, -1].argmax()))
        line["choices"][number % 3] = " ".join(f"w{token}" for token in text[6:])
    data = folder / "data.jsonl"
    data.write_text("".join(json.dumps(line) + "\n" for line in lines))
    common = {"dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(data)}}, "test_split": "test",
              "doc_to_text": "{{text}}"}
    return [{"task": "choose", **common, "output_type": "multiple_choice", "doc_to_choice": "{{choices}}",
             "doc_to_target": "{{gold}}"},
            {"task": "perplexity", **common, "output_type": "loglikelihood_rolling", "doc_to_text": "",
             "doc_to_target": "{{text}}", "metric_list": [{"metric": "word_perplexity"}]}]


def measure(name, tasks, **arguments):
    result = lm_eval.simple_evaluate(model=name, model_args=arguments, tasks=tasks, log_samples=True, bootstrap_iters=0)
    return result["results"], result["samples"]


class Recorder(http.server.BaseHTTPRequestHandler):
    """Passes requests on to the server and keeps their bodies."""
    url, bodies = "", []

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        Recorder.bodies.append(json.loads(body))
        with urllib.request.urlopen(urllib.request.Request(Recorder.url, body,
                                                            {"Content-Type": "application/json"})) as answer:
            text = answer.read()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


def record(truth):
    """Writes the requests with transformers' values. A request without a known text is an error."""
    known = {}
    for sample in truth["choose"]:
        for (context, answer), (value, is_greedy) in zip(sample["arguments"], sample["filtered_resps"], strict=True):
            known[(*ids(context), *ids(answer))] = (len(ids(context)), float(value), bool(is_greedy))
    for sample in truth["perplexity"]:  # has no word on greedy decoding
        ((text,),), (value,) = sample["arguments"], sample["filtered_resps"]
        known[(END, *ids(text))] = (1, float(value[0] if isinstance(value, (list, tuple)) else value), None)
    entries = []
    for body in Recorder.bodies:
        (prompt,) = body["prompt"]
        context, value, is_greedy = known[tuple(prompt)]
        entries.append({"body": body, "context": context, "log_likelihood": value, "is_greedy": is_greedy})
    made = {"made_by": f"lm_eval_oracle.py with lm_eval {lm_eval.__version__}, transformers {transformers.__version__}, "
                       f"torch {torch.__version__}"}
    lines = ",\n  ".join(json.dumps(entry) for entry in entries)
    pathlib.Path(__file__).with_name("lm_eval.json").write_text(
        f'{{"made_by": {json.dumps(made["made_by"])},\n "requests": [\n  {lines}]}}\n')


run(sys.executable, root / "test/e2e/hf_folder.py", hf, "small")
size = json.loads((hf / "config.json").read_text())["vocab_size"]
tokenizer_of(size).save_pretrained(hf)
run(espalier, "import-hf", hf, "-o", folder / "run.yaml")
run(espalier, "compile", folder / "run.yaml", "-o", folder / "say.plan", "--set", "run_mode=predict", "--set",
    "parallel.parallel_mode=1", "--set", "parallel_config.model_parallel=2", "--set", "runner_config.batch_size=2",
    "--cluster", "cpu_local:1x2")
server = subprocess.Popen([espalier, "serve", str(folder / "say.plan"), "--checkpoint", str(hf)],
                          stdout=subprocess.PIPE, text=True)
try:
    Recorder.url = server.stdout.readline().split()[-1] + "/v1/completions"
    proxy = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Recorder)
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{proxy.server_port}/v1/completions"
    likely, truth = measure("hf", tasks_of(size), pretrained=str(hf), dtype="float32", device="cpu")
    for concurrent in (1, 3):
        Recorder.bodies.clear()
        ours, answers = measure("local-completions", tasks_of(size), model="any", base_url=url, tokenizer=str(hf),
                                tokenizer_backend="huggingface", tokenized_requests=True, num_concurrent=concurrent)
        for task in ("choose", "perplexity"):
            for one, other in zip(truth[task], answers[task], strict=True):
                for a, b in zip(one["filtered_resps"], other["filtered_resps"], strict=True):
                    a, b = (a, b) if isinstance(a, (list, tuple)) else ([a], [b])
                    assert abs(float(a[0]) - float(b[0])) < 1e-3, (task, one, other)
                    assert list(map(str, a[1:])) == list(map(str, b[1:])), (task, one, other)
        assert ours["choose"]["acc,none"] == likely["choose"]["acc,none"], (ours, likely)
        if sys.argv[3:] == ["--record"] and concurrent == 1:
            record(truth)
finally:
    server.terminate()
    server.wait()
print(f"lm_eval {lm_eval.__version__} measures the same over HTTP as with transformers")
