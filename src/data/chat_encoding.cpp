// Rendering of merged turns (spec 9.2).
#include "data/chat_encoding.h"

#include "base/error.h"
#include "data/chat_messages.h"
#include "data/chat_template.h"
#include "data/json_fields.h"
#include "data/python_json.h"
#include "data/strict_json.h"

namespace data {
namespace {

using base::Code;
using base::Json;

struct Task {
  std::string_view name, marker;
};
constexpr Task kTasks[] = {{"action", "<\uFF5Caction\uFF5C>"},       {"query", "<\uFF5Cquery\uFF5C>"},
                           {"authority", "<\uFF5Cauthority\uFF5C>"}, {"domain", "<\uFF5Cdomain\uFF5C>"},
                           {"title", "<\uFF5Ctitle\uFF5C>"},         {"read_url", "<\uFF5Cread_url\uFF5C>"}};

std::string_view task_marker(const ChatTurn& turn) {
  for (const Task& task : kTasks) {
    if (task.name == turn.task) return task.marker;
  }
  base::fail(Code::invalid_argument, "{}: invalid task '{}'; known: action, query, authority, domain, title, read_url",
             turn.where, turn.task);
}

class Renderer {
 public:
  Renderer(const std::vector<ChatTurn>& turns, const ChatOptions& options, bool drop_thinking)
      : turns_(turns), options_(options), drop_thinking_(drop_thinking), last_user_(last_user_turn(turns)) {}

  void render(size_t first) {
    for (index_ = first; index_ < turns_.size(); ++index_) {
      if (index_ == 0 && thinking() && options_.effort == ReasoningEffort::max) add(kReasoningEffortMax);
      render_turn(turns_[index_]);
      render_transition(turns_[index_]);
    }
  }

  void add(std::string_view text) { prompt_.text += text; }
  RenderedPrompt take() { return std::move(prompt_); }

 private:
  bool thinking() const { return options_.thinking == ThinkingMode::thinking; }

  void add_content(std::string_view text) {
    if (text.empty()) return;
    const size_t begin = prompt_.text.size();
    if (!prompt_.content.empty() && prompt_.content.back().end == begin) {
      prompt_.content.back().end += text.size();
    } else {
      prompt_.content.push_back({begin, begin + text.size()});
    }
    prompt_.text += text;
  }

  [[noreturn]] void fail_content(const ChatTurn& turn, const Json* content) const {
    base::fail(Code::invalid_argument, "{}: the content of a {} message is {} and should be a text", turn.where,
               turn.role, content == nullptr ? "missing" : kind_of(*content));
  }

  // The text of a member; "" when it is absent or null.
  std::string_view text_of(const ChatTurn& turn, std::string_view key) const {
    const Json* const value = find_member(*turn.message, key, turn.where);
    if (value == nullptr || value->is_null()) return {};
    if (!value->is_string()) {
      base::fail(Code::invalid_argument, "{}: \"{}\" is {} and should be a text", turn.where, key, kind_of(*value));
    }
    return value->get_ref<const std::string&>();
  }

  // A member that is present, not null and not empty.
  const Json* filled(const ChatTurn& turn, std::string_view key) const {
    const Json* const value = find_member(*turn.message, key, turn.where);
    return value == nullptr || value->is_null() || value->empty() ? nullptr : value;
  }

  void render_turn(const ChatTurn& turn) {
    if (turn.role == "system") {
      add_content(text_of(turn, "content"));
      render_tools_and_format(turn);
    } else if (turn.role == "developer") {
      const std::string_view text = text_of(turn, "content");
      if (text.empty()) base::fail(Code::invalid_argument, "{}: a developer message needs a content", turn.where);
      add(kUserMarker);
      add_content(text);
      render_tools_and_format(turn);
    } else if (turn.role == "user") {
      render_user(turn);
    } else if (turn.role == "latest_reminder") {
      const Json* const content = find_member(*turn.message, "content", turn.where);
      if (content == nullptr || !content->is_string()) fail_content(turn, content);
      add(kLatestReminderMarker);
      add_content(content->get_ref<const std::string&>());
    } else if (turn.role == "assistant") {
      render_assistant(turn);
    } else {
      base::fail(Code::invalid_argument,
                 "{}: unknown role '{}'; known: system, user, assistant, tool, developer, latest_reminder", turn.where,
                 turn.role);
    }
  }

