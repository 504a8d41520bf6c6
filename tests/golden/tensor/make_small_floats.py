"""Writes small_floats.json: the small number formats as the ml_dtypes package knows them, which is not what Furlong computes with.

    python make_small_floats.py > small_floats.json     (needs ml_dtypes and numpy; tried with ml_dtypes 0.6.0)

Per format: `decode_hex`, the value of each code as eight hex digits of f32 (NaN as "nan"), and `first_hex`, for each code from 1 to the
largest finite one the smallest positive f32 that is rounded to it. Every one of the 2^31 f32 with a clear sign bit is tried, so the
list says how every f32 is rounded; that -x gives x with the sign bit (FNUZ: 0 where that is zero) is asserted for all of them too.
"""
import json
import sys

import ml_dtypes
import numpy as np

FORMATS = {  # name: dtype, number of codes, sign bit, largest finite code, code of -0
    "e4m3": (ml_dtypes.float8_e4m3fn, 256, 0x80, 0x7E, 0x80),
    "e4m3_fnuz": (ml_dtypes.float8_e4m3fnuz, 256, 0x80, 0x7F, 0x00),
    "e5m2": (ml_dtypes.float8_e5m2, 256, 0x80, 0x7B, 0x80),
    "e2m1": (ml_dtypes.float4_e2m1fn, 16, 0x8, 0x7, 0x8),
    "e8m0": (ml_dtypes.float8_e8m0fnu, 256, None, None, None),
}
CHUNK = 1 << 24


def decode_hex(dtype, count):
    values = np.arange(count, dtype=np.uint8).view(dtype).astype(np.float32)
    return ["nan" if np.isnan(v) else f"{v.view(np.uint32):08x}" for v in values]


def first_bits(dtype, sign, largest, negative_zero):
    first, highest = {}, 0
    for start in range(0, 0x7F800000, CHUNK):
        bits = np.arange(start, min(start + CHUNK, 0x7F800000), dtype=np.uint32)
        codes = bits.view(np.float32).astype(dtype).view(np.uint8)
        mirrored = (bits | np.uint32(0x80000000)).view(np.float32).astype(dtype).view(np.uint8)
        finite = codes <= largest
        wanted = np.where(codes == 0, negative_zero, codes | sign)
        assert np.array_equal(mirrored[finite], wanted[finite])
        inside = codes[finite]
        assert inside.size == 0 or (inside[0] >= highest and np.all(inside[1:] >= inside[:-1])), "not monotone"
        assert np.all(finite[: inside.size])
        steps = np.flatnonzero(np.diff(inside)) + 1  # finite codes come first, so an index into inside is one into bits
        for at in [0, *steps] if inside.size else []:
            first.setdefault(int(inside[at]), int(bits[at]))
        highest = int(inside[-1]) if inside.size else highest
    assert sorted(first) == list(range(largest + 1)), "a code is never reached"
    return [f"{first[code]:08x}" for code in range(1, largest + 1)]


result = {}
for name, (dtype, count, sign, largest, negative_zero) in FORMATS.items():
    result[name] = {"decode_hex": decode_hex(dtype, count)}
    if sign is not None:
        result[name]["first_hex"] = first_bits(dtype, sign, largest, negative_zero)
json.dump(result, sys.stdout)
print()
