// Members of a row, each with its rule.
#include "data/row.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "data/json_fields.h"
#include "data/strict_json.h"

namespace data {
namespace {

using base::Code;
using base::Json;

constexpr size_t kMaxColumns = 4096;  // of a row or its metadata; looking up a key takes time in their number
constexpr std::string_view kVerlLabel = "reward_model.ground_truth";

void check_columns(const Json& object, std::string_view what, const std::string& where) {
  if (object.size() <= kMaxColumns) return;
  base::fail(Code::corruption, "{}: the {} has {} members, more than {}", where, what, object.size(), kMaxColumns);
}

std::string_view outermost(std::string_view path) { return path.substr(0, path.find('.')); }

bool is_blank(std::string_view text) { return text.find_first_not_of(" \t\r\n") == std::string_view::npos; }

// Shortest decimal text that reads back as the same number.
std::string number_text(const Json& number, const std::string& where) {
  constexpr double kLastExact = 9007199254740992.0;  // 2^53
  if (number.is_number_integer()) return number.dump();
  const double value = number.get<double>();
  if (std::abs(value) > kLastExact) {
    base::fail(Code::invalid_argument, "{}: the label {} is a number too large to be exact; write it as a text", where,
               number.dump());
  }
  return fmt::format("{}", value);
}

Json parse_tools(const Json& value, const std::string& where) {
  Json tools = value.is_string() ? parse_strict_json(value.get_ref<const std::string&>(), where + ", tools") : value;
  if (!tools.is_array() && !tools.is_null()) {
    base::fail(Code::invalid_argument, "{}: the tools are {} and should be a list (or the JSON text of one)", where,
               kind_of(tools));
  }
  return tools;
}

void check_messages(const Json& messages, const std::string& where) {
  constexpr std::array<std::string_view, 6> kRoles = {"system", "user",      "assistant",
                                                      "tool",   "developer", "latest_reminder"};
  if (messages.empty()) base::fail(Code::invalid_argument, "{}: the prompt has no messages", where);
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string at = fmt::format("{}, message {}", where, i);
    const std::string& role = text_member(messages[i], "role", at);
    if (std::find(kRoles.begin(), kRoles.end(), role) == kRoles.end()) {
      base::fail(Code::invalid_argument,
                 "{}: unknown role {}; known: system, user, assistant, tool, developer, latest_reminder", at,
                 quote(role));
    }
    const Json* const content = find_member(messages[i], "content", at);
    const bool is_empty =
        content == nullptr || content->is_null() || (content->is_string() && is_blank(content->get<std::string>()));
    if (role == "user" && is_empty) {
      base::fail(Code::invalid_argument, "{}: the user's message is empty; the model would be asked nothing", at);
    }
    if (i + 1 == messages.size() && role != "user" && role != "tool" && role != "developer") {
      base::fail(Code::invalid_argument,
                 "{}: the last message is from {}; a prompt must end with one from user, tool or developer", at, role);
    }
  }
}

// The messages of the prompt, with the system prompt and the tools of the settings and the row put in.
Json messages_of(const Json& prompt, const Json& row, const DatasetSettings& settings, const std::string& where) {
  Json messages = prompt.is_string() ? Json::array({{{"role", "user"}, {"content", prompt}}}) : prompt;
  check_messages(messages, where);
  const Json* const tools_value = find_path(row, settings.tools_key);
  const Json tools = tools_value == nullptr ? Json() : parse_tools(*tools_value, where);
  const bool has_system = messages[0]["role"] == "system";
  if (!has_system && (!settings.system_prompt.empty() || !tools.empty())) {
    messages.insert(messages.begin(), Json{{"role", "system"}, {"content", settings.system_prompt}});
  }
  if (!tools.empty()) {
    if (messages[0].contains("tools")) {
      base::fail(Code::invalid_argument, "{}: tools stand both in the row and in its system message", where);
    }
    messages[0]["tools"] = tools;
  }
  return messages;
}

}  // namespace

const Json* find_path(const Json& row, std::string_view path) {
  if (path.empty() || !row.is_object()) return nullptr;
  for (const auto& [key, value] : row.get_ref<const Json::object_t&>()) {
    if (key == path) return &value;
  }
  const size_t dot = path.find('.');
  if (dot == std::string_view::npos) return nullptr;
  const Json* const inner = find_path(row, path.substr(0, dot));
  return inner == nullptr ? nullptr : find_path(*inner, path.substr(dot + 1));
}