  void render_tools_and_format(const ChatTurn& turn) {
    if (const Json* const tools = filled(turn, "tools")) {
      if (!tools->is_array()) {
        base::fail(Code::invalid_argument, "{}: \"tools\" is {} and should be an array", turn.where, kind_of(*tools));
      }
      add("\n\n");
      add(kToolsBegin);
      for (size_t i = 0; i < tools->size(); ++i) {
        if (i > 0) add("\n");
        add_content(to_python_json(member((*tools)[i], "function", fmt::format("{}, tools[{}]", turn.where, i))));
      }
      add(kToolsEnd);
    }
    if (const Json* const format = filled(turn, "response_format")) {
      add("\n\n");
      add(kResponseFormatBegin);
      add_content(to_python_json(*format));
    }
  }

  void render_user(const ChatTurn& turn) {
    add(kUserMarker);
    for (size_t i = 0; i < turn.blocks.size(); ++i) {
      if (i > 0) add("\n\n");
      const ChatBlock& block = turn.blocks[i];
      if (block.is_tool_result) {
        render_tool_result(turn, block.content);
      } else if (block.content != nullptr) {
        if (!block.content->is_string()) fail_content(turn, block.content);
        add_content(block.content->get_ref<const std::string&>());
      }
    }
  }

  // A text, or a list of parts of which those of type text count.
  void render_tool_result(const ChatTurn& turn, const Json* content) {
    add(kToolResultBegin);
    if (content != nullptr && content->is_array()) {
      for (size_t i = 0; i < content->size(); ++i) {
        if (i > 0) add("\n\n");
        const Json& part = (*content)[i];
        const std::string& type = text_member(part, "type", turn.where + ", content");
        const Json* const text = find_member(part, "text", turn.where);
        if (type != "text") {
          add_content("[Unsupported " + type + "]");
        } else if (text != nullptr) {
          if (!text->is_string()) fail_content(turn, text);
          add_content(text->get_ref<const std::string&>());
        }
      }
    } else if (content != nullptr) {
      if (!content->is_string()) fail_content(turn, content);
      add_content(content->get_ref<const std::string&>());
    }
    add(kToolResultEnd);
  }

  void render_assistant(const ChatTurn& turn) {
    const bool after_task = index_ > 0 && !turns_[index_ - 1].task.empty();
    if (thinking() && !after_task && (!drop_thinking_ || static_cast<int64_t>(index_) > last_user_)) {
      if (turn.keep_reasoning) add_content(text_of(turn, "reasoning_content"));
      add(kThinkEnd);
    }
    add_content(text_of(turn, "content"));
    if (const Json* const calls = filled(turn, "tool_calls")) render_tool_calls(turn, *calls);
    if (!bool_member_or(*turn.message, "wo_eos", false, turn.where)) add(kEndOfSentence);
  }

  void render_tool_calls(const ChatTurn& turn, const Json& calls) {
    if (!calls.is_array()) {
      base::fail(Code::invalid_argument, "{}: \"tool_calls\" is {} and should be an array", turn.where, kind_of(calls));
    }
    add("\n\n");
    add(kToolCallsOpen);
    add(">\n");
    for (size_t i = 0; i < calls.size(); ++i) {
      const std::string where = fmt::format("{}, tool_calls[{}]", turn.where, i);
      const Json& function = member(calls[i], "function", where);
      add(kInvokeOpen);
      add(" name=\"");
      add_content(text_member(function, "name", where));
      add("\">\n");
      render_arguments(text_member(function, "arguments", where), where);
      add("\n");
      add(kInvokeClose);
      add(">\n");
    }
    add(kToolCallsClose);
  }

