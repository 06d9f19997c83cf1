#!/usr/bin/env python3
"""Makes chats.jsonl: conversations, and their tokens and assistant masks as apply_chat_template of transformers computes
them with the templates of the published models.

Usage: make_chat_cases.py [--check]. --check compares the recorded file with the installed transformers.
"""
import copy
import json
import pathlib
import sys

import tokenizers
import transformers

FOLDER = pathlib.Path(__file__).parent
OUTPUT = FOLDER / "chats.jsonl"

# The templates in the tokenizer_config.json of the models, with `generation` around what the assistant writes.
CHATML = """{% for message in messages %}{% if message['role'] == 'assistant' %}{{ '<|im_start|>assistant\n' }}\
{% generation %}{{ message['content'] + '<|im_end|>' }}{% endgeneration %}{{ '\n' }}{% else %}\
{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}{% endif %}{% endfor %}"""
LLAMA2 = """{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}\
{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}\
{% set system_message = false %}{% endif %}{% for message in loop_messages %}\
{% if loop.index0 == 0 and system_message != false %}\
{% set content = '<<SYS>>\n' + system_message + '\n<</SYS>>\n\n' + message['content'] %}\
{% else %}{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}\
{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% elif message['role'] == 'assistant' %}\
{% generation %}{{ ' '  + content.strip() + ' ' + eos_token }}{% endgeneration %}{% endif %}{% endfor %}"""
LLAMA3 = """{{ bos_token }}{% for message in messages %}\
{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' }}{% if message['role'] == 'assistant' %}\
{% generation %}{{ message['content'] | trim + '<|eot_id|>' }}{% endgeneration %}\
{% else %}{{ message['content'] | trim + '<|eot_id|>' }}{% endif %}{% endfor %}"""
TASK = "Below is an instruction that describes a task{}. Write a response that appropriately completes the request."
ALPACA = """{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set turns = messages[1:] %}\
{{ messages[0]['content'] | trim }}{% else %}{% set turns = messages %}{{ task }}{% endif %}\
{% for message in turns %}{% if message['role'] == 'user' %}{{ '\n\n### Instruction:\n' + message['content'] | trim }}\
{% else %}{{ '\n\n### Response:\n' }}{% generation %}{{ message['content'] | trim + eos_token }}{% endgeneration %}\
{% endif %}{% endfor %}"""

# The template, its tokenizer of this folder, tokens that are added to it, and its first and last token.
FORMATS = {
    "chatml": (CHATML, "split.json", ["<|im_start|>", "<|im_end|>"], None, None),
    "llama2": (LLAMA2, "chars.json", [], "<s>", "</s>"),
    "llama3": (LLAMA3, "split.json", ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
               "<|begin_of_text|>", "<|eot_id|>"),
    "alpaca": (ALPACA, "chars.json", [], "<s>", "</s>"),
}


def turn(*words, system=None):
    """Returns messages of user and assistant in turn."""
    roles = ["user", "assistant"]
    messages = [{"role": roles[i % 2], "content": text} for i, text in enumerate(words)]
    return ([{"role": "system", "content": system}] if system is not None else []) + messages


CONVERSATIONS = [
    turn("Hello", "Hi there"),
    turn("Who are you?", "A plan of ranks.", "And then?", "The ranks train.", "Thanks", "You are welcome!",
         system="Be brief. "),
    turn("  two  spaces \n", "\n\n  an answer that begins with lines\n"),
    turn("x", ""),
    turn("naïve e\u0301 中文 🙂", "\u3000wide space\u00a0", "tab\tnew\n\nline", "\x1cseparators\x1f"),
    turn("Count", "12345 ½ ٣ aaaaaaaaaaaaaaaa", "and go on", system=""),
    turn("say </s> <|im_end|> <|eot_id|> <s>", "no <|im_start|> <s> [INST] ### Response:\n", system="\n keep \n\n"),
]
PAIRS = [("Add the numbers.", "1 and 2", "3"), ("Name a colour. ", "", " Red"), ("Sum", "\n 4\n5 \n", "9\n")]


def tokenizer_of(name):
    template, file, added, bos, eos = FORMATS[name]
    own = tokenizers.Tokenizer.from_file(str(FOLDER / file))
    own.add_special_tokens([tokenizers.AddedToken(text, special=True, normalized=False) for text in added])
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=own, bos_token=bos, eos_token=eos,
                                                clean_up_tokenization_spaces=False)
    fast.chat_template = template
    return fast


def encode(fast, messages):
    more = {"task": TASK.format("")}
    both = fast.apply_chat_template(messages, tokenize=True, return_dict=True, return_assistant_tokens_mask=True, **more)
    plain = copy.deepcopy(fast)
    plain.chat_template = fast.chat_template.replace("{% generation %}", "").replace("{% endgeneration %}", "")
    alone = plain.apply_chat_template(messages, tokenize=True, return_dict=True, **more)["input_ids"]
    assert both["input_ids"] == alone, messages
    return both["input_ids"], both["assistant_masks"]


def cases():
    for name, (_, file, added, _, _) in FORMATS.items():
        fast = tokenizer_of(name)
        for messages in CONVERSATIONS:
            ids, mask = encode(fast, messages)
            yield {"template": name, "tokenizer": file, "added": added, "line": {"messages": messages}, "ids": ids,
                   "mask": mask}
    for instruction, given, output in PAIRS:
        prompt = instruction.strip() + (f"\n\n### Input:\n{given.strip()}" if given.strip() else "")
        task = TASK.format(", paired with an input that provides further context" if given.strip() else "")
        ids, mask = encode(fast, turn(prompt, output, system=task))
        yield {"template": "alpaca", "tokenizer": "chars.json", "added": [],
               "line": {"instruction": instruction, "input": given, "output": output}, "ids": ids, "mask": mask}


def main():
    text = "".join(json.dumps(case) + "\n" for case in cases())
    if sys.argv[1:] == ["--check"]:
        assert OUTPUT.read_text() == text, "transformers gives other tokens than chats.jsonl records"
    else:
        OUTPUT.write_text(text)


if __name__ == "__main__":
    main()
