#!/usr/bin/env python3
"""Makes chat_vectors.jsonl and completion_vectors.jsonl: random conversations and completions, and what the published
encoding_dsv4.py makes of them. Usage: make_chat_vectors.py FOLDER_OF_ENCODING_DSV4 OUT_FOLDER [SEED [ROWS]]
Left out, because Furlong refuses them by its own rules: contents that are no text, arguments that are no text."""
import copy
import json
import pathlib
import random
import sys

sys.path.insert(0, sys.argv[1])
import encoding_dsv4 as published  # noqa: E402

BOS, EOS, DSML = published.bos_token, published.eos_token, published.dsml_token
WORDS = ["", "a", "b c", "\n", " x ", "\u4e2d", "</think>", "<think>", EOS, "\"q\"", "<tool_result>", DSML, "{\"k\": 1}", "\u2028", "\\"]


def text(rng):
    return "".join(rng.choice(WORDS) for _ in range(rng.randint(0, 3)))


def value(rng, depth=0):
    kinds = [lambda: rng.choice([0, 1, -7, 2**63, 10**15]), lambda: rng.choice([0.5, 1.0, 1e16, 1e-5, -2.5e-7, 1e22, 123456.75, -0.0]),
             lambda: rng.choice([True, False, None]), lambda: text(rng) + "\u00e9\t\x01\x7f"]
    if depth < 2:
        kinds += [lambda: [value(rng, depth + 1) for _ in range(rng.randint(0, 2))],
                  lambda: {f"k{i}": value(rng, depth + 1) for i in range(rng.randint(0, 2))}]
    return rng.choice(kinds)()


def tool_call(rng, number):
    arguments = rng.choice([lambda: json.dumps({f"p{i}": value(rng) for i in range(rng.randint(0, 3))}), lambda: "not json " + text(rng),
                            lambda: "[1, 2]", lambda: ""])()
    call = {"type": "function", "function": {"name": rng.choice(["f", "get weather", "g\"h"]), "arguments": arguments}}
    where = rng.randint(0, 2)
    if where == 0:
        call["id"] = f"c{number}"
    elif where == 1:
        call["function"]["id"] = f"c{number}"
    return call


def message(rng):
    role = rng.choices(["system", "user", "assistant", "tool", "developer", "latest_reminder", "robot"], [2, 8, 8, 5, 2, 2, 0.3])[0]
    m = {"role": role}
    if role == "tool" and rng.random() < 0.3:
        m["content"] = [rng.choice([{"type": "text", "text": text(rng)}, {"type": "image"}, {"type": "text"}]) for _ in range(rng.randint(0, 3))]
    elif role == "latest_reminder" or rng.random() < 0.9:
        m["content"] = text(rng)
    elif role in ("system", "assistant"):
        m["content"] = None
    if role == "tool":
        m["tool_call_id"] = f"c{rng.randint(0, 2)}"
    if role == "assistant":
        if rng.random() < 0.6:
            m["reasoning_content"] = rng.choice([None, text(rng), "why"])
        if rng.random() < 0.4:
            m["tool_calls"] = [tool_call(rng, i) for i in range(rng.randint(0, 3))]
        if rng.random() < 0.1:
            m["wo_eos"] = rng.random() < 0.5
    if role in ("system", "developer"):
        if rng.random() < 0.3:
            m["tools"] = [{"type": "function", "function": value(rng)} for _ in range(rng.randint(0, 2))]
        if rng.random() < 0.2:
            m["response_format"] = rng.choice([{}, {"type": "object", "n": value(rng)}])
    if rng.random() < 0.1:
        m["task"] = rng.choice(list(published.DS_TASK_SP_TOKENS) + ["dance"])
    return m


def chat_row(rng, number):
    messages = [message(rng) for _ in range(rng.randint(0, 7))]
    row = {"id": f"random/{number}", "messages": messages, "thinking_mode": rng.choice(["chat", "thinking"]),
           "reasoning_effort": rng.choice([None, "high", "max"]), "drop_thinking": rng.random() < 0.7,
           "num_context": rng.randint(0, len(messages)) if rng.random() < 0.3 else 0}
    n = row["num_context"]
    try:
        row["prompt"] = published.encode_messages(copy.deepcopy(messages[n:]), row["thinking_mode"], context=copy.deepcopy(messages[:n]),
                                                  drop_thinking=row["drop_thinking"], reasoning_effort=row["reasoning_effort"])
    except Exception as error:  # the published code raises what Python gives it
        row["error"] = f"{type(error).__name__}: {error}"
    return row


def mutate(rng, s):
    for _ in range(rng.choice([0, 0, 1, 1, 2])):
        at = rng.randint(0, len(s))
        s = rng.choice([lambda: s[:at], lambda: s[:at] + rng.choice(["\n", ">", "<", "\"", " ", "x", EOS, "</think>"]) + s[at:],
                        lambda: s[:at] + s[at + rng.randint(1, 4):]])()
    return s


def completion_row(rng, number):
    thinking = rng.choice(["chat", "thinking"])
    s = (text(rng) + "</think>" if thinking == "thinking" else "") + rng.choice(["", "an answer", text(rng)])
    if rng.random() < 0.7:
        s += f"\n\n<{DSML}tool_calls>\n"
        for _ in range(rng.randint(0, 2)):
            s += f"<{DSML}invoke name=\"{rng.choice(['f', 'a b'])}\">\n"
            for i in range(rng.randint(0, 3)):
                is_text = rng.choice(["true", "false"])
                s += f"<{DSML}parameter name=\"p{rng.randint(0, 4)}\" string=\"{is_text}\">{rng.choice(['1', '[2]', text(rng)])}</{DSML}parameter>\n"
            s += f"</{DSML}invoke>\n"
        s += f"</{DSML}tool_calls>"
    s = mutate(rng, s + EOS)
    row = {"id": f"random/{number}", "text": s, "thinking_mode": thinking}
    try:
        row["parsed"] = published.parse_message_from_completion_text(s, thinking)
    except Exception as error:
        row["error"] = f"{type(error).__name__}: {error}"
    return row


def main():
    rng = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    rows = int(sys.argv[4]) if len(sys.argv) > 4 else 250
    out = pathlib.Path(sys.argv[2])
    for name, make in (("chat_vectors.jsonl", chat_row), ("completion_vectors.jsonl", completion_row)):
        with open(out / name, "w", encoding="utf-8") as file:
            for i in range(rows):
                file.write(json.dumps(make(rng, i), ensure_ascii=False) + "\n")


main()
