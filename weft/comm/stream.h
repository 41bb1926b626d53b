// What one member sends to another in a collective: regions of several tensors, one after the
// other, as one sequence of elements that can be cut into chunks anywhere.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "weft/comm/region.h"

namespace weft {

class Stream {
 public:
  void add(size_t tensor, const Region& region) {
    parts_.push_back({tensor, elements_, region});
    elements_ += region.elements();
  }
  int64_t elements() const { return elements_; }

  /// Calls fn(tensor, offset in the tensor, position in the stream, count) for the runs of
  /// [begin, end), in order.
  template <class Fn>
  void for_runs(int64_t begin, int64_t end, Fn&& fn) const {
    for (const Part& part : parts_) {
      const int64_t part_end = std::min(end, part.begin + part.region.elements());
      int64_t at = std::max(begin, part.begin);
      if (at >= part_end) continue;
      RegionCursor cursor(part.region, at - part.begin);
      while (at < part_end) {
        const int64_t count = std::min(cursor.left(), part_end - at);
        fn(part.tensor, cursor.offset(), at, count);
        cursor.advance(count);
        at += count;
      }
    }
  }

  /// The tensor and place of [begin, end) when it is one run; tensor -1 otherwise.
  struct Place {
    int64_t tensor = -1;
    int64_t offset = 0;
  };
  Place place(int64_t begin, int64_t end) const {
    Place place;
    for (const Part& part : parts_) {
      if (begin < part.begin || end > part.begin + part.region.elements()) continue;
      const RegionCursor cursor(part.region, begin - part.begin);
      if (cursor.left() >= end - begin) {
        return {static_cast<int64_t>(part.tensor), cursor.offset()};
      }
    }
    return place;
  }

 private:
  struct Part {
    size_t tensor = 0;
    int64_t begin = 0;  // in the stream
    Region region;
  };
  std::vector<Part> parts_;
  int64_t elements_ = 0;
};

}  // namespace weft
