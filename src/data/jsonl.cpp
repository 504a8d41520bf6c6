// One pass over the mapped file.
#include "data/jsonl.h"

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "base/files.h"
#include "data/json_fields.h"
#include "data/strict_json.h"
#include "data/utf8.h"

namespace data {
namespace {

using base::Code;
using base::Json;

struct Signature {
  std::string_view bytes, what;
};

// First bytes of files that are often taken for JSON lines.
constexpr Signature kSignatures[] = {
    {std::string_view("\xFF\xFE", 2), "is not UTF-8: it looks like UTF-16; save it as UTF-8"},
    {std::string_view("\xFE\xFF", 2), "is not UTF-8: it looks like UTF-16; save it as UTF-8"},
    {std::string_view("\x1F\x8B", 2), "looks gzip-compressed; unpack it first"},
    {std::string_view("\x28\xB5\x2F\xFD", 4), "looks zstd-compressed; unpack it first"},
    {"PAR1", "is a Parquet file; convert it to JSON lines first"},
    {"PK\x03\x04", "looks like a zip archive; unpack it first"},
};

std::string_view trim(std::string_view line) {
  constexpr std::string_view kBlank = " \t\r";
  const size_t begin = line.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return line.substr(begin, line.find_last_not_of(kBlank) - begin + 1);
}

void check_first_bytes(std::string_view text, const std::filesystem::path& path) {
  for (const Signature& signature : kSignatures) {
    if (text.starts_with(signature.bytes)) base::fail(Code::corruption, "{}: {}", path.string(), signature.what);
  }
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first != std::string_view::npos && text[first] == '[') {
    base::fail(Code::corruption, "{}: this is a JSON array, not JSON lines; write one object a line", path.string());
  }
}

Json parse_line(std::string_view line, size_t offset, const std::string& where) {
  if (static_cast<int64_t>(line.size()) > kMaxJsonLineBytes) {
    base::fail(Code::corruption, "{}: the line has {} bytes, more than {}", where, line.size(), kMaxJsonLineBytes);
  }
  if (const size_t bad = find_invalid_utf8(line); bad < line.size()) {
    base::fail(Code::corruption, "{}: not UTF-8 at byte {} of the line (byte offset {} of the file, value 0x{:02x})",
               where, bad, offset + bad, static_cast<uint8_t>(line[bad]));
  }
  Json row = parse_strict_json(line, where);
  if (!row.is_object()) base::fail(Code::corruption, "{}: the row is {} and should be an object", where, kind_of(row));
  return row;
}

}  // namespace

void read_json_lines(const std::filesystem::path& path, const RowReader& read, const BadLineReader& bad_line) {
  const base::MappedFile file(path);
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  size_t at = text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0;
  check_first_bytes(text.substr(at), path);
  const std::string name = path.filename().string();
  for (int64_t number = 1; at < text.size(); ++number) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view raw = text.substr(at, end - at), line = trim(raw);
    const size_t offset = at + (line.empty() ? 0 : static_cast<size_t>(line.data() - raw.data()));
    at = end + 1;
    if (line.empty()) continue;
    const std::string where = fmt::format("{}:{}", name, number);
    try {
      if (!read(parse_line(line, offset, where), where)) return;
    } catch (const base::Error& error) {
      const bool about_the_line = error.code() == Code::corruption || error.code() == Code::invalid_argument;
      if (bad_line == nullptr || !about_the_line) throw;
      bad_line(error.what());
    }
  }
}

}  // namespace data
