// What a person sees while a run goes on: a bar for the phase at hand on a terminal, redrawn at most ten times a second
// and gone when the phase ends; plain lines, one each half minute, where the output is no terminal; and one line for
// each step.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/log.h"
#include "base/settings.h"
#include "metrics/evaluation.h"
#include "metrics/step_metrics.h"

namespace report {

struct ConsoleSettings {
  std::string verbosity = "normal";

  template <class V>
  void visit(V&& v) {
    v("verbosity", verbosity,
      "quiet: nothing; normal: progress and a line for each step; verbose: all figures of each step",
      base::OneOf{"quiet", "normal", "verbose"}, base::Resume::harmless);
  }
};

// Where the console writes.
struct Terminal {
  std::function<void(std::string_view)> write;
  bool is_tty = false;
  std::function<int()> columns = [] { return 80; };
};
Terminal standard_output();

// Thread-safe.
class Console {
 public:
  explicit Console(const ConsoleSettings& settings, Terminal terminal = standard_output(), base::Clock clock = {});
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;
  ~Console();

  // A piece of work that takes a while. Ends (and takes its bar away) when destroyed; a new one replaces the one
  // before.
  class Phase {
   public:
    Phase(const Phase&) = delete;
    Phase& operator=(const Phase&) = delete;
    ~Phase();
    // done of total (total 0: not known); detail: a few words behind the figures, "5500 tokens/s".
    void update(int64_t done, int64_t total, std::string_view detail = {});

   private:
    friend class Console;
    Phase(Console& console, int64_t number) : console_(console), number_(number) {}
    Console& console_;
    int64_t number_;
  };
  // name: "generate"; unit: what is counted, "samples".
  [[nodiscard]] Phase phase(std::string_view name, int64_t total, std::string_view unit);

  // A line that stays, above the bar. Nothing when quiet.
  void line(std::string_view text);
  void step(const metrics::StepMetrics& step, int64_t total_steps);
  void evaluation(const metrics::EvalRecord& record);

  // Takes the bar away, calls write (which must not call the console), and draws the bar again.
  void make_room_for(const std::function<void()>& write);

 private:
  struct Current {
    int64_t number = 0;  // 0: none
    std::string name, unit, detail;
    int64_t done = 0, total = 0;
    double start_s = 0, next_s = 0;  // next_s: not drawn again before
    bool reported = false;           // a plain line was written
  };
  void update(int64_t number, int64_t done, int64_t total, std::string_view detail);
  void end(int64_t number);
  void draw();
  void erase();
  void write_line(std::string_view text);
  std::string progress_text(double now_s) const;

  ConsoleSettings settings_;
  Terminal terminal_;
  base::Clock clock_;
  std::mutex mutex_;  // guards all below
  Current current_;
  int64_t phases_ = 0;
  bool bar_on_screen_ = false;
};

// For its lifetime, messages of the logger make room for themselves on the terminal. One at a time.
class LogBesideConsole {
 public:
  explicit LogBesideConsole(Console& console);
  LogBesideConsole(const LogBesideConsole&) = delete;
  LogBesideConsole& operator=(const LogBesideConsole&) = delete;
  ~LogBesideConsole();

 private:
  std::shared_ptr<spdlog::logger> before_;
};

// The lines themselves.
std::string step_line(const metrics::StepMetrics& step, int64_t total_steps);
std::string evaluation_line(const metrics::EvalRecord& record);
std::string bar_line(double fraction, const std::string& left, const std::string& right, int columns);
std::string duration(double seconds);  // "0.4 s", "12 s", "3 min 20 s", "2 h 5 min"

}  // namespace report