  // arguments: the JSON of an object; a text that is not JSON is passed on as one argument.
  void render_arguments(const std::string& arguments, const std::string& where) {
    Json parsed;
    try {
      parsed = parse_strict_json(arguments, where + ", arguments");
    } catch (const base::Error& error) {
      if (error.code() != Code::corruption) throw;
      parsed = {{"arguments", arguments}};
    }
    if (!parsed.is_object()) {
      base::fail(Code::invalid_argument, "{}: the arguments are {} and should be an object", where, kind_of(parsed));
    }
    bool is_first = true;
    for (const auto& [key, value] : parsed.get_ref<const Json::object_t&>()) {
      if (!is_first) add("\n");
      is_first = false;
      add(kParameterOpen);
      add(" name=\"");
      add_content(key);
      add(value.is_string() ? "\" string=\"true\">" : "\" string=\"false\">");
      add_content(value.is_string() ? value.get<std::string>() : to_python_json(value));
      add("<");
      add(kParameterClose);
      add(">");
    }
  }

  // What follows a message: the opening of the assistant's turn, when one comes next or the prompt ends here.
  void render_transition(const ChatTurn& turn) {
    if (index_ + 1 < turns_.size()) {
      const std::string& next = turns_[index_ + 1].role;
      if (next != "assistant" && next != "latest_reminder") return;
    }
    if (!turn.task.empty()) {
      const std::string_view marker = task_marker(turn);
      if (turn.task == "action") {
        add(kAssistantMarker);
        add(thinking() ? kThinkBegin : kThinkEnd);
      }
      add(marker);
    } else if (turn.is_user()) {
      add(kAssistantMarker);
      add(thinking() && (!drop_thinking_ || static_cast<int64_t>(index_) >= last_user_) ? kThinkBegin : kThinkEnd);
    }
  }

  const std::vector<ChatTurn>& turns_;
  const ChatOptions& options_;
  bool drop_thinking_;
  int64_t last_user_;
  size_t index_ = 0;
  RenderedPrompt prompt_;
};

bool has_tools(const std::vector<ChatTurn>& turns) {
  for (const ChatTurn& turn : turns) {
    const Json* const tools = find_member(*turn.message, "tools", turn.where);
    if (tools != nullptr && !tools->is_null() && !tools->empty()) return true;
  }
  return false;
}

}  // namespace

ThinkingMode thinking_mode_from(std::string_view name) {
  if (name == "chat") return ThinkingMode::chat;
  if (name == "thinking") return ThinkingMode::thinking;
  base::fail(Code::invalid_argument, "invalid thinking mode '{}'; known: chat, thinking", name);
}

ReasoningEffort reasoning_effort_from(std::string_view name) {
  if (name.empty()) return ReasoningEffort::none;
  if (name == "high") return ReasoningEffort::high;
  if (name == "max") return ReasoningEffort::max;
  base::fail(Code::invalid_argument, "invalid reasoning effort '{}'; known: high, max, or nothing", name);
}

RenderedPrompt render_chat(const Json& messages, const ChatOptions& options, const std::string& where) {
  if (!messages.is_array()) {
    base::fail(Code::invalid_argument, "{}: the messages are {} and should be an array", where, kind_of(messages));
  }
  const auto num_context = static_cast<size_t>(options.num_context);
  if (options.num_context < 0 || num_context > messages.size()) {
    base::fail(Code::invalid_argument, "{}: {} of {} messages cannot be context", where, options.num_context,
               messages.size());
  }
  std::vector<ChatTurn> turns = merge_messages(messages, 0, num_context, where);
  size_t num_context_turns = turns.size();
  for (ChatTurn& turn : merge_messages(messages, num_context, messages.size(), where)) turns.push_back(std::move(turn));
  sort_tool_results(turns);
  const bool drop = options.drop_thinking && !has_tools(turns);
  if (drop && options.thinking == ThinkingMode::thinking) {
    const auto end = turns.begin() + static_cast<std::ptrdiff_t>(num_context_turns);
    num_context_turns = drop_earlier_reasoning({turns.begin(), end}).size();
    turns = drop_earlier_reasoning(std::move(turns));
  }
  Renderer renderer(turns, options, drop);
  if (options.add_bos && num_context == 0) renderer.add(kBeginOfSentence);
  renderer.render(num_context_turns);
  return renderer.take();
}

std::vector<int32_t> encode_prompt(const Tokenizer& tokenizer, const RenderedPrompt& prompt) {
  return tokenizer.encode(prompt.text, prompt.content);
}

}  // namespace data
