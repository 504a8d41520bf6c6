// Rotary embedding of the last 2 * pairs dims of rows, over raw f32. Torch-free. A pair (a, b) becomes
// (a * cos - b * sin, a * sin + b * cos), each product rounded, then their sum: what tensor operations compute, to the
// bit. inverse turns the other way, which is also the gradient of a turn.
#pragma once
#include <cstdint>

namespace kernels::cpu {

struct Turn {
  const float* cos = nullptr;  // [P, pairs], row position[t] for token t
  const float* sin = nullptr;
  const int32_t* position = nullptr;
  int64_t pairs = 0;           // 0: nothing is turned
  int64_t rows_per_token = 1;  // row r belongs to token r / rows_per_token
  bool inverse = false;
};

struct TurnedRows {
  const float* x = nullptr;  // [rows, k]
  float* y = nullptr;        // may be x
  int64_t rows = 0, k = 0;
  Turn turn;
  bool round_bf16 = false;  // all of the row, after the turn
};
void rotate(const TurnedRows& rows);

}  // namespace kernels::cpu
