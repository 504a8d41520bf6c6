// The threads that kernels run on: one set for the process, the caller's thread among them. They wait for work for 0.1
// to 0.2 ms, then sleep: on cores that others use too, a thread that keeps spinning takes the time it is waiting for.
//
// Threads: any thread may call. When two call at the same time, or a body calls again, the second runs on its own
// thread alone. A caller never waits for a sleeping thread that has not begun.
#pragma once
#include <cstdint>

namespace base {

// Threads that work at the same time, the caller's included. At the start: one per core.
int num_threads();
// count >= 1. Not while a parallel_for runs.
void set_num_threads(int count);

namespace detail {
using Body = void (*)(const void* context, int64_t begin, int64_t end);
void parallel_for(int64_t count, int64_t grain, Body body, const void* context);
}  // namespace detail

// body(begin, end) over [0, count), cut into ranges that are multiples of `grain` long (the last may be shorter), in
// any order and at the same time. body must not throw. What an element's result is must not depend on the cut.
template <class F>
void parallel_for(int64_t count, int64_t grain, const F& body) {
  detail::parallel_for(
      count, grain,
      [](const void* context, int64_t begin, int64_t end) { (*static_cast<const F*>(context))(begin, end); }, &body);
}

}  // namespace base