RowKeys choose_keys(const DatasetSettings& settings, const Json& first_row) {
  const bool is_verl =
      settings.format == "verl" || (settings.format == "auto" && find_path(first_row, kVerlLabel) != nullptr);
  RowKeys keys;
  keys.prompt = settings.prompt_key.empty() ? "prompt" : settings.prompt_key;
  keys.label = settings.label_key.empty() ? std::string(is_verl ? kVerlLabel : "label") : settings.label_key;
  keys.prompt_must_be_text = settings.format == "plain";
  return keys;
}

std::string label_of(const Json& row, const RowKeys& keys, bool is_required, const std::string& where) {
  const Json* const value = find_path(row, keys.label);
  if (value == nullptr && !is_required) return {};
  if (value == nullptr) {
    base::fail(Code::corruption, "{}: the row has no label (\"{}\"); set label_key, or require_label = false", where,
               keys.label);
  }
  if (value->is_number()) return number_text(*value, where);
  if (!value->is_string()) {
    base::fail(Code::corruption, "{}: the label (\"{}\") is {} and should be a text or a number", where, keys.label,
               kind_of(*value));
  }
  std::string label = value->get<std::string>();
  if (is_required && is_blank(label)) {
    base::fail(Code::corruption, "{}: the label (\"{}\") is empty; no answer could earn its reward", where, keys.label);
  }
  return label;
}

Json metadata_of(const Json& row, const RowKeys& keys, const DatasetSettings& settings, const std::string& where) {
  check_columns(row, "row", where);
  Json metadata = Json::object();
  for (const auto& [key, value] : row.get_ref<const Json::object_t&>()) {
    const bool is_label = key == keys.label || (key == outermost(keys.label) && value.is_object() && value.size() == 1);
    if (key == outermost(keys.prompt) || key == keys.prompt || is_label || key == settings.metadata_key) continue;
    metadata[key] = value;
  }
  const Json* const extra = find_path(row, settings.metadata_key);
  if (extra == nullptr || extra->is_null()) return metadata;
  if (!extra->is_object()) {
    base::fail(Code::corruption, "{}: \"{}\" is {} and should be an object", where, settings.metadata_key,
               kind_of(*extra));
  }
  check_columns(*extra, "metadata", where);
  for (const auto& [key, value] : extra->get_ref<const Json::object_t&>()) metadata[key] = value;
  return metadata;
}

std::string id_of(const Json& row, const DatasetSettings& settings, const std::string& where) {
  const Json* const id = find_path(row, settings.id_key);
  if (id == nullptr || id->is_null()) return where;
  if (id->is_string()) return id->get<std::string>();
  if (id->is_number_integer()) return id->dump();
  base::fail(Code::corruption, "{}: \"{}\" is {} and should be a text or an integer", where, settings.id_key,
             kind_of(*id));
}

RenderedPrompt prompt_of(const Json& row, const RowKeys& keys, const DatasetSettings& settings,
                         const std::string& where) {
  const Json* const prompt = find_path(row, keys.prompt);
  if (prompt == nullptr)
    base::fail(Code::corruption, "{}: the row has no prompt (\"{}\"); set prompt_key", where, keys.prompt);
  const bool only_text = keys.prompt_must_be_text || !settings.apply_chat_template;
  if (!prompt->is_string() && (only_text || !prompt->is_array())) {
    base::fail(Code::invalid_argument, "{}: the prompt (\"{}\") is {} and should be a text{}", where, keys.prompt,
               kind_of(*prompt),
               keys.prompt_must_be_text        ? " in the plain form"
               : !settings.apply_chat_template ? "; messages need apply_chat_template = true"
                                               : " or a list of messages");
  }
  if (prompt->is_string() && is_blank(prompt->get_ref<const std::string&>())) {
    base::fail(Code::invalid_argument, "{}: the prompt is empty; the model would be asked nothing", where);
  }
  if (!settings.apply_chat_template) {
    const std::string& text = prompt->get_ref<const std::string&>();
    return {text, settings.markers_in_raw_text ? std::vector<ByteRange>{} : std::vector<ByteRange>{{0, text.size()}}};
  }
  const ChatOptions options{.thinking = thinking_mode_from(settings.thinking_mode),
                            .effort = reasoning_effort_from(settings.reasoning_effort),
                            .drop_thinking = settings.drop_thinking};
  return render_chat(messages_of(*prompt, row, settings, where), options, where);
}

}  // namespace data
