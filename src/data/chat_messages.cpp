// Merge, sort, drop.
#include "data/chat_messages.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "data/json_fields.h"

namespace data {
namespace {

using base::Code;
using base::Json;

// A text member that may be absent or null.
std::string text_or_empty(const Json& message, std::string_view key, const std::string& where) {
  const Json* const value = find_member(message, key, where);
  if (value == nullptr || value->is_null()) return {};
  if (!value->is_string()) {
    base::fail(Code::invalid_argument, "{}: \"{}\" is {} and should be a text", where, key, kind_of(*value));
  }
  return value->get<std::string>();
}

ChatTurn turn_from(const Json& message, const std::string& where) {
  if (!message.is_object()) {
    base::fail(Code::invalid_argument, "{}: is {} and should be an object with role and content", where,
               kind_of(message));
  }
  ChatTurn turn;
  turn.where = where;
  turn.message = &message;
  turn.role = text_or_empty(message, "role", where);
  if (turn.role.empty()) base::fail(Code::invalid_argument, "{}: the message has no role", where);
  turn.task = text_or_empty(message, "task", where);
  return turn;
}

void refuse_member(const ChatTurn& turn, std::string_view key) {
  const Json* const value = find_member(*turn.message, key, turn.where);
  if (value == nullptr || value->is_null() || value->empty()) return;
  base::fail(Code::invalid_argument,
             "{}: a {} message has no place for \"{}\"; put it on a system or developer message", turn.where, turn.role,
             key);
}

}  // namespace

int64_t last_user_turn(const std::vector<ChatTurn>& turns) {
  for (auto i = static_cast<int64_t>(turns.size()); i-- > 0;) {
    if (turns[static_cast<size_t>(i)].is_user()) return i;
  }
  return -1;
}

std::vector<ChatTurn> merge_messages(const Json& messages, size_t first, size_t last, const std::string& where) {
  std::vector<ChatTurn> turns;
  for (size_t i = first; i < last; ++i) {
    ChatTurn turn = turn_from(messages[i], fmt::format("{}, message {}", where, i));
    if (turn.role != "system" && turn.role != "developer") {
      refuse_member(turn, "tools");
      refuse_member(turn, "response_format");
    }
    const bool is_tool = turn.role == "tool";
    if (!is_tool && turn.role != "user") {
      turns.push_back(std::move(turn));
      continue;
    }
    ChatBlock block{is_tool, find_member(*turn.message, "content", turn.where), {}};
    if (is_tool) block.tool_call_id = text_or_empty(*turn.message, "tool_call_id", turn.where);
    const bool joins = !turns.empty() && turns.back().role == "user" && (is_tool || turns.back().task.empty());
    if (!joins) {
      if (is_tool) {  // a user turn of its own; what else the tool message carries does not count
        turn.role = "user";
        turn.task.clear();
      }
      turns.push_back(std::move(turn));
    }
    turns.back().blocks.push_back(std::move(block));
  }
  return turns;
}

void sort_tool_results(std::vector<ChatTurn>& turns) {
  std::map<std::string, size_t> order;  // call id -> its place in the last assistant turn with calls
  for (ChatTurn& turn : turns) {
    const Json* const calls = turn.role == "assistant" ? find_member(*turn.message, "tool_calls", turn.where) : nullptr;
    if (calls != nullptr && calls->is_array() && !calls->empty()) {
      order.clear();
      for (size_t i = 0; i < calls->size(); ++i) {
        const Json& call = (*calls)[i];
        std::string id = text_or_empty(call, "id", turn.where);
        const Json* const function = find_member(call, "function", turn.where);
        if (id.empty() && function != nullptr) id = text_or_empty(*function, "id", turn.where);
        if (!id.empty()) order[id] = i;
      }
    }
    if (order.empty() || turn.blocks.empty()) continue;
    std::vector<ChatBlock> results;
    for (const ChatBlock& block : turn.blocks) {
      if (block.is_tool_result) results.push_back(block);
    }
    const auto place = [&](const ChatBlock& block) {
      const auto found = order.find(block.tool_call_id);
      return found == order.end() ? 0 : found->second;
    };
    std::stable_sort(results.begin(), results.end(),
                     [&](const ChatBlock& a, const ChatBlock& b) { return place(a) < place(b); });
    size_t next = 0;
    for (ChatBlock& block : turn.blocks) {
      if (block.is_tool_result) block = results[next++];
    }
  }
}

std::vector<ChatTurn> drop_earlier_reasoning(std::vector<ChatTurn> turns) {
  const int64_t last_user = last_user_turn(turns);
  std::vector<ChatTurn> kept;
  for (int64_t i = 0; i < static_cast<int64_t>(turns.size()); ++i) {
    ChatTurn& turn = turns[static_cast<size_t>(i)];
    if (i < last_user && turn.role == "assistant") turn.keep_reasoning = false;
    // The published code keeps direct_search_results here, then refuses it as an unknown role.
    const bool known = turn.role == "direct_search_results" || turn.role == "user" || turn.role == "system" ||
                       turn.role == "latest_reminder" || turn.role == "assistant";
    if (known || i >= last_user) kept.push_back(std::move(turn));
  }
  return kept;
}

}  // namespace data
