#include "weft/data/pattern.h"

#include <fmt/core.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>

#include "weft/base/error.h"

namespace weft {
namespace {

constexpr size_t kMaxPatternBytes = 65536;
constexpr size_t kJitStackBytes = size_t{1} << 20;
constexpr uint32_t kHeapLimitKib = 256 * 1024;

template <class T, void (*free)(T*)>
struct Free {
  void operator()(T* pointer) const { free(pointer); }
};
using MatchContext =
    std::unique_ptr<pcre2_match_context, Free<pcre2_match_context, pcre2_match_context_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, Free<pcre2_match_data, pcre2_match_data_free>>;
using JitStack = std::unique_ptr<pcre2_jit_stack, Free<pcre2_jit_stack, pcre2_jit_stack_free>>;
using CompileContext =
    std::unique_ptr<pcre2_compile_context, Free<pcre2_compile_context, pcre2_compile_context_free>>;

/// What a search needs, made once per thread. Only the range of the whole match is asked for.
struct Scratch {
  MatchData match{pcre2_match_data_create(1, nullptr)};
  MatchContext context{pcre2_match_context_create(nullptr)};
  JitStack stack{pcre2_jit_stack_create(size_t{32} * 1024, kJitStackBytes, nullptr)};

  Scratch() { pcre2_jit_stack_assign(context.get(), nullptr, stack.get()); }
};

std::string error_text(int code) {
  unsigned char text[256];
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

}  // namespace

struct Pattern::Code {
  pcre2_code* code = nullptr;
  bool jit = false;
  ~Code() { pcre2_code_free(code); }
};

Pattern::Pattern(const std::string& expression, const std::string& name)
    : code_(std::make_unique<Code>()), name_(name) {
  if (expression.find("&&") != std::string::npos) {
    throw InputError(name_, fmt::format("got pattern \"{}\" with &&, expected plain character "
                                        "classes",
                                        expression));
  }
  const std::string source = spell_out_spaces(expression);
  const CompileContext context(pcre2_compile_context_create(nullptr));
  pcre2_set_max_pattern_length(context.get(), kMaxPatternBytes);
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  size_t offset = 0;
  code_->code = pcre2_compile(
      reinterpret_cast<PCRE2_SPTR>(source.data()), source.size(),
      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C | PCRE2_NO_AUTO_CAPTURE,
      &error, &offset, context.get());
  if (code_->code == nullptr) {
    throw InputError(name_, fmt::format("got pattern \"{}\" ({} near byte {}), expected a regular "
                                        "expression PCRE2 accepts",
                                        expression, error_text(error), offset));
  }
  code_->jit = pcre2_jit_compile(code_->code, PCRE2_JIT_COMPLETE) == 0;
}

Pattern::~Pattern() = default;

void Pattern::split(std::string_view text, std::vector<std::string_view>& pieces) const {
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  thread_local const Scratch scratch;
  const MatchData& match = scratch.match;
  const MatchContext& context = scratch.context;
  // Enough for any sane pattern on a text of this length, an end for those that explode.
  const uint64_t limit = 10'000'000 + 16 * static_cast<uint64_t>(text.size());
  pcre2_set_match_limit(context.get(),
                        static_cast<uint32_t>(std::min<uint64_t>(limit, UINT32_MAX)));
  pcre2_set_heap_limit(context.get(), kHeapLimitKib);
  size_t done = 0;   // text[0, done) is in pieces
  size_t start = 0;  // where the next search begins
  while (start < text.size()) {
    int result = pcre2_match(code_->code, subject, text.size(), start, PCRE2_NO_UTF_CHECK,
                             match.get(), context.get());
    if (result == PCRE2_ERROR_JIT_STACKLIMIT) {
      result = pcre2_match(code_->code, subject, text.size(), start,
                           PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, match.get(), context.get());
    }
    if (result == PCRE2_ERROR_NOMATCH) break;
    if (result < 0) {
      throw InputError(name_, fmt::format("the pre-tokenizer pattern failed on a text of {} bytes "
                                          "({}); try shorter documents or a simpler pattern",
                                          text.size(), error_text(result)));
    }
    const size_t* range = pcre2_get_ovector_pointer(match.get());
    if (range[1] <= range[0] || range[0] < done) {
      // An empty match: go on one character later.
      start = std::max(start, range[1]) + 1;
      while (start < text.size() && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) {
        ++start;
      }
      continue;
    }
    if (range[0] > done) pieces.push_back(text.substr(done, range[0] - done));
    pieces.push_back(text.substr(range[0], range[1] - range[0]));
    done = start = range[1];
  }
  if (done < text.size()) pieces.push_back(text.substr(done));
}

std::string escape_pattern(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                       static_cast<unsigned char>(c) >= 0x80;
    if (!plain) out += '\\';
    out += c;
  }
  return out;
}

std::string spell_out_spaces(std::string_view expression) {
  constexpr std::string_view kSpaces =
      "\\x09-\\x0d\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"
      "\\x{205f}\\x{3000}";
  std::string out;
  bool in_class = false;
  size_t class_begin = 0;
  for (size_t i = 0; i < expression.size(); ++i) {
    const char c = expression[i];
    if (c == '\\' && i + 1 < expression.size()) {
      const char next = expression[++i];
      if (next == 's' && in_class) {
        out += kSpaces;
      } else if (next == 's') {
        out.append("[").append(kSpaces).append("]");
      } else if (next == 'S' && !in_class) {
        out.append("[^").append(kSpaces).append("]");
      } else {
        out.append({c, next});
      }
      continue;
    }
    if (in_class && expression.substr(i).starts_with("[:")) {
      const size_t end = expression.find(":]", i + 2);
      if (end != std::string_view::npos) {
        out += expression.substr(i, end + 2 - i);
        i = end + 1;
        continue;
      }
    }
    if (!in_class && c == '[') {
      in_class = true;
      class_begin = i + 1;
      if (class_begin < expression.size() && expression[class_begin] == '^') ++class_begin;
    } else if (in_class && c == ']' && i > class_begin) {
      in_class = false;
    }
    out += c;
  }
  return out;
}

}  // namespace weft
