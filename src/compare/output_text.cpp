// Text, and the pieces of text that the other forms share.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "compare/output.h"
#include "report/text_chart.h"

namespace compare {
namespace {

constexpr int64_t kTokensAround = 6;
constexpr size_t kTextBytes = 36;  // on either side

std::string text_of(const Comparison& comparison, size_t sequence, int64_t begin, int64_t end) {
  const Ids& ids = comparison.sequences[sequence].ids;
  begin = std::max<int64_t>(begin, 0);
  end = std::min(end, static_cast<int64_t>(ids.size()));
  if (begin >= end) return "";
  const std::span<const int32_t> run(ids.data() + begin, static_cast<size_t>(end - begin));
  if (comparison.decode) return comparison.decode(run);
  return fmt::format("{}", fmt::join(run, " "));
}

// The last bytes of a text, cut between characters.
std::string last_bytes(const std::string& text, size_t max_bytes) {
  if (text.size() <= max_bytes) return text;
  size_t start = text.size() - max_bytes;
  while (start < text.size() && (text[start] & 0xC0) == 0x80) ++start;
  return "..." + text.substr(start);
}

std::string side_line(const char* letter, const std::string& name) { return fmt::format("{}  {}\n", letter, name); }

std::string figures(const Comparison& comparison) {
  const Differences& d = comparison.differences;
  std::string text = fmt::format("{} tokens of {} sequences, temperature {:g}\n", num_tokens(comparison.sequences),
                                 comparison.sequences.size(), comparison.temperature);
  if (d.missing > 0) text += fmt::format("{} tokens have no log-prob on one side\n", d.missing);
  if (d.impossible > 0) text += fmt::format("{} tokens are impossible on both sides\n", d.impossible);
  if (d.all_equal()) return text + fmt::format("\nall {} log-probs are equal to the bit\n", d.compared);
  text += fmt::format("\n|log-prob of A - log-prob of B| in nats, {} tokens\n", d.compared);
  text += report::text_table(
      {"", "mean", "p50", "p99", "max", "mean of A - B", "equal to the bit"},
      {{"", number_text(d.absolute.mean), number_text(d.absolute.p50), number_text(d.absolute.p99),
        number_text(d.absolute.max), number_text(d.mean_signed), fmt::format("{} of {}", d.equal, d.compared)}});
  if (d.absolute.nonfinite > 0) text += fmt::format("{} more differences are not finite\n", d.absolute.nonfinite);
  return text;
}

std::string worst_table(const Comparison& comparison) {
  std::vector<std::vector<std::string>> rows;
  for (const TokenDifference& token : comparison.differences.worst) {
    const Surroundings around = surroundings(comparison, token.sequence, token.position);
    rows.push_back(
        {comparison.sequences[token.sequence].where, std::to_string(token.position), number_text(token.a),
         number_text(token.b), number_text(token.difference),
         fmt::format("{}[{}]{}", around.before, token_text(comparison, token.sequence, token.position), around.after)});
  }
  if (rows.empty()) return "";
  return "\nlargest differences\n" + report::text_table({"sequence", "position", "A", "B", "difference", "text"}, rows);
}

std::string walk_text(const Comparison& comparison, const WalkedSequence& walked) {
  const std::string head = fmt::format("\n{}, {} tokens, layer by layer", comparison.sequences[walked.sequence].where,
                                       walked.walk.ids.size());
  if (!walked.diagnosis) return head + (walked.walk.parting ? "" : ": equal to the bit at every site") + "\n";
  const std::vector<Cause>& causes = walked.diagnosis->causes;
  std::string text = fmt::format("{}\n  {} [{}]\n", head, walked.diagnosis->line, causes.front().id);
  if (walked.walk.parting) {
    const SiteDifference& d = walked.walk.parting->difference;
    text += fmt::format("    first {}, largest relative difference {} at {}\n",
                        d.first_beyond >= 0 ? d.first_beyond : d.first, number_text(d.worst_relative), d.worst);
  }
  for (const Cause& cause : causes) {
    if (&cause != &causes.front()) {
      text += fmt::format("  also: {}{} [{}]\n",
                          cause.side < 0    ? ""
                          : cause.side == 0 ? "A "
                                            : "B ",
                          cause.text, cause.id);
    }
    for (const std::string& line : cause.evidence) text += "    " + line + "\n";
  }
  return text;
}

}  // namespace

std::string number_text(double value) {
  if (value == 0) return "0";
  return std::isfinite(value) ? fmt::format("{:.4g}", value) : "not finite";
}

std::string token_text(const Comparison& comparison, size_t sequence, int64_t position) {
  return report::one_line(text_of(comparison, sequence, position, position + 1), kTextBytes);
}

Surroundings surroundings(const Comparison& comparison, size_t sequence, int64_t position) {
  const std::string gap = comparison.decode ? "" : " ";
  const std::string before = text_of(comparison, sequence, position - kTokensAround, position),
                    after = text_of(comparison, sequence, position + 1, position + 1 + kTokensAround);
  return {report::one_line(last_bytes(before, kTextBytes), 4 * kTextBytes) + (before.empty() ? "" : gap),
          (after.empty() ? "" : gap) + report::one_line(after, kTextBytes)};
}

std::string to_text(const Comparison& comparison) {
  std::string text = side_line("A", comparison.names[0]) + side_line("B", comparison.names[1]) + figures(comparison);
  for (const std::string& pattern : comparison.patterns) text += "\n" + pattern + "\n";
  text += worst_table(comparison);
  if (comparison.no_walk && !comparison.differences.all_equal()) {
    text += fmt::format("\nnot compared layer by layer: {}\n", *comparison.no_walk);
  }
  if (!comparison.walks.empty() && comparison.tolerance > 0) {
    text += fmt::format(
        "\nthe sides round otherwise: streams count as parted from a relative difference of {:g} of a token on\n",
        comparison.tolerance);
  }
  for (const WalkedSequence& walked : comparison.walks) text += walk_text(comparison, walked);
  return text;
}

}  // namespace compare
