// Lines of ids or texts.
#include "compare/token_file.h"

#include "base/error.h"
#include "data/json_fields.h"
#include "data/jsonl.h"

namespace compare {

using base::Code;

Ids read_ids(const base::Json& json, const std::string& where) {
  if (!json.is_array()) {
    base::fail(Code::corruption, "{}: the token ids are {} and should be a list of numbers", where,
               data::kind_of(json));
  }
  Ids ids;
  ids.reserve(json.size());
  for (const base::Json& id : json) {
    if (!id.is_number_integer() || id < 0 || id > INT32_MAX) {
      base::fail(Code::corruption, "{}: element {} of the token ids is {}, which is no token id", where, ids.size(),
                 base::to_line(id).substr(0, 80));
    }
    ids.push_back(id.get<int32_t>());
  }
  if (ids.empty()) base::fail(Code::corruption, "{}: has no tokens; at least one is needed", where);
  return ids;
}

std::vector<Sequence> read_tokens(const std::filesystem::path& path, const Encode& encode) {
  std::vector<Sequence> sequences;
  int64_t tokens = 0;
  data::read_json_lines(path, [&](const base::Json& row, const std::string& where) {
    const base::Json* const ids =
        row.contains("input_ids") ? data::find_member(row, "input_ids", where) : data::find_member(row, "ids", where);
    if (ids != nullptr) {
      sequences.push_back({read_ids(*ids, where), where});
    } else if (row.contains("text")) {
      sequences.push_back({encode(data::text_member(row, "text", where), where), where});
    } else {
      base::fail(Code::corruption, "{}: should have \"input_ids\" (a list of token ids) or \"text\"", where);
    }
    if (sequences.back().ids.empty()) base::fail(Code::corruption, "{}: the text has no tokens", where);
    tokens += static_cast<int64_t>(sequences.back().ids.size());
    if (tokens > kMaxTokens) {
      base::fail(Code::invalid_argument, "{}: more than {} tokens up to here; compare a part of the file", where,
                 kMaxTokens);
    }
    return true;
  });
  if (sequences.empty())
    base::fail(Code::invalid_argument, "{}: has no lines: there is nothing to score", path.string());
  return sequences;
}

}  // namespace compare
