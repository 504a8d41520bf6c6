#!/usr/bin/env python3
"""Writes the data of the demo: three-digit addition with a written carry chain.

    make_data.py OUT [--seed 0] [--num-warmup 25600] [--num-train 8192] [--num-heldout 512] [--skip-carry 0.7]

OUT/tokenizer.json          17 tokens: <pad> <bos> <eos> = 0 1 2, then one for each character of "0123456789+=,;"
OUT/tokenizer_config.json   names the three
OUT/warmup.jsonl            {"prompt", "response"}: demonstrations, MANY OF THEM WRONG ON PURPOSE (below)
OUT/train.jsonl             {"prompt", "label", "metadata": {"carries": 0..2}}: how many columns have a carry coming in
OUT/heldout.jsonl           the same, of pairs that stand in neither of the others

A prompt is "<bos>437+285=": "<bos>" is written out, and a data set with apply_chat_template = false reads it as the token.
The response "7+5+0=12,3+8+1=12,4+2+1=07;0722" adds column by column from the units (digit + digit + carry in = two digits) and
then gives the sum in four digits. The reader of demonstrations adds <eos>. A label is the sum in four digits: what must follow
the last ";".

Mistakes on purpose: wherever a column has a carry coming in, a demonstration writes and uses 0 instead with probability
--skip-carry. The rest of its chain is consistent, so such an answer is wrong by the forgotten carries only. A model that has
learned from them forgets carries as often; reinforcement learning has something to put right.

A pair (a, b) is held out if SHA-256 of "a,b" is divisible by 10; no pair stands in two files or twice in one. The same
arguments write the same bytes.
"""
import argparse
import hashlib
import json
import pathlib
import random

SPECIAL = ["<pad>", "<bos>", "<eos>"]
CHARACTERS = "0123456789+=,;"


def is_held_out(a, b):
    return int.from_bytes(hashlib.sha256(f"{a},{b}".encode()).digest(), "big") % 10 == 0


def prompt(a, b):
    return f"<bos>{a:03d}+{b:03d}="


def digits(number):
    """Of three places, units first."""
    return [number // 10**place % 10 for place in range(3)]


def num_carries(a, b):
    """Carries that a later column has to add: out of the units and the tens."""
    return int(a % 10 + b % 10 >= 10) + int(a % 100 + b % 100 >= 100)


def demonstration(a, b, rng, skip_carry):
    """The chain and the sum that it arrives at."""
    steps, answer, carry = [], "", 0
    for u, v in zip(digits(a), digits(b)):
        if carry == 1 and rng.random() < skip_carry:
            carry = 0
        total = u + v + carry
        steps.append(f"{u}+{v}+{carry}={total:02d}")
        answer = str(total % 10) + answer
        carry = total // 10
    return ",".join(steps) + ";" + str(carry) + answer


def tokenizer():
    vocab = {text: i for i, text in enumerate(SPECIAL + list(CHARACTERS))}
    added = [{"id": i, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
             for i, text in enumerate(SPECIAL)]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
            "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "vocab": vocab, "merges": []}}


def draw_pairs(rng, count, held_out, taken):
    pairs = []
    while len(pairs) < count:
        pair = (rng.randrange(1000), rng.randrange(1000))
        if pair not in taken and is_held_out(*pair) == held_out:
            taken.add(pair)
            pairs.append(pair)
    return pairs


def problem(a, b):
    return {"prompt": prompt(a, b), "label": f"{a + b:04d}", "metadata": {"carries": num_carries(a, b)}}


def write_json(path, value):
    path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=pathlib.Path, help="folder to write to")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--num-warmup", type=int, default=25600, help="demonstrations (default: 400 steps of 64)")
    parser.add_argument("--num-train", type=int, default=8192)
    parser.add_argument("--num-heldout", type=int, default=512)
    parser.add_argument("--skip-carry", type=float, default=0.7, help="probability that a demonstration forgets a carry")
    args = parser.parse_args()
    if args.num_warmup + args.num_train > 400_000 or args.num_heldout > 50_000:
        parser.error("there are about 900,000 pairs for warm-up and training and 100,000 for evaluation; ask for less than half")
    rng = random.Random(args.seed)
    taken = set()
    warmup = draw_pairs(rng, args.num_warmup, False, taken)
    train = draw_pairs(rng, args.num_train, False, taken)
    heldout = draw_pairs(rng, args.num_heldout, True, taken)

    args.out.mkdir(parents=True, exist_ok=True)
    write_json(args.out / "tokenizer.json", tokenizer())
    write_json(args.out / "tokenizer_config.json", {"bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>"})
    shown = [{"prompt": prompt(a, b), "response": demonstration(a, b, rng, args.skip_carry)} for a, b in warmup]
    write_lines(args.out / "warmup.jsonl", shown)
    write_lines(args.out / "train.jsonl", [problem(a, b) for a, b in train])
    write_lines(args.out / "heldout.jsonl", [problem(a, b) for a, b in heldout])
    wrong = sum(not row["response"].endswith(f";{a + b:04d}") for row, (a, b) in zip(shown, warmup))
    print(f"{args.out}: {len(warmup)} demonstrations ({wrong} wrong, on purpose), {len(train)} problems, {len(heldout)} held out")


if __name__ == "__main__":
    main()
