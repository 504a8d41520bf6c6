// The tables of renamed parts, and the translation of a whole name.
#include "checkpoint/names.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "base/check.h"

namespace checkpoint {
namespace {

using std::string_view;
using Table = std::unordered_map<string_view, string_view>;

// Names outside the layers, without a leading "model.".
const Table& global_names() {
  static const Table kNames = {
      {"embed.weight", "embed.weight"},    {"embed_tokens.weight", "embed.weight"}, {"head.weight", "head.weight"},
      {"lm_head.weight", "head.weight"},   {"norm.weight", "norm.weight"},          {"hc_head_fn", "hc_head_fn"},
      {"hc_head_base", "hc_head_base"},    {"hc_head_scale", "hc_head_scale"},      {"hc_head.hc_fn", "hc_head_fn"},
      {"hc_head.hc_base", "hc_head_base"}, {"hc_head.hc_scale", "hc_head_scale"},
  };
  return kNames;
}

// Tensors of a block that have no scales, by their whole name inside the block; "attn." stands for self_attn too,
// "ffn." for mlp.
const Table& plain_names() {
  static const Table kNames = {
      {"attn_norm.weight", "attn_norm.weight"},
      {"input_layernorm.weight", "attn_norm.weight"},
      {"ffn_norm.weight", "ffn_norm.weight"},
      {"post_attention_layernorm.weight", "ffn_norm.weight"},
      {"hc_attn_fn", "hc_attn_fn"},
      {"hc_attn_base", "hc_attn_base"},
      {"hc_attn_scale", "hc_attn_scale"},
      {"attn_hc.fn", "hc_attn_fn"},
      {"attn_hc.base", "hc_attn_base"},
      {"attn_hc.scale", "hc_attn_scale"},
      {"hc_ffn_fn", "hc_ffn_fn"},
      {"hc_ffn_base", "hc_ffn_base"},
      {"hc_ffn_scale", "hc_ffn_scale"},
      {"ffn_hc.fn", "hc_ffn_fn"},
      {"ffn_hc.base", "hc_ffn_base"},
      {"ffn_hc.scale", "hc_ffn_scale"},
      {"attn.q_norm.weight", "attn.q_norm.weight"},
      {"attn.q_a_norm.weight", "attn.q_norm.weight"},
      {"attn.kv_norm.weight", "attn.kv_norm.weight"},
      {"attn.norm.weight", "attn.kv_norm.weight"},  // what save_pretrained makes of it
      {"attn.attn_sink", "attn.attn_sink"},
      {"attn.sinks", "attn.attn_sink"},
      {"attn.compressor.ape", "attn.compressor.ape"},
      {"attn.compressor.position_bias", "attn.compressor.ape"},
      {"attn.compressor.norm.weight", "attn.compressor.norm.weight"},
      {"attn.compressor.kv_norm.weight", "attn.compressor.norm.weight"},
      {"attn.indexer.compressor.ape", "attn.indexer.compressor.ape"},
      {"attn.compressor.indexer.position_bias", "attn.indexer.compressor.ape"},
      {"attn.indexer.compressor.norm.weight", "attn.indexer.compressor.norm.weight"},
      {"attn.compressor.indexer.kv_norm.weight", "attn.indexer.compressor.norm.weight"},
      {"ffn.gate.bias", "ffn.gate.bias"},
      {"ffn.gate.e_score_correction_bias", "ffn.gate.bias"},
      {"ffn.gate.tid2eid", "ffn.gate.tid2eid"},
      {"ffn.topk.tid2eid", "ffn.gate.tid2eid"},
      // Of the MTP block only.
      {"enorm.weight", "enorm.weight"},
      {"hnorm.weight", "hnorm.weight"},
      {"norm.weight", "norm.weight"},
      {"hc_head_fn", "hc_head_fn"},
      {"hc_head_base", "hc_head_base"},
      {"hc_head_scale", "hc_head_scale"},
  };
  return kNames;
}

// Matrices of a block, without ".weight" or the suffix of their scales; "{}" stands for the number of an expert.
const Table& matrix_names() {
  static const Table kNames = {
      {"attn.wq_a", "attn.wq_a"},
      {"attn.q_a_proj", "attn.wq_a"},
      {"attn.wq_b", "attn.wq_b"},
      {"attn.q_b_proj", "attn.wq_b"},
      {"attn.wkv", "attn.wkv"},
      {"attn.kv_proj", "attn.wkv"},
      {"attn.wo_a", "attn.wo_a"},
      {"attn.o_a_proj", "attn.wo_a"},
      {"attn.wo_b", "attn.wo_b"},
      {"attn.o_b_proj", "attn.wo_b"},
      {"attn.compressor.wkv", "attn.compressor.wkv"},
      {"attn.compressor.kv_proj", "attn.compressor.wkv"},
      {"attn.compressor.wgate", "attn.compressor.wgate"},
      {"attn.compressor.gate_proj", "attn.compressor.wgate"},
      {"attn.indexer.wq_b", "attn.indexer.wq_b"},
      {"attn.compressor.indexer.q_b_proj", "attn.indexer.wq_b"},
      {"attn.indexer.weights_proj", "attn.indexer.weights_proj"},
      {"attn.compressor.indexer.weights_proj", "attn.indexer.weights_proj"},
      {"attn.compressor.indexer.scorer.weights_proj", "attn.indexer.weights_proj"},
      {"attn.indexer.compressor.wkv", "attn.indexer.compressor.wkv"},
      {"attn.compressor.indexer.kv_proj", "attn.indexer.compressor.wkv"},
      {"attn.indexer.compressor.wgate", "attn.indexer.compressor.wgate"},
      {"attn.compressor.indexer.gate_proj", "attn.indexer.compressor.wgate"},
      {"ffn.gate", "ffn.gate"},
      {"ffn.shared_experts.w1", "ffn.shared_experts.w1"},
      {"ffn.shared_experts.gate_proj", "ffn.shared_experts.w1"},
      {"ffn.shared_experts.w2", "ffn.shared_experts.w2"},
      {"ffn.shared_experts.down_proj", "ffn.shared_experts.w2"},
      {"ffn.shared_experts.w3", "ffn.shared_experts.w3"},
      {"ffn.shared_experts.up_proj", "ffn.shared_experts.w3"},
      {"ffn.experts.{}.w1", "ffn.experts.{}.w1"},
      {"ffn.experts.{}.gate_proj", "ffn.experts.{}.w1"},
      {"ffn.experts.{}.w2", "ffn.experts.{}.w2"},
      {"ffn.experts.{}.down_proj", "ffn.experts.{}.w2"},
      {"ffn.experts.{}.w3", "ffn.experts.{}.w3"},
      {"ffn.experts.{}.up_proj", "ffn.experts.{}.w3"},
      {"e_proj", "e_proj"},  // of the MTP block only
      {"h_proj", "h_proj"},
  };
  return kNames;
}

// Native names inside a layer that differ in the HF-style dialect by more than the module, without ".weight" or
// ".scale" of a matrix.
const Table& hf_names() {
  static const Table kNames = {
      {"attn_norm.weight", "input_layernorm.weight"},
      {"ffn_norm.weight", "post_attention_layernorm.weight"},
      {"ffn.gate.bias", "mlp.gate.e_score_correction_bias"},
      {"ffn.gate.tid2eid", "mlp.topk.tid2eid"},
      {"ffn.shared_experts.w1", "mlp.shared_experts.gate_proj"},
      {"ffn.shared_experts.w2", "mlp.shared_experts.down_proj"},
      {"ffn.shared_experts.w3", "mlp.shared_experts.up_proj"},
      {"ffn.experts.{}.w1", "mlp.experts.{}.gate_proj"},
      {"ffn.experts.{}.w2", "mlp.experts.{}.down_proj"},
      {"ffn.experts.{}.w3", "mlp.experts.{}.up_proj"},
  };
  return kNames;
}

bool only_mtp(string_view native) {
  constexpr string_view kOnly[] = {"enorm.weight", "hnorm.weight",  "norm.weight", "hc_head_fn",
                                   "hc_head_base", "hc_head_scale", "e_proj",      "h_proj"};
  return std::find(std::begin(kOnly), std::end(kOnly), native) != std::end(kOnly);
}

bool take_prefix(string_view& text, string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

bool take_suffix(string_view& text, string_view suffix) {
  if (!text.ends_with(suffix)) return false;
  text.remove_suffix(suffix.size());
  return true;
}

// Takes "12." off the front: digits without a leading zero, at most six. Empty when there is none.
string_view take_number(string_view& text) {
  const size_t dot = text.find('.');
  if (dot == string_view::npos || dot == 0 || dot > 6) return {};
  const string_view digits = text.substr(0, dot);
  if (!std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; })) return {};
  if (digits.size() > 1 && digits[0] == '0') return {};
  text.remove_prefix(dot + 1);
  return digits;
}

const string_view* find(const Table& table, string_view name) {
  const auto at = table.find(name);
  return at == table.end() ? nullptr : &at->second;
}

// self_attn. and mlp. as the native attn. and ffn.
std::string with_native_module(string_view rest) {
  if (take_prefix(rest, "self_attn.")) return "attn." + std::string(rest);
  if (take_prefix(rest, "mlp.")) return "ffn." + std::string(rest);
  return std::string(rest);
}

// The name inside a block -> the native name inside it.
std::optional<Translation> block_name(string_view name, bool is_mtp) {
  const std::string whole = with_native_module(name);
  const auto allowed = [&](const string_view* native) { return native != nullptr && (is_mtp || !only_mtp(*native)); };
  if (const string_view* native = find(plain_names(), whole); allowed(native))
    return Translation{std::string(*native), Part::value};
  if (whole == "ffn.experts.gate_up_proj") return Translation{"ffn.experts.{}.w1.weight", Part::gate_up_stack};
  if (whole == "ffn.experts.down_proj") return Translation{"ffn.experts.{}.w2.weight", Part::down_stack};
  string_view rest = whole;
  Part part = Part::value;
  if (!take_suffix(rest, ".weight")) {
    if (!take_suffix(rest, ".scale") && !take_suffix(rest, ".weight_scale_inv")) return std::nullopt;
    part = Part::scales;
  }
  std::string key(rest), expert;
  if (take_prefix(rest, "ffn.experts.")) {
    expert = take_number(rest);
    if (expert.empty()) return std::nullopt;
    key = "ffn.experts.{}." + std::string(rest);
  }
  const string_view* native = find(matrix_names(), key);
  if (!allowed(native)) return std::nullopt;
  std::string result(*native);
  if (const size_t at = result.find("{}"); at != std::string::npos) result.replace(at, 2, expert);
  return Translation{result + ".weight", part};
}

// The native name inside a layer -> the HF-style one.
std::string hf_block_name(string_view native) {
  if (const string_view* whole = find(hf_names(), native)) return std::string(*whole);
  string_view stem = native;
  std::string suffix;
  if (take_suffix(stem, ".weight")) suffix = ".weight";
  if (take_suffix(stem, ".scale")) suffix = ".weight_scale_inv";
  std::string key(stem), expert;
  if (string_view rest = stem; take_prefix(rest, "ffn.experts.")) {
    expert = take_number(rest);
    key = "ffn.experts.{}." + std::string(rest);
  }
  const string_view* renamed = find(hf_names(), key);
  std::string name(renamed != nullptr ? *renamed : stem);
  if (const size_t at = name.find("{}"); at != std::string::npos) name.replace(at, 2, expert);
  if (name.starts_with("attn.")) name = "self_attn." + name.substr(5);
  if (name.starts_with("ffn.")) name = "mlp." + name.substr(4);
  return name + suffix;
}

}  // namespace

