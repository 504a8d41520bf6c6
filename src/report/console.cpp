// Drawing needs two escape sequences: carriage return and "erase line".
#include "report/console.h"

#include <fmt/format.h>
#include <spdlog/sinks/sink.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "metrics/names.h"

namespace report {
namespace {
constexpr double kRedraw_s = 0.1, kPlainLine_s = 30;
constexpr std::string_view kEraseLine = "\r\x1b[2K";
constexpr int kMinBar = 10, kMaxBar = 40;

int columns_of_terminal() {
  winsize size{};
  const bool known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

void append_figure(std::string& line, const metrics::StepMetrics& step, std::string_view name, std::string_view label,
                   const char* format) {
  if (const auto value = step.find(name))
    line += fmt::format("  {} {}", label, fmt::format(fmt::runtime(format), *value));
}

// Passes messages on to the sinks that were there.
class BesideConsoleSink : public spdlog::sinks::sink {
 public:
  BesideConsoleSink(Console& console, std::vector<spdlog::sink_ptr> sinks)
      : console_(console), sinks_(std::move(sinks)) {}
  void log(const spdlog::details::log_msg& message) override {
    console_.make_room_for([&] {
      for (const spdlog::sink_ptr& to : sinks_) {
        if (to->should_log(message.level)) to->log(message);
      }
    });
  }
  void flush() override {
    for (const spdlog::sink_ptr& to : sinks_) to->flush();
  }
  // The sinks behind keep the pattern that they were set up with.
  void set_pattern(const std::string&) override {}
  void set_formatter(std::unique_ptr<spdlog::formatter>) override {}

 private:
  Console& console_;
  std::vector<spdlog::sink_ptr> sinks_;
};

}  // namespace

Terminal standard_output() {
  Terminal terminal;
  terminal.write = [](std::string_view text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  };
  terminal.is_tty = ::isatty(STDOUT_FILENO) == 1;
  terminal.columns = columns_of_terminal;
  return terminal;
}

Console::Console(const ConsoleSettings& settings, Terminal terminal, base::Clock clock)
    : settings_(settings), terminal_(std::move(terminal)), clock_(std::move(clock)) {}

Console::~Console() {
  const std::lock_guard guard(mutex_);
  erase();
}

Console::Phase Console::phase(std::string_view name, int64_t total, std::string_view unit) {
  const std::lock_guard guard(mutex_);
  const double now = clock_.now_s();
  current_ = {++phases_, std::string(name), std::string(unit), "", 0, total, now, now, false};
  if (!terminal_.is_tty) current_.next_s = now + kPlainLine_s;
  draw();
  return Phase(*this, current_.number);
}

Console::Phase::~Phase() { console_.end(number_); }

void Console::Phase::update(int64_t done, int64_t total, std::string_view detail) {
  console_.update(number_, done, total, detail);
}

void Console::update(int64_t number, int64_t done, int64_t total, std::string_view detail) {
  const std::lock_guard guard(mutex_);
  if (number != current_.number) return;  // another phase has taken its place
  current_.done = done;
  current_.total = total;
  current_.detail = detail;
  draw();
}

void Console::end(int64_t number) {
  const std::lock_guard guard(mutex_);
  if (number != current_.number) return;
  // Where lines announced that it takes long, one says that it is over.
  if (current_.reported) {
    write_line(fmt::format("{}: {} {} in {}", current_.name, current_.done, current_.unit,
                           duration(clock_.now_s() - current_.start_s)));
  }
  current_ = {};
  erase();
}

std::string Console::progress_text(double now_s) const {
  const double elapsed = std::max(now_s - current_.start_s, 1e-9);
  const double rate = static_cast<double>(current_.done) / elapsed;
  std::string text = current_.total > 0 ? fmt::format("{}/{} {}", current_.done, current_.total, current_.unit)
                                        : fmt::format("{} {}", current_.done, current_.unit);
  if (current_.done > 0 && elapsed >= 1) {
    text += fmt::format("  {:.3g}/s", rate);
    if (current_.total > current_.done) {
      text += fmt::format("  {} left", duration(static_cast<double>(current_.total - current_.done) / rate));
    }
  }
  if (!current_.detail.empty()) text += "  " + current_.detail;
  return text;
}

void Console::draw() {
  if (settings_.verbosity == "quiet" || current_.number == 0) return;
  const double now = clock_.now_s();
  if (now < current_.next_s) return;
  current_.next_s = now + (terminal_.is_tty ? kRedraw_s : kPlainLine_s);
  if (!terminal_.is_tty) {
    current_.reported = true;
    write_line(fmt::format("{}: {}", current_.name, progress_text(now)));
    return;
  }
  const double fraction =
      current_.total > 0 ? static_cast<double>(current_.done) / static_cast<double>(current_.total) : 0;
  terminal_.write(std::string(kEraseLine) + bar_line(fraction, current_.name, progress_text(now), terminal_.columns()));
  bar_on_screen_ = true;
}

void Console::erase() {
  if (!bar_on_screen_) return;
  terminal_.write(kEraseLine);
  bar_on_screen_ = false;
}

void Console::write_line(std::string_view text) {
  erase();
  terminal_.write(std::string(text) + "\n");
}

void Console::line(std::string_view text) {
  if (settings_.verbosity == "quiet") return;
  make_room_for([&] { terminal_.write(std::string(text) + "\n"); });
}

void Console::make_room_for(const std::function<void()>& write) {
  const std::lock_guard guard(mutex_);
  erase();
  write();
  if (terminal_.is_tty) {
    current_.next_s = clock_.now_s();  // the bar comes back at once
    draw();
  }
}

void Console::step(const metrics::StepMetrics& step, int64_t total_steps) {
  line(step_line(step, total_steps));
  if (settings_.verbosity != "verbose") return;
  for (const auto& [name, value] : step.values()) line(fmt::format("    {:<28} {:.6g}", name, value));
}

void Console::evaluation(const metrics::EvalRecord& record) { line(evaluation_line(record)); }

LogBesideConsole::LogBesideConsole(Console& console) : before_(spdlog::default_logger()) {
  auto logger =
      std::make_shared<spdlog::logger>(before_->name(), std::make_shared<BesideConsoleSink>(console, before_->sinks()));
  logger->set_level(before_->level());
  spdlog::set_default_logger(std::move(logger));
}

LogBesideConsole::~LogBesideConsole() { spdlog::set_default_logger(before_); }

std::string step_line(const metrics::StepMetrics& step, int64_t total_steps) {
  const std::string total = std::to_string(total_steps);
  std::string line = fmt::format("step {:>{}}/{}", step.step(), total.size(), total);
  append_figure(line, step, metrics::kLossSft, "loss", "{:.4f}");
  append_figure(line, step, metrics::kRewardMean, "reward", "{:.3f}");
  append_figure(line, step, metrics::kResponseLengthMean, "length", "{:.1f}");
  append_figure(line, step, metrics::kPolicyEntropy, "entropy", "{:.3f}");
  append_figure(line, step, metrics::kPolicyGradNorm, "grad", "{:.3g}");
  append_figure(line, step, metrics::kGapMean, "gap", "{:.2g}");
  append_figure(line, step, metrics::kStalenessMean, "stale", "{:.2g}");
  if (const auto cut = step.find(metrics::kResponseTruncated); cut && *cut > 0) {
    line += fmt::format("  truncated {:.0f}%", *cut * 100);
  }
  if (const auto failed = step.find(metrics::kRewardFailures); failed && *failed > 0) {
    line += fmt::format("  unscored {:.0f}", *failed);
  }
  if (const auto skipped = step.find(metrics::kPolicySkipped); skipped && *skipped > 0)
    line += "  UPDATE SKIPPED (not finite)";
  if (const auto seconds = step.find(metrics::kTimeStep)) line += "  " + duration(*seconds);
  return line;
}

std::string evaluation_line(const metrics::EvalRecord& record) {
  std::string line = fmt::format("eval {} after step {}:", record.set, record.step);
  for (const auto& [k, value] : record.pass_at) line += fmt::format("  pass@{} {:.3f}", k, value);
  if (record.greedy) line += fmt::format("  greedy {:.3f}", *record.greedy);
  line += fmt::format("  truncated {:.0f}%  ({} problems, {} answers", record.truncated * 100, record.problems,
                      record.answers);
  if (record.missing > 0) line += fmt::format(", {} without a score", record.missing);
  return line + ")";
}

std::string bar_line(double fraction, const std::string& left, const std::string& right, int columns) {
  constexpr int kFrame = 6;  // two brackets, three spaces, and the last column stays free
  const int free = columns - kFrame - static_cast<int>(left.size() + right.size());
  std::string line = left + "  ";
  if (free >= kMinBar) {
    const int width = std::min(free, kMaxBar);
    const int filled = static_cast<int>(std::clamp(fraction, 0.0, 1.0) * width);
    line += "[" + std::string(static_cast<size_t>(filled), '#') +
            std::string(static_cast<size_t>(width - filled), '.') + "] ";
  }
  line += right;
  const auto room = static_cast<size_t>(std::max(columns - 1, 0));
  return line.size() > room ? line.substr(0, room) : line;
}

std::string duration(double seconds) {
  if (!(seconds >= 0) || seconds > 1e9) return "? s";
  if (seconds < 9.95) return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} h {} min", whole / 3600, whole % 3600 / 60);
}

}  // namespace report
