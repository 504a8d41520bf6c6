// Reading typed members of a JSON object from outside: each wrong type or missing member is an Error{corruption} that
// says which member of what it was, what it was and what it should be.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "base/json.h"

namespace data {

// The member, or nullptr when the object lacks it. json must be an object (else the error is about json itself).
const base::Json* find_member(const base::Json& json, std::string_view key, const std::string& where);

const base::Json& member(const base::Json& json, std::string_view key, const std::string& where);
const std::string& text_member(const base::Json& json, std::string_view key, const std::string& where);
int64_t integer_member(const base::Json& json, std::string_view key, const std::string& where);
double number_member(const base::Json& json, std::string_view key, const std::string& where);
const base::Json& array_member(const base::Json& json, std::string_view key, const std::string& where);
bool bool_member_or(const base::Json& json, std::string_view key, bool fallback, const std::string& where);

// "an object", "a text", ... for messages.
std::string_view kind_of(const base::Json& json);

// A foreign text for messages: as a JSON text on one line, cut after 120 bytes.
std::string quote(std::string_view text);

}  // namespace data
