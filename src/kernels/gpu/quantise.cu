// Codes by the bits of the values, the same on every chip; none of the chips' own conversions, which differ in what
// they do at the ends.
#include "kernels/gpu/quantise.h"

#include "kernels/gpu/row.h"

namespace kernels::gpu {
namespace {

constexpr int kLanes = 256;
constexpr int kBlock = 128;  // rows and columns of a block of a weight
constexpr int kNanByte = 255;

// The nearest e4m3 code, ties to the even one; of a finite value, at most 448 (0x7e).
GPU_FUNCTION uint8_t e4m3_code(float x) {
  constexpr float kStepShift = 0x1p14f;  // its own step is 2^-9, that of values below the smallest normal, 2^-6
  const int32_t bits = bits_of(magnitude(x));
  const int32_t code = bits < (127 - 6) << 23 ? bits_of(magnitude(x) + kStepShift) - bits_of(kStepShift)
                                              : ((bits + 0x7ffff + (bits >> 20 & 1)) >> 20) - ((127 - 7) << 3);
  return static_cast<uint8_t>((code < 0x7e ? code : 0x7e) | (bits_of(x) < 0 ? 0x80 : 0));
}

GPU_FUNCTION uint8_t nan_code(Encoding encoding) { return encoding == Encoding::fnuz ? 0x80 : 0x7f; }

// What is stored for an OCP code or scale.
GPU_FUNCTION uint8_t stored_code(uint8_t code, Encoding encoding) {
  return encoding == Encoding::fnuz && code == 0x80 ? 0 : code;  // FNUZ has no -0
}
GPU_FUNCTION uint8_t stored_scale(int byte, Encoding encoding) {
  return static_cast<uint8_t>(encoding == Encoding::ocp ? byte : (byte < 254 ? byte + 1 : kNanByte));
}

GPU_FUNCTION float code_value(uint8_t code, Encoding encoding) {
  const bool fnuz = encoding == Encoding::fnuz;
  if (fnuz ? code == 0x80 : (code & 0x7f) == 0x7f) return not_a_number();
  // Exponent and mantissa as those of an f32, whose bias is 120 more (FNUZ: 119); exact, of subnormals too.
  const float value = float_of((code & 0x7f) << 20) * (fnuz ? 0x1p119f : 0x1p120f);
  return code >= 0x80 ? -value : value;
}

GPU_FUNCTION float scale_value(uint8_t byte) { return byte == kNanByte ? not_a_number() : power_of_two(byte); }

GPU_KERNEL simulate_kernel(cpu::GroupedRows rows, BlockFormat format) {
  const Lanes lanes;
  each_row(rows.rows, [&](int64_t r) {
    simulate_row(lanes, rows.from + r * rows.columns, rows.to + r * rows.columns, rows, format);
  });
}

GPU_KERNEL group_kernel(QuantisedGroups of) {
  const Lanes lanes;
  const int64_t num_groups = (of.columns + of.group - 1) / of.group;
  each_row(of.rows, [&](int64_t r) {
    const float* x = of.values + r * of.columns;
    uint8_t *codes = of.codes + r * of.columns, *scales = of.scales + r * num_groups;
    each_group(lanes, x, of.columns, of.group, [&](const Group& group, int64_t i, int32_t amax) {
      const int32_t bits = with_floor(amax, BlockFormat::e4m3);
      const bool finite = bits < kNotFinite;
      const int32_t byte = finite ? cpu::scale_byte(bits, cpu::scale_rule(BlockFormat::e4m3)) : kNanByte;
      codes[i] = finite ? stored_code(e4m3_code(x[i] * power_of_two(254 - byte)), of.encoding) : nan_code(of.encoding);
      if (i == group.begin) scales[group.index] = stored_scale(byte, of.encoding);
    });
  });
}

struct TileMemory {
  int32_t largest[kMostLanes / kTeam];  // of a team
};

// Block b of a stack: run(place of a value) for the values of each lane.
template <class Run>
GPU_FUNCTION void each_in_tile(const QuantisedBlocks& of, int64_t b, int lane, int lanes, const Run& run) {
  const int64_t across = (of.columns + kBlock - 1) / kBlock, down = (of.rows + kBlock - 1) / kBlock;
  const int64_t matrix = b / (across * down), row = b / across % down * kBlock, column = b % across * kBlock;
  for (int i = lane; i < kBlock * kBlock; i += lanes) {
    const int64_t r = row + i / kBlock, c = column + i % kBlock;
    if (r < of.rows && c < of.columns) run((matrix * of.rows + r) * of.columns + c);
  }
}

GPU_FUNCTION void quantise_tile(const Lanes& lanes, const QuantisedBlocks& of, int64_t b, TileMemory& memory) {
  Per<int32_t> amax(lanes);
  lanes.each([&](int lane) {
    int32_t largest = 0;
    each_in_tile(of, b, lane, lanes.count(),
                 [&](int64_t at) { largest = std::max(largest, bits_of(magnitude(of.values[at]))); });
    amax[lane] = largest;
  });
  join_teams(lanes, amax, [](int32_t x, int32_t y) { return x > y ? x : y; });
  lanes.each([&](int lane) {
    if (lane % kTeam == 0) memory.largest[lane / kTeam] = amax[lane];
  });
  lanes.each([&](int lane) {
    int32_t bits = 0;
    for (int team = 0; team < lanes.count() / kTeam; ++team) bits = std::max(bits, memory.largest[team]);
    const bool finite = bits < kNotFinite;
    const int32_t byte = !finite     ? kNanByte
                         : bits == 0 ? cpu::kZeroBlockByte
                                     : cpu::scale_byte(bits, cpu::scale_rule(BlockFormat::e4m3));
    if (lane == 0) of.scales[b] = stored_scale(byte, of.encoding);
    each_in_tile(of, b, lane, lanes.count(), [&](int64_t at) {
      const float x = bits == 0 ? 0.0f : of.values[at];  // a block of zeros has no -0
      of.codes[at] = finite ? stored_code(e4m3_code(x * power_of_two(254 - byte)), of.encoding) : nan_code(of.encoding);
    });
  });
}

GPU_FUNCTION int64_t num_tiles(const QuantisedBlocks& of) {
  return of.matrices * ((of.rows + kBlock - 1) / kBlock) * ((of.columns + kBlock - 1) / kBlock);
}

GPU_KERNEL block_kernel(QuantisedBlocks of) {
  const Lanes lanes;
  TileMemory& memory = shared_memory<TileMemory>();
  each_row(num_tiles(of), [&](int64_t b) { quantise_tile(lanes, of, b, memory); });
}

GPU_KERNEL dequantise_kernel(StoredBlocks of) {
  const Lanes lanes;
  const int64_t across = (of.columns + of.block_columns - 1) / of.block_columns;
  const int64_t down = (of.rows + of.block_rows - 1) / of.block_rows;
  each_row(of.matrices * of.rows, [&](int64_t r) {
    const int64_t scales = (r / of.rows * down + r % of.rows / of.block_rows) * across, first = r * of.columns;
    lanes.each([&](int lane) {
      for (int64_t c = lane; c < of.columns; c += lanes.count()) {
        const int64_t at = scales + c / of.block_columns;
        const float scale = of.scale_bytes != nullptr ? scale_value(of.scale_bytes[at]) : of.scale_values[at];
        of.values[first + c] = code_value(of.codes[first + c], of.encoding) * scale;
      }
    });
  });
}

}  // namespace

void simulate_groups(const cpu::GroupedRows& rows, BlockFormat format, Queue queue) {
  check_sizes(rows.group >= 1 && rows.columns >= 0, "columns, group", rows.columns, rows.group);
  launch("simulate_groups", simulate_kernel, {rows.columns > 0 ? rows.rows : 0, kLanes}, queue, rows, format);
}

void quantise_groups(const QuantisedGroups& groups, Queue queue) {
  check_sizes(groups.group >= 1 && groups.columns >= 0, "columns, group", groups.columns, groups.group);
  launch("quantise_groups", group_kernel, {groups.columns > 0 ? groups.rows : 0, kLanes}, queue, groups);
}

void quantise_blocks(const QuantisedBlocks& blocks, Queue queue) {
  check_sizes(blocks.matrices >= 0 && blocks.rows >= 0 && blocks.columns >= 0, "rows, columns", blocks.rows,
              blocks.columns);
  const int64_t tiles =
      blocks.matrices * ((blocks.rows + kBlock - 1) / kBlock) * ((blocks.columns + kBlock - 1) / kBlock);
  launch("quantise_blocks", block_kernel, {tiles, kLanes}, queue, blocks);
}

void dequantise_blocks(const StoredBlocks& blocks, Queue queue) {
  check_sizes(blocks.matrices >= 0 && blocks.rows >= 0 && blocks.columns >= 0, "rows, columns", blocks.rows,
              blocks.columns);
  check_sizes(blocks.block_rows >= 1 && blocks.block_columns >= 1, "rows and columns of a block", blocks.block_rows,
              blocks.block_columns);
  const int64_t rows = blocks.columns > 0 ? blocks.matrices * blocks.rows : 0;
  const bool bytes = blocks.scale_bytes != nullptr, values = blocks.scale_values != nullptr;
  check_sizes(rows == 0 || bytes != values, "scales of one kind: bytes, values", bytes, values);
  launch("dequantise_blocks", dequantise_kernel, {rows, kLanes}, queue, blocks);
}

}  // namespace kernels::gpu
