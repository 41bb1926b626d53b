// The numbers that the elements of a state have in the whole logical tensor, whatever piece of it a
// rank holds: what random draws per element are indexed by, so that layouts do not change them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "weft/base/shape.h"
#include "weft/ir/graph.h"

namespace weft {

class ElementNumbers {
 public:
  /// Of the elements that `state` holds.
  explicit ElementNumbers(const State& state);
  /// From text(); BugError when it is none.
  explicit ElementNumbers(std::string_view text);

  /// For an attribute of a node: "shape;begin;extent;first", lists with commas.
  std::string text() const;

  /// Calls f(offset, number, length) for the runs of consecutive numbers among the elements
  /// [begin, begin + count) of the state; `offset` counts from `begin`.
  template <class F>
  void runs(int64_t begin, int64_t count, const F& f) const {
    for (int64_t done = 0; done < count;) {
      const int64_t at = first_ + begin + done;
      const int64_t length = std::min(count - done, run_ - at % run_);
      f(done, number(at), length);
      done += length;
    }
  }

 private:
  void prepare();
  /// Of element `at` of the row-major box.
  int64_t number(int64_t at) const;

  Shape shape_;        // of the whole
  Shape begin_;        // of the box
  Shape extent_;       // of the box
  int64_t first_ = 0;  // element of the box that is element 0 of the state
  int64_t run_ = 1;    // elements of the box with consecutive numbers
};

}  // namespace weft
