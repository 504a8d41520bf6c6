// The compressor: pools `ratio` tokens into one KV entry, by a softmax over the block's rows that each channel takes
// alone (spec 4.5). With overlap a block also pools the block before it, through other channels: rows of the block
// before give the first K of their 2K channels, own rows the last K; rows before the sequence count as score -inf.
//
//   score row at position p = wgate . x + ape[p mod ratio]
//   entry = turn(norm(round(sum_rows softmax(score) * kv)))          position of the turn: first token of the own block
//
// Order: the row maximum, then numerators and denominator by ascending row, weights normalised, then summed by row
// (f32; decisions 17; a chain of fused multiply-adds). The same function of the same rows in bulk, in chunks and in
// decode.
//
// Gradient (spec 4.5): dkv = w dy, dscore = w dy (kv - y); ape collects dscore over ascending tokens.
//
// Letters: T tokens, K entry dim, C channels (K, or 2K with overlap), B new entries, P rows kept (EntryLayout::rows), S
// slots.
#pragma once
#include "kernels/layout.h"
#include "kernels/rounding.h"

namespace kernels {

using tensor::Tensor;

// Rows of open blocks, row = position mod P; score with ape. f32. Only rows that the sequence itself wrote are read.
struct CompressorState {
  Tensor kv_SPC, score_SPC;
  Tensor entries_SNK;  // finished entries
};

enum class EntryGrid {
  none,
  kv_e4m3,
  index_e2m1
};  // kv: dims before the rope dims, groups of 64; index: hadamard_e2m1

struct CompressorOptions {
  double eps = 1e-6;
  Rounding rounding = Rounding::none;
  EntryGrid grid = EntryGrid::none;
};

// The entries that this pass completes, [B, K]; undefined when there are none. kv, score [T, C]: the projections, score
// without ape. state: nullptr without a cache; else its rows are read, its new rows stored, and the new entries written
// to entries_SNK. Differentiable in kv, score, ape and norm weight without a state.
Tensor pool_entries(const Tensor& kv_TC, const Tensor& score_TC, const Tensor& ape, const Tensor& norm_weight,
                    const CompressorOptions& options, const Layout& layout, const EntryLayout& entries,
                    const RopeTable& table, CompressorState* state);

}  // namespace kernels
