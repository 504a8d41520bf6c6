// One row of a data set: which member is the prompt, the label, the metadata, and the checks on each. Used by
// dataset.cpp only.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "data/chat_encoding.h"
#include "data/dataset.h"

namespace data {

// The keys of a row form, after "auto" has been decided by the first row.
struct RowKeys {
  std::string prompt, label;
  bool prompt_must_be_text = false;
};
RowKeys choose_keys(const DatasetSettings& settings, const base::Json& first_row);

// The member at a key with dots (a key that contains the dots itself comes first); nullptr when there is none.
const base::Json* find_path(const base::Json& row, std::string_view path);

// Errors name where: file and line.
std::string label_of(const base::Json& row, const RowKeys& keys, bool is_required, const std::string& where);
// Everything but prompt and label (their outermost columns); entries of the metadata object win over columns of the
// same name.
base::Json metadata_of(const base::Json& row, const RowKeys& keys, const DatasetSettings& settings,
                       const std::string& where);
std::string id_of(const base::Json& row, const DatasetSettings& settings, const std::string& where);
// The text of the prompt and which of its bytes must not become markers.
RenderedPrompt prompt_of(const base::Json& row, const RowKeys& keys, const DatasetSettings& settings,
                         const std::string& where);

}  // namespace data
