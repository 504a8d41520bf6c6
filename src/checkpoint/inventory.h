// What a model folder holds, counted: parameters and bytes by part of the model, stored formats, every tensor. From the
// config and the headers alone.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/stored_weights.h"

namespace checkpoint {

struct PartCount {
  std::string part;
  int64_t tensors = 0;     // parameters of the model, experts one by one
  int64_t parameters = 0;  // numbers in them
  int64_t active = 0;      // of those, what one token uses: all but the experts that it is not sent to
  int64_t bytes = 0;       // of the stored tensors
};

// By part of the model in a fixed order, parts without parameters left out. `bytes` is 0 everywhere without files.
struct Parts {
  std::vector<PartCount> parts;
  PartCount model, mtp;  // totals without and of the MTP block; tables of expert ids (tid2eid) are in neither
  int64_t active_without_embedding = 0;  // of `model`: an embedding is looked up, not multiplied
};
Parts count_parts(const model::Config& config, const StoredWeights* stored = nullptr);

// "attention" for "layers.0.attn.wq_a.weight".
std::string part_of(const std::string& native);

struct FormatCount {
  std::string dtype;
  int64_t tensors = 0, bytes = 0;
};
std::vector<FormatCount> count_formats(const tensor::SafetensorsFolder& files);

// A stored tensor; or, in a folded table, all that differ in the numbers of layer and expert only.
struct TableRow {
  std::string name;    // folded: "layers.{0..42}.ffn.experts.{0..255}.w1.weight"
  std::string native;  // the parameter that it belongs to, folded likewise; empty for a name that no dialect has
  std::string part;
  std::string dtype;
  std::vector<int64_t> shape;
  int64_t tensors = 1, bytes = 0;
  std::string file;  // empty where they are in several
};
std::vector<TableRow> tensor_table(const tensor::SafetensorsFolder& files);
std::vector<TableRow> folded(const std::vector<TableRow>& rows);

}  // namespace checkpoint
