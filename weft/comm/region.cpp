#include "weft/comm/region.h"

#include <algorithm>
#include <cstring>

#include "weft/base/check.h"

namespace weft {

Region block_region(int64_t before, int64_t x_extent, CutPiece x, int64_t between, int64_t y_extent,
                    CutPiece y, int64_t behind) {
  const int64_t y_stride = behind;
  const int64_t between_stride = y_extent * y_stride;
  const int64_t x_stride = between * between_stride;
  Region region;
  region.offset = x.begin * x_stride + y.begin * y_stride;
  region.run = y.size * behind;
  region.count = {before, x.size, between};
  region.stride = {x_extent * x_stride, x_stride, between_stride};
  // Innermost first: a loop whose steps continue the run becomes part of it.
  for (size_t i = region.count.size(); i-- > 0;) {
    if (region.count[i] != 1 && region.stride[i] != region.run) break;
    region.run *= region.count[i];
    region.count[i] = 1;
    region.stride[i] = 0;
  }
  return region;
}

Region piece_region(const CollectiveView& view, int member) {
  return block_region(view.outer, view.extent, view.pieces[static_cast<size_t>(member)], 1,
                      view.inner, {0, view.inner}, 1);
}

Region flat_region(int64_t offset, int64_t elements) {
  Region region;
  region.offset = offset;
  region.run = elements;
  return region;
}

namespace {

Region exchange_region(const CollectiveTensor& tensor, int64_t cut_extent, CutPiece cut,
                       int64_t gather_extent, CutPiece gathered) {
  if (tensor.cut_first) {
    return block_region(tensor.before, cut_extent, cut, tensor.between, gather_extent, gathered,
                        tensor.behind);
  }
  return block_region(tensor.before, gather_extent, gathered, tensor.between, cut_extent, cut,
                      tensor.behind);
}

}  // namespace

Region exchange_source(const CollectiveTensor& tensor, int from, int to) {
  const int64_t gathered = tensor.gathered[static_cast<size_t>(from)].size;
  return exchange_region(tensor, tensor.view.extent, tensor.view.pieces[static_cast<size_t>(to)],
                         gathered, {0, gathered});
}

Region exchange_target(const CollectiveTensor& tensor, int from, int to) {
  const int64_t cut = tensor.view.pieces[static_cast<size_t>(to)].size;
  const CutPiece last = tensor.gathered.back();
  return exchange_region(tensor, cut, {0, cut}, last.begin + last.size,
                         tensor.gathered[static_cast<size_t>(from)]);
}

RegionCursor::RegionCursor(const Region& region, int64_t position)
    : region_(region), offset_(region.offset) {
  if (region.elements() == 0 || position >= region.elements()) return;
  left_ = region.run - position % region.run;
  offset_ += position % region.run;
  position /= region.run;
  for (size_t i = at_.size(); i-- > 0;) {
    at_[i] = position % region.count[i];
    offset_ += at_[i] * region.stride[i];
    position /= region.count[i];
  }
}

void RegionCursor::advance(int64_t count) {
  left_ -= count;
  offset_ += count;
  if (left_ > 0) return;
  offset_ -= region_.run;
  for (size_t i = at_.size(); i-- > 0;) {
    offset_ += region_.stride[i];
    if (++at_[i] < region_.count[i]) {
      left_ = region_.run;
      return;
    }
    offset_ -= at_[i] * region_.stride[i];
    at_[i] = 0;
  }
}

void copy_region(const Region& from, const std::byte* source, const Region& to, std::byte* target,
                 int64_t element_bytes) {
  WEFT_CHECK(from.elements() == to.elements(), "copy_region", "got {} elements for {}",
             from.elements(), to.elements());
  RegionCursor read(from);
  RegionCursor write(to);
  for (int64_t left = from.elements(); left > 0;) {
    const int64_t count = std::min(read.left(), write.left());
    std::memcpy(target + write.offset() * element_bytes, source + read.offset() * element_bytes,
                static_cast<size_t>(count * element_bytes));
    read.advance(count);
    write.advance(count);
    left -= count;
  }
}

}  // namespace weft
