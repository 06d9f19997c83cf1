#!/usr/bin/env python3
"""Writes 300 sums as data for fine-tuning, one JSON object a line. Usage: instructions.py FILE [messages]: instruction,
input and output as in Alpaca; or a list of messages."""
import json
import sys


def main():
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        for number in range(300):
            a, b = number * 7 % 100, number * 13 % 50
            example = {"instruction": "Add the two numbers.", "input": f"{a} and {b}", "output": f"The sum is {a + b}."}
            if "messages" in sys.argv:
                turns = [("user", f"Add {a} and {b}."), ("assistant", example["output"]), ("user", "And one more?"),
                         ("assistant", f"Then {a + b + 1}.")]
                example = {"messages": [{"role": role, "content": content} for role, content in turns]}
            file.write(json.dumps(example) + "\n")


if __name__ == "__main__":
    main()