std::string to_hf(const std::string& native) {
  const std::optional<Translation> same = to_native(native);
  CHECK(same && (same->part == Part::scales || same->native == native), "{} is no native name", native);
  string_view rest = native;
  if (take_prefix(rest, "mtp.")) return native;
  if (native == "embed.weight") return "model.embed_tokens.weight";
  if (native == "head.weight") return "lm_head.weight";
  if (!take_prefix(rest, "layers.")) return "model." + native;
  const string_view number = take_number(rest);
  return "model.layers." + std::string(number) + "." + hf_block_name(rest);
}

std::optional<Translation> to_native(const std::string& name) {
  string_view rest = name;
  take_prefix(rest, "model.");
  if (const string_view* native = find(global_names(), rest)) return Translation{std::string(*native), Part::value};
  const bool is_mtp = take_prefix(rest, "mtp.");
  if (!is_mtp && !take_prefix(rest, "layers.")) return std::nullopt;
  const string_view number = take_number(rest);
  if (number.empty()) return std::nullopt;
  const std::string prefix = (is_mtp ? "mtp." : "layers.") + std::string(number) + ".";
  if (is_mtp && (rest == "emb.tok_emb.weight" || rest == "head.weight"))
    return Translation{prefix + std::string(rest), Part::copy};
  std::optional<Translation> inside = block_name(rest, is_mtp);
  if (inside) inside->native = prefix + inside->native;
  return inside;
}

}  // namespace checkpoint
