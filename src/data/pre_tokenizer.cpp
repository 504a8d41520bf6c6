// Split, Digits, ByteLevel and Sequence.
#include "data/pre_tokenizer.h"

#include "base/error.h"
#include "data/json_fields.h"

namespace data {
namespace {

using base::Code;
using base::Json;

constexpr std::string_view kByteLevelPattern =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

struct Part {
  ByteRange range;
  bool is_match = false;
};

// Text cut at the matches: every byte of it is in one part.
std::vector<Part> cut(size_t size, const std::vector<ByteRange>& matches, bool invert) {
  std::vector<Part> parts;
  size_t at = 0;
  for (const ByteRange& match : matches) {
    if (match.begin > at) parts.push_back({{at, match.begin}, invert});
    parts.push_back({match, !invert});
    at = match.end;
  }
  if (at < size) parts.push_back({{at, size}, invert});
  return parts;
}

// Parts after the behaviour of a Split; neighbours only ever join, so a joined part is a range again.
std::vector<ByteRange> join(const std::vector<Part>& parts, SplitBehavior behavior) {
  std::vector<ByteRange> pieces;
  for (size_t i = 0; i < parts.size(); ++i) {
    const Part& part = parts[i];
    const bool follows_match = i > 0 && parts[i - 1].is_match;
    bool joins = false;
    switch (behavior) {
      case SplitBehavior::isolated:
        break;
      case SplitBehavior::removed:
        if (part.is_match) continue;
        break;
      case SplitBehavior::contiguous:
        joins = i > 0 && follows_match == part.is_match;
        break;
      case SplitBehavior::merged_with_previous:
        joins = i > 0 && part.is_match && !follows_match;
        break;
      case SplitBehavior::merged_with_next:
        joins = follows_match && !part.is_match;
        break;
    }
    if (joins) {
      pieces.back().end = part.range.end;
    } else {
      pieces.push_back(part.range);
    }
  }
  std::erase_if(pieces, [](const ByteRange& piece) { return piece.begin == piece.end; });
  return pieces;
}

SplitBehavior parse_behavior(const std::string& name, const std::string& where) {
  if (name == "Isolated") return SplitBehavior::isolated;
  if (name == "Removed") return SplitBehavior::removed;
  if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
  if (name == "Contiguous") return SplitBehavior::contiguous;
  base::fail(Code::invalid_argument,
             "{}: \"behavior\" is \"{}\"; known: Isolated, Removed, MergedWithPrevious, MergedWithNext, "
             "Contiguous",
             where, name);
}

// A pattern that matches exactly this text.
std::string escape_regex(std::string_view text) {
  std::string pattern;
  for (const char c : text) {
    if (std::string_view("\\^$.|?*+()[]{}&").find(c) != std::string_view::npos) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

}  // namespace

PreTokenizer::PreTokenizer(const Json& spec, const std::string& where) {
  if (spec.is_object() && spec.contains("type") && spec["type"] == "Sequence") {
    const Json& list = array_member(spec, "pretokenizers", where);
    for (size_t i = 0; i < list.size(); ++i) add_step(list[i], fmt::format("{}, step {}", where, i));
  } else {
    add_step(spec, where);
  }
  if (!has_byte_level_) {
    base::fail(Code::invalid_argument, "{}: has no ByteLevel step; only byte-level BPE tokenizers are supported",
               where);
  }
}

void PreTokenizer::add_step(const Json& spec, const std::string& where) {
  const std::string& type = text_member(spec, "type", where);
  if (has_byte_level_)
    base::fail(Code::invalid_argument, "{}: a {} step after ByteLevel is not supported", where, type);
  if (type == "Split") {
    add_split(spec, where);
  } else if (type == "Digits") {
    const bool individual = bool_member_or(spec, "individual_digits", false, where);
    steps_.push_back({SplitRegex(individual ? "\\p{N}" : "\\p{N}+", where)});
  } else if (type == "ByteLevel") {
    add_byte_level(spec, where);
  } else {
    base::fail(Code::invalid_argument,
               "{}: the type \"{}\" is not supported; known: Split, Digits, ByteLevel, and one Sequence of "
               "them",
               where, type);
  }
}

void PreTokenizer::add_split(const Json& spec, const std::string& where) {
  const Json& pattern = member(spec, "pattern", where);
  const bool is_regex = find_member(pattern, "Regex", where + ", pattern") != nullptr;
  const std::string& text = text_member(pattern, is_regex ? "Regex" : "String", where + ", pattern");
  steps_.push_back({SplitRegex(is_regex ? text : escape_regex(text), where),
                    parse_behavior(text_member(spec, "behavior", where), where),
                    bool_member_or(spec, "invert", false, where)});
}

void PreTokenizer::add_byte_level(const Json& spec, const std::string& where) {
  has_byte_level_ = true;
  byte_level_at_ = steps_.size();
  add_prefix_space_ = bool_member_or(spec, "add_prefix_space", true, where);
  if (bool_member_or(spec, "use_regex", true, where)) steps_.push_back({SplitRegex(kByteLevelPattern, where)});
}

std::vector<ByteRange> PreTokenizer::apply(const Step& step, const Pieces& pieces) {
  std::vector<ByteRange> result, matches;
  SplitRegex::Scratch scratch(step.regex);
  const std::string_view text = pieces.text;
  for (const ByteRange& piece : pieces.ranges) {
    matches.clear();
    step.regex.find_all(text.substr(piece.begin, piece.end - piece.begin), scratch, matches);
    for (const ByteRange& part : join(cut(piece.end - piece.begin, matches, step.invert), step.behavior)) {
      result.push_back({piece.begin + part.begin, piece.begin + part.end});
    }
  }
  return result;
}

Pieces PreTokenizer::split(std::string_view text) const {
  Pieces pieces{std::string(text), {}};
  if (!text.empty()) pieces.ranges.push_back({0, text.size()});
  for (size_t i = 0; i <= steps_.size(); ++i) {
    if (i == byte_level_at_ && add_prefix_space_) {
      Pieces spaced;
      for (const ByteRange& piece : pieces.ranges) {
        const size_t begin = spaced.text.size();
        if (pieces.text[piece.begin] != ' ') spaced.text += ' ';
        spaced.text += std::string_view(pieces.text).substr(piece.begin, piece.end - piece.begin);
        spaced.ranges.push_back({begin, spaced.text.size()});
      }
      pieces = std::move(spaced);
    }
    if (i < steps_.size()) pieces.ranges = apply(steps_[i], pieces);
  }
  return pieces;
}

}  // namespace data
