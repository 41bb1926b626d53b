#include "weft/data/bpe_merge.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <queue>
#include <unordered_map>

namespace weft {
namespace {

// Below this length scanning all pairs is quicker than a heap.
constexpr size_t kShort = 32;

uint64_t pair_key(int32_t left, int32_t right) {
  return (uint64_t{static_cast<uint32_t>(left)} << 32) | static_cast<uint32_t>(right);
}

/// Positions whose pair has one rank, smallest first. They nearly always come in ascending order;
/// the others go through a heap.
struct Bucket {
  std::vector<uint32_t> ascending;
  size_t cursor = 0;
  std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>> late;

  bool empty() const { return cursor == ascending.size() && late.empty(); }
  void push(uint32_t position) {
    if (cursor == ascending.size() || position >= ascending.back()) {
      ascending.push_back(position);
    } else {
      late.push(position);
    }
  }
  uint32_t pop() {
    const bool has_ascending = cursor < ascending.size();
    if (late.empty() || (has_ascending && ascending[cursor] <= late.top())) {
      return ascending[cursor++];
    }
    const uint32_t position = late.top();
    late.pop();
    return position;
  }
};

struct Symbol {
  int32_t id;  // -1: merged into the one before
  uint32_t previous;
  uint32_t next;
};

constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();

}  // namespace

size_t MergeTable::slot(uint64_t pair) const {
  const size_t mask = rules_.size() - 1;
  size_t at = static_cast<size_t>((pair * 0x9E3779B97F4A7C15ull) >> 32) & mask;
  while (rules_[at].rank >= 0 && rules_[at].pair != pair) at = (at + 1) & mask;
  return at;
}

void MergeTable::add(int32_t left, int32_t right, int32_t rank, int32_t result) {
  if (2 * (num_rules_ + 1) > rules_.size()) {
    std::vector<Rule> old(2 * rules_.size());
    old.swap(rules_);
    for (const Rule& rule : old) {
      if (rule.rank >= 0) rules_[slot(rule.pair)] = rule;
    }
  }
  Rule& rule = rules_[slot(pair_key(left, right))];
  if (rule.rank < 0) ++num_rules_;
  rule = {pair_key(left, right), rank, result};
}

const MergeTable::Rule* MergeTable::find(int32_t left, int32_t right) const {
  const Rule& rule = rules_[slot(pair_key(left, right))];
  return rule.rank < 0 ? nullptr : &rule;
}

void MergeTable::merge(std::vector<int32_t>& symbols, MergeWork* work) const {
  MergeWork unused;
  MergeWork* counter = work == nullptr ? &unused : work;
  if (symbols.size() <= kShort) {
    merge_short(symbols, counter);
  } else {
    merge_long(symbols, counter);
  }
}

void MergeTable::merge_short(std::vector<int32_t>& symbols, MergeWork* work) const {
  if (symbols.size() < 2) return;
  // rules[i] is the rule of the pair (i, i + 1).
  const Rule* rules[kShort];
  size_t size = symbols.size();
  for (size_t i = 0; i + 1 < size; ++i) rules[i] = find(symbols[i], symbols[i + 1]);
  for (;;) {
    size_t best = size;
    int32_t best_rank = std::numeric_limits<int32_t>::max();
    for (size_t i = 0; i + 1 < size; ++i) {
      if (rules[i] != nullptr && rules[i]->rank < best_rank) {
        best = i;
        best_rank = rules[i]->rank;
      }
    }
    work->steps += static_cast<int64_t>(size);
    if (best == size) break;
    symbols[best] = rules[best]->result;
    for (size_t i = best + 1; i + 1 < size; ++i) symbols[i] = symbols[i + 1];
    for (size_t i = best + 1; i + 2 < size; ++i) rules[i] = rules[i + 1];
    --size;
    rules[best] = best + 1 < size ? find(symbols[best], symbols[best + 1]) : nullptr;
    if (best > 0) rules[best - 1] = find(symbols[best - 1], symbols[best]);
  }
  symbols.resize(size);
}

void MergeTable::merge_long(std::vector<int32_t>& symbols, MergeWork* work) const {
  const uint32_t size = static_cast<uint32_t>(symbols.size());
  std::vector<Symbol> list(size);
  for (uint32_t i = 0; i < size; ++i) {
    list[i] = {symbols[i], i == 0 ? kNone : i - 1, i + 1 == size ? kNone : i + 1};
  }
  std::unordered_map<int32_t, Bucket> buckets;  // by rank
  std::priority_queue<int32_t, std::vector<int32_t>, std::greater<>>
      ranks;  // of the non-empty ones
  const auto push = [&](uint32_t position) {
    const uint32_t next = list[position].next;
    if (next == kNone) return;
    const Rule* rule = find(list[position].id, list[next].id);
    if (rule == nullptr) return;
    Bucket& bucket = buckets[rule->rank];
    if (bucket.empty()) ranks.push(rule->rank);
    bucket.push(position);
  };
  for (uint32_t i = 0; i < size; ++i) push(i);
  work->steps += size;
  while (!ranks.empty()) {
    const int32_t rank = ranks.top();
    const auto bucket = buckets.find(rank);
    const uint32_t position = bucket->second.pop();
    if (bucket->second.empty()) {
      ranks.pop();
      buckets.erase(bucket);
    }
    ++work->steps;
    // The pair may have changed since it was noted.
    Symbol& left = list[position];
    if (left.id < 0 || left.next == kNone) continue;
    Symbol& right = list[left.next];
    const Rule* rule = find(left.id, right.id);
    if (rule == nullptr || rule->rank != rank) continue;
    left.id = rule->result;
    right.id = -1;
    left.next = right.next;
    if (left.next != kNone) list[left.next].previous = position;
    if (left.previous != kNone) push(left.previous);
    push(position);
  }
  symbols.clear();
  for (const Symbol& symbol : list) {
    if (symbol.id >= 0) symbols.push_back(symbol.id);
  }
}

}  // namespace weft
