// Fields of two model configs, compared.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "model/config.h"

namespace compare {

struct ConfigField {
  std::string name;                                       // as in config.json
  std::function<std::string(const model::Config&)> text;  // its value, the same text for the same value
  std::function<void(model::Config& to, const model::Config& from)> take;
  bool sizes = false;  // it shapes tensors: a model cannot run with another value
};

struct ConfigDifference {
  const ConfigField* field = nullptr;
  std::string a, b;  // values
};

// Every field that a forward pass depends on.
const std::vector<ConfigField>& config_fields();
std::vector<ConfigDifference> config_differences(const model::Config& a, const model::Config& b);

}  // namespace compare
