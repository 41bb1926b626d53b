// Worker teams of the cpu backend: fork-join loops over OpenMP. The team size is given per call,
// never set globally, so several ranks of one process can each own a team. Which task computes
// what never depends on the team size or on timing.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>

namespace weft::cpu {

/// Calls f(task) for every task in [0, tasks), contiguous runs of tasks per worker. Built with the
/// thread sanitizer, which does not understand libgomp, it runs the tasks one after the other.
template <class F>
void parallel_tasks(int threads, int64_t tasks, const F& f) {
#if defined(__SANITIZE_THREAD__)
  threads = 1;
#endif
  if (threads <= 1 || tasks <= 1) {
    for (int64_t task = 0; task < tasks; ++task) f(task);
    return;
  }
  const int team = static_cast<int>(std::min<int64_t>(threads, tasks));
#pragma omp parallel for schedule(static) num_threads(team)
  for (int64_t task = 0; task < tasks; ++task) f(task);
}

/// Calls f(task, worker) for every task in [0, tasks); every worker takes the next task when it is
/// done with one, so that uneven workers balance. `worker` < threads; no two running tasks have the
/// same. For tasks whose results do not depend on who runs them.
template <class F>
void parallel_dynamic(int threads, int64_t tasks, const F& f) {
#if defined(__SANITIZE_THREAD__)
  threads = 1;
#endif
  if (threads <= 1 || tasks <= 1) {
    for (int64_t task = 0; task < tasks; ++task) f(task, int64_t{0});
    return;
  }
  const int team = static_cast<int>(std::min<int64_t>(threads, tasks));
#pragma omp parallel for schedule(dynamic) num_threads(team)
  for (int64_t task = 0; task < tasks; ++task) {
    f(task, static_cast<int64_t>(omp_get_thread_num()));
  }
}

/// As parallel_tasks, but f(task, worker) also learns a worker number in [0, threads) that no
/// other running task has; `step` tasks are dealt round-robin so that uneven tasks balance.
template <class F>
void parallel_dealt(int threads, int64_t tasks, const F& f) {
#if defined(__SANITIZE_THREAD__)
  const int64_t workers = 1;
#else
  const int64_t workers = std::min<int64_t>(std::max(threads, 1), tasks);
#endif
  parallel_tasks(threads, workers, [&](int64_t worker) {
    for (int64_t task = worker; task < tasks; task += workers) f(task, worker);
  });
}

/// Splits [0, count) into one range per worker, multiples of `grain`, and calls f(begin, end).
/// Few elements (less than `least` per worker) use fewer workers.
template <class F>
void parallel_range(int threads, int64_t count, int64_t grain, int64_t least, const F& f) {
  if (count <= 0) return;
  const int64_t grains = (count + grain - 1) / grain;
  const int64_t workers = std::clamp<int64_t>(
      std::min<int64_t>(threads, count / std::max<int64_t>(least, 1)), 1, grains);
  parallel_tasks(threads, workers, [&](int64_t worker) {
    const int64_t begin = grains * worker / workers * grain;
    const int64_t end = std::min(count, grains * (worker + 1) / workers * grain);
    if (begin < end) f(begin, end);
  });
}

}  // namespace weft::cpu
