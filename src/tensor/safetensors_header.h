// The header of a safetensors file and the index of a sharded folder as text: parsing with every check, and writing.
#pragma once
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/safetensors.h"

namespace tensor {

// JSON with fast look-up, for objects of many thousand names (base::Json keeps the order of keys and searches them one
// by one).
using JsonMap = nlohmann::json;

// Strict, and a key that an object has twice is refused: either value may be the wrong one. Error{corruption} names
// `where` and the byte.
JsonMap parse_unique_json(std::string_view text, const std::string& where);

// A name from a file for a message: quoted, control characters escaped, cut at 200 characters.
std::string quote_name(const std::string& name);

struct Header {
  Metadata metadata;
  std::vector<StoredTensor> tensors;  // in the order of their bytes
};

// data_bytes: what the file holds behind the header. where: the file's name for messages.
Header parse_header(std::string_view text, int64_t data_bytes, const std::string& where);

// The header of tensors that stand one after the other, padded with spaces to a multiple of 8.
std::string write_header(const std::vector<TensorToWrite>& tensors, const Metadata& metadata);

// weight_map of an index: tensor name -> file name, which must be a plain name of the same folder.
std::map<std::string, std::string> parse_index(std::string_view text, const std::string& where);

}  // namespace tensor
