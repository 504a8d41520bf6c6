// The longer texts, word for word as the model was trained on them.
#include "data/chat_template.h"

namespace data {

const std::string_view kReasoningEffortMax =
    "Reasoning Effort: Absolute maximum with no shortcuts permitted.\n"
    "You MUST be very thorough in your thinking and comprehensively decompose the problem to resolve the root cause, "
    "rigorously stress-testing your logic against all potential paths, edge cases, and adversarial scenarios.\n"
    "Explicitly write out your entire deliberation process, documenting every intermediate step, considered "
    "alternative, and rejected hypothesis to ensure absolutely no assumption is left unchecked.\n\n";

const std::string_view kToolsBegin =
    "## Tools\n\n"
    "You have access to a set of tools to help answer the user's question. You can invoke tools by writing a "
    "\"<\uFF5CDSML\uFF5Ctool_calls>\" block like the following:\n\n"
    "<\uFF5CDSML\uFF5Ctool_calls>\n"
    "<\uFF5CDSML\uFF5Cinvoke name=\"$TOOL_NAME\">\n"
    "<\uFF5CDSML\uFF5Cparameter name=\"$PARAMETER_NAME\" string=\"true|false\">$PARAMETER_VALUE"
    "</\uFF5CDSML\uFF5Cparameter>\n"
    "...\n"
    "</\uFF5CDSML\uFF5Cinvoke>\n"
    "<\uFF5CDSML\uFF5Cinvoke name=\"$TOOL_NAME2\">\n"
    "...\n"
    "</\uFF5CDSML\uFF5Cinvoke>\n"
    "</\uFF5CDSML\uFF5Ctool_calls>\n\n"
    "String parameters should be specified as is and set `string=\"true\"`. For all other types (numbers, booleans, "
    "arrays, objects), pass the value in JSON format and set `string=\"false\"`.\n\n"
    "If thinking_mode is enabled (triggered by <think>), you MUST output your complete reasoning inside "
    "<think>...</think> BEFORE any tool calls or final response.\n\n"
    "Otherwise, output directly after </think> with tool calls or final response.\n\n"
    "### Available Tool Schemas\n\n";

const std::string_view kToolsEnd =
    "\n\nYou MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.\n";

const std::string_view kResponseFormatBegin =
    "## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n";

}  // namespace data
