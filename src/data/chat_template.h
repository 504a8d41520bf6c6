// The literal texts of DeepSeek-V4's chat encoding: markers (one token each) and the blocks that describe tools and
// formats. Source: spec 9.1 and 9.2; encoding/README.md of the published checkpoints.
#pragma once
#include <string_view>

namespace data {

// The bars are U+FF5C, the low lines in BOS and EOS U+2581.
constexpr std::string_view kBeginOfSentence = "<\uFF5Cbegin\u2581of\u2581sentence\uFF5C>";
constexpr std::string_view kEndOfSentence = "<\uFF5Cend\u2581of\u2581sentence\uFF5C>";
constexpr std::string_view kUserMarker = "<\uFF5CUser\uFF5C>";
constexpr std::string_view kAssistantMarker = "<\uFF5CAssistant\uFF5C>";
constexpr std::string_view kLatestReminderMarker = "<\uFF5Clatest_reminder\uFF5C>";
constexpr std::string_view kThinkBegin = "<think>";
constexpr std::string_view kThinkEnd = "</think>";
constexpr std::string_view kDsml = "\uFF5CDSML\uFF5C";

// Tags of the tool-call language. *Open without '>' are followed by attributes.
constexpr std::string_view kToolCallsOpen = "<\uFF5CDSML\uFF5Ctool_calls";
constexpr std::string_view kToolCallsClose = "</\uFF5CDSML\uFF5Ctool_calls>";
constexpr std::string_view kInvokeOpen = "<\uFF5CDSML\uFF5Cinvoke";
constexpr std::string_view kInvokeClose = "</\uFF5CDSML\uFF5Cinvoke";
constexpr std::string_view kParameterOpen = "<\uFF5CDSML\uFF5Cparameter";
constexpr std::string_view kParameterClose = "/\uFF5CDSML\uFF5Cparameter";

constexpr std::string_view kToolResultBegin = "<tool_result>";  // ordinary text, not a token
constexpr std::string_view kToolResultEnd = "</tool_result>";

// Before the first message when thinking with the greatest effort.
extern const std::string_view kReasoningEffortMax;
// Before and after the tool schemas, one JSON a line.
extern const std::string_view kToolsBegin, kToolsEnd;
// Before the JSON schema of an answer.
extern const std::string_view kResponseFormatBegin;

}  // namespace data
