#include "weft/data/source.h"

#include <algorithm>

#include "weft/base/check.h"
#include "weft/data/jsonl.h"

namespace weft {

void IdList::append(std::span<const int32_t> ids) {
  if (wide_) {
    ids32_.insert(ids32_.end(), ids.begin(), ids.end());
    return;
  }
  for (const int32_t id : ids) ids16_.push_back(static_cast<uint16_t>(id));
}

void IdList::read(int64_t first, int64_t count, int32_t* out) const {
  if (wide_) {
    std::copy_n(ids32_.begin() + first, count, out);
  } else {
    std::copy_n(ids16_.begin() + first, count, out);
  }
}

int64_t read_documents(const DataFile& file, FilePool& pool, const Tokenizer& tokenizer,
                       bool allow_special, int64_t max_row,
                       const std::function<void(const Document&)>& document) {
  int64_t skipped = 0;
  std::vector<int32_t> ids;
  const auto add_text = [&](std::string_view text) {
    ids.clear();
    if (!is_blank(text)) tokenizer.encode(text, allow_special, ids);
    if (ids.empty()) {
      ++skipped;
      return;
    }
    ids.push_back(tokenizer.eod_id());
    document({false, ids, {}, static_cast<int64_t>(text.size())});
  };
  const PooledFile source(file.path, pool);
  if (file.kind == DataFileKind::text) {
    std::string text(static_cast<size_t>(source.size()), '\0');
    source.read(0, text.data(), source.size());
    add_text(text);
    return skipped;
  }
  const JsonlLimits limits{tokenizer.vocab_size(), max_row};
  const int64_t empty = read_jsonl(source, limits, [&](JsonlRow& row) {
    if (row.is_text) {
      add_text(row.text);
    } else {
      document({true, row.input_ids, row.labels, 0});
    }
  });
  return skipped + empty;
}

Source::Source(const SampleOptions& options, const Tokenizer& tokenizer, bool allow_special,
               std::shared_ptr<FilePool> pool)
    : options_(options),
      tokenizer_(tokenizer),
      allow_special_(allow_special),
      pool_(std::move(pool)),
      texts_(tokenizer.vocab_size()),
      row_ids_(tokenizer.vocab_size()) {}

void Source::add(const DataFile& file) {
  if (file.kind == DataFileKind::tokens) {
    auto tokens = std::make_shared<TokenFile>(file.path, pool_, tokenizer_.vocab_size());
    counts_.documents += tokens->num_documents();
    counts_.tokens += tokens->num_tokens();
    if (tokens->num_tokens() == 0) return;
    segments_.push_back({stream_tokens_, 0, tokens});
    stream_tokens_ += tokens->num_tokens();
    return;
  }
  Segment segment{stream_tokens_, texts_.size(), nullptr};
  counts_.skipped += read_documents(
      file, *pool_, tokenizer_, allow_special_, options_.seq_len, [&](const Document& document) {
        ++counts_.documents;
        const auto size = static_cast<int64_t>(document.ids.size());
        counts_.tokens += size;
        if (document.is_row) {
          rows_.push_back({row_ids_.size(), size});
          row_ids_.append(document.ids);
          row_labels_.insert(row_labels_.end(), document.labels.begin(), document.labels.end());
        } else {
          texts_.append(document.ids);
          stream_tokens_ += size;
        }
      });
  if (stream_tokens_ > segment.begin) segments_.push_back(std::move(segment));
}

void Source::read_stream(int64_t first, int64_t count, int32_t* out) const {
  auto segment = std::upper_bound(segments_.begin(), segments_.end(), first,
                                  [](int64_t at, const Segment& s) { return at < s.begin; });
  WEFT_CHECK(segment != segments_.begin(), "Source::read_stream", "got position {}", first);
  --segment;
  while (count > 0) {
    const auto next = segment + 1;
    const int64_t end = next == segments_.end() ? stream_tokens_ : next->begin;
    const int64_t piece = std::min(count, end - first);
    if (segment->file) {
      segment->file->read(first - segment->begin, piece, out);
    } else {
      texts_.read(segment->offset + first - segment->begin, piece, out);
    }
    first += piece;
    out += piece;
    count -= piece;
    segment = next;
  }
}

void Source::fill(int64_t length, const SampleView& out) const {
  *out.length = static_cast<int32_t>(length);
  int32_t position = 0;
  int32_t segment = 0;
  for (int64_t s = 0; s < options_.seq_len; ++s) {
    out.positions[s] = position++;
    out.segments[s] = segment;
    // Padding has the same id, so only its place tells it apart.
    if (s >= length || out.tokens[s] != options_.eod_id) continue;
    if (options_.reset_positions) position = 0;
    if (options_.reset_attention) ++segment;
    if (options_.mask_boundary) out.labels[s] = kIgnoredLabel;
  }
}

void Source::read_sample(int64_t index, const SampleView& out) const {
  const int64_t seq_len = options_.seq_len;
  WEFT_CHECK(index >= 0 && index < num_samples(), "Source::read_sample", "got sample {} of {}",
             index, num_samples());
  if (index < stream_samples()) {
    read_stream(index * seq_len, seq_len, out.tokens);
    std::copy(out.tokens + 1, out.tokens + seq_len, out.labels);
    read_stream((index + 1) * seq_len, 1, out.labels + seq_len - 1);
    fill(seq_len, out);
    return;
  }
  const Row& row = rows_[static_cast<size_t>(index - stream_samples())];
  row_ids_.read(row.begin, row.size, out.tokens);
  std::fill(out.tokens + row.size, out.tokens + seq_len, options_.eod_id);
  std::copy_n(row_labels_.begin() + row.begin + 1, row.size - 1, out.labels);
  std::fill(out.labels + row.size - 1, out.labels + seq_len, kIgnoredLabel);
  fill(row.size, out);
}

}  // namespace weft
