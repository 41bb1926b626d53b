// Reads tokenizer.json and the older vocab.json + merges.txt pair into a BpeModel.
#include <fmt/core.h>

#include <algorithm>
#include <initializer_list>

#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/data/bpe_tokenizer.h"
#include "weft/data/unicode.h"
#include "weft/io/file.h"

namespace weft {
namespace {

// A damaged file must not make us allocate by its greatest id.
constexpr int64_t kMaxId = int64_t{1} << 24;
constexpr const char* kEndOfDocumentNames[] = {"<|endoftext|>", "<|end_of_text|>", "</s>"};

using TokenIds = std::unordered_map<std::string, int32_t>;

/// GPT-2's alphabet: printable bytes stand for themselves, the other 68 are U+0100 and up.
std::array<char32_t, 256> byte_alphabet() {
  std::array<char32_t, 256> alphabet{};
  char32_t next = 0x100;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const bool plain = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) ||
                       (byte >= 0xAE && byte <= 0xFF);
    alphabet[byte] = plain ? byte : next++;
  }
  return alphabet;
}

[[noreturn]] void refuse(const std::string& name, const std::string& got,
                         const std::string& expected) {
  throw InputError(
      name, fmt::format("got {}, expected {}; try a byte-level BPE tokenizer", got, expected));
}

bool absent(const Json* value) { return value == nullptr || value->is_null(); }

/// Type names of a component: its own, or those of its steps when it is a Sequence.
std::vector<std::string> component_types(const Json* component, const char* steps) {
  std::vector<std::string> types;
  if (absent(component)) return types;
  const std::string& type = component->at("type").as_string();
  if (type != "Sequence") return {type};
  for (const Json& step : component->at(steps).as_array()) {
    types.push_back(step.at("type").as_string());
  }
  return types;
}

void allow_only(const std::string& name, const char* part, const std::vector<std::string>& types,
                std::initializer_list<std::string_view> allowed, const std::string& expected) {
  for (const std::string& type : types) {
    if (std::find(allowed.begin(), allowed.end(), type) == allowed.end()) {
      refuse(name, fmt::format("{} {}", part, type), expected);
    }
  }
}

class ModelReader {
 public:
  explicit ModelReader(const std::string& name) { model_.name = name; }

  void read_vocab(const Json& vocab) {
    int64_t greatest = -1;
    for (const auto& [token, id] : vocab.as_object()) {
      check_id(token, id.as_int());
      greatest = std::max(greatest, id.as_int());
      ids_.emplace(token, static_cast<int32_t>(id.as_int()));
    }
    resize(greatest + 1);
    for (const auto& [token, id] : ids_) {
      claim(token, id);
      bool complete = false;
      model_.texts[static_cast<size_t>(id)] = bytes_of_token(token, &complete);
      if (complete) model_.pieces.emplace(model_.texts[static_cast<size_t>(id)], id);
    }
  }

  void add_token(AddedToken token) {
    check_id(token.content, token.id);
    const auto known = ids_.find(token.content);
    if (known != ids_.end() && known->second != token.id) {
      refuse(model_.name, fmt::format("id {} for added token \"{}\"", token.id, token.content),
             fmt::format("its id {} of the vocabulary", known->second));
    }
    if (known == ids_.end()) {
      resize(std::max<int64_t>(token.id + int64_t{1}, static_cast<int64_t>(model_.texts.size())));
      claim(token.content, token.id);
      ids_.emplace(token.content, token.id);
    }
    model_.texts[static_cast<size_t>(token.id)] = token.content;
    model_.added.push_back(std::move(token));
  }

  void read_added(const Json& json) {
    const auto flag = [&](const char* key, bool otherwise) {
      const Json* value = json.find(key);
      return value == nullptr ? otherwise : value->as_bool();
    };
    AddedToken token;
    check_id(json.at("content").as_string(), json.at("id").as_int());
    token.id = static_cast<int32_t>(json.at("id").as_int());
    token.content = json.at("content").as_string();
    token.single_word = flag("single_word", false);
    token.lstrip = flag("lstrip", false);
    token.rstrip = flag("rstrip", false);
    token.special = flag("special", false);
    token.normalized = flag("normalized", !token.special);
    add_token(std::move(token));
  }

  void add_merge(const std::string& left, const std::string& right) {
    const int32_t result = merge_part(left + right, left, right);
    if (is_special(result)) {
      refuse(model_.name, fmt::format("a merge that makes the control token \"{}\"", left + right),
             "control tokens that plain text cannot make");
    }
    model_.merges.add(merge_part(left, left, right), merge_part(right, left, right), num_merges_++,
                      result);
  }

  void add_merge_line(const std::string& line) {
    const size_t space = line.find(' ');
    if (space == std::string::npos || space == 0 || space + 1 == line.size() ||
        line.find(' ', space + 1) != std::string::npos) {
      refuse(model_.name, fmt::format("merge \"{}\" (number {})", line, num_merges_),
             "two tokens separated by one space");
    }
    add_merge(line.substr(0, space), line.substr(space + 1));
  }

  /// Marks control tokens and finds the end of documents. Before merges are read.
  void settle_special(const std::string& eos_token) {
    for (const char* candidate : kEndOfDocumentNames) {
      const auto found = std::find_if(model_.added.begin(), model_.added.end(),
                                      [&](const auto& t) { return t.content == candidate; });
      if (found != model_.added.end() && model_.eod_id < 0) model_.eod_id = found->id;
    }
    if (model_.eod_id < 0) model_.eod_id = find(eos_token);
    for (const char* candidate : kEndOfDocumentNames) {
      if (model_.eod_id < 0) model_.eod_id = find(candidate);
    }
    if (model_.eod_id < 0) {
      throw InputError(model_.name,
                       "got no end-of-document token, expected <|endoftext|>, <|end_of_text|> or "
                       "</s>; try an eos_token in tokenizer_config.json beside it");
    }
    model_.special[static_cast<size_t>(model_.eod_id)] = true;
    for (AddedToken& token : model_.added) {
      // The end of documents is a control token whatever its flag says.
      if (token.id == model_.eod_id) token.special = true;
      if (token.special) model_.special[static_cast<size_t>(token.id)] = true;
    }
    std::erase_if(model_.pieces, [&](const auto& piece) { return is_special(piece.second); });
    const std::array<char32_t, 256> alphabet = byte_alphabet();
    for (size_t byte = 0; byte < 256; ++byte) {
      std::string token;
      append_utf8(token, alphabet[byte]);
      model_.byte_ids[byte] = find(token);
      if (is_special(model_.byte_ids[byte])) {
        refuse(model_.name, fmt::format("the single byte \"{}\" as a control token", token),
               "longer control tokens");
      }
    }
  }

  int32_t find(const std::string& token) const {
    const auto found = ids_.find(token);
    return found == ids_.end() ? -1 : found->second;
  }

  BpeModel& model() { return model_; }

 private:
  bool is_special(int32_t id) const { return id >= 0 && model_.special[static_cast<size_t>(id)]; }

  void check_id(const std::string& token, int64_t id) const {
    if (id < 0 || id >= kMaxId) {
      refuse(model_.name, fmt::format("id {} of token \"{}\"", id, token),
             fmt::format("0 to {}", kMaxId - 1));
    }
  }
  void resize(int64_t size) {
    model_.texts.resize(static_cast<size_t>(size));
    model_.present.resize(static_cast<size_t>(size));
    model_.special.resize(static_cast<size_t>(size));
  }
  void claim(const std::string& token, int32_t id) {
    if (model_.present[static_cast<size_t>(id)]) {
      refuse(model_.name, fmt::format("id {} of token \"{}\" twice", id, token),
             "one token for each id");
    }
    model_.present[static_cast<size_t>(id)] = true;
  }
  int32_t merge_part(const std::string& token, const std::string& left, const std::string& right) {
    const int32_t id = find(token);
    if (id < 0) {
      refuse(model_.name, fmt::format("merge \"{} {}\" (number {})", left, right, num_merges_),
             fmt::format("token \"{}\" in the vocabulary", token));
    }
    return id;
  }

  BpeModel model_;
  TokenIds ids_;
  int32_t num_merges_ = 0;
};

void check_model_options(const Json& model, const std::string& name) {
  const Json* type = model.find("type");
  if (type != nullptr && type->as_string() != "BPE") {
    refuse(name, "model " + type->as_string(), "model BPE");
  }
  const Json* dropout = model.find("dropout");
  if (!absent(dropout) && dropout->as_double() != 0.0) {
    refuse(name, "model option dropout", "none, since ids must not be random");
  }
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const Json* value = model.find(key);
    if (!absent(value) && !value->as_string().empty()) {
      refuse(name, fmt::format("model option {} \"{}\"", key, value->as_string()), "none");
    }
  }
  const Json* fallback = model.find("byte_fallback");
  if (!absent(fallback) && fallback->as_bool()) {
    refuse(name, "model option byte_fallback", "the byte alphabet of ByteLevel");
  }
}

bool option(const Json& model, const char* key) {
  const Json* value = model.find(key);
  return !absent(value) && value->as_bool();
}

/// The eos_token of tokenizer_config.json or special_tokens_map.json in `folder`, "" without one.
std::string find_eos_token(const std::string& folder) {
  for (const char* file : {"tokenizer_config.json", "special_tokens_map.json"}) {
    const std::string path = join_path(folder, file);
    if (!posix_files().is_file(path)) continue;
    const Json config = read_json_file(path);
    const Json* eos = config.find("eos_token");
    if (absent(eos)) continue;
    return eos->is_object() ? eos->at("content").as_string() : eos->as_string();
  }
  return "";
}

std::unique_ptr<Tokenizer> load_pair(const std::string& folder) {
  Json pre_tokenizer = Json::object({{"type", "ByteLevel"}, {"add_prefix_space", false}});
  const std::string config_path = join_path(folder, "tokenizer_config.json");
  if (posix_files().is_file(config_path)) {
    const Json config = read_json_file(config_path);
    const Json* name = config.find("tokenizer_class");
    if (!absent(name) && !name->as_string().starts_with("GPT2Tokenizer")) {
      refuse(config_path, "tokenizer_class " + name->as_string() + " without a tokenizer.json",
             "GPT2Tokenizer, or the tokenizer.json of that class");
    }
    pre_tokenizer.set("add_prefix_space", option(config, "add_prefix_space"));
  }
  const std::string vocab_path = join_path(folder, "vocab.json");
  BpeModel model = read_bpe_pair(read_json_file(vocab_path),
                                 posix_files().read_text(join_path(folder, "merges.txt")),
                                 vocab_path, find_eos_token(folder));
  return std::make_unique<BpeTokenizer>(std::move(model), PreTokenizer(pre_tokenizer, vocab_path));
}

/// Errors of the JSON accessors know no file: give them the name of ours.
template <class Work>
auto with_name(const std::string& name, Work work) {
  try {
    return work();
  } catch (const InputError& error) {
    const std::string text = error.what();
    if (!text.starts_with("[json]")) throw;
    throw InputError(name, text.substr(text.find(']') + 2));
  }
}

}  // namespace

std::string bytes_of_token(std::string_view token, bool* complete) {
  static const std::unordered_map<char32_t, char> bytes = [] {
    std::unordered_map<char32_t, char> map;
    const std::array<char32_t, 256> alphabet = byte_alphabet();
    for (size_t byte = 0; byte < 256; ++byte) map[alphabet[byte]] = static_cast<char>(byte);
    return map;
  }();
  std::string out;
  *complete = true;
  for (std::string_view rest = token; !rest.empty();) {
    size_t length = 0;
    const auto found = bytes.find(decode_utf8(rest, &length));
    if (found == bytes.end()) {
      *complete = false;
      return std::string(token);
    }
    out += found->second;
    rest.remove_prefix(length);
  }
  return out;
}

BpeModel read_bpe_model(const Json& json, const std::string& name, const std::string& eos_token) {
  const Json* version = json.find("version");
  if (!absent(version) && version->as_string() != "1.0") {
    refuse(name, "version " + version->as_string(), "1.0");
  }
  const Json& model = json.at("model");
  check_model_options(model, name);
  const std::vector<std::string> normalizers =
      component_types(json.find("normalizer"), "normalizers");
  allow_only(name, "normalizer", normalizers, {"NFC"}, "NFC or none");
  allow_only(name, "decoder", component_types(json.find("decoder"), "decoders"), {"ByteLevel"},
             "ByteLevel or none");
  // These only add begin and end ids, which weft does not want, or change offsets.
  allow_only(name, "post_processor", component_types(json.find("post_processor"), "processors"),
             {"ByteLevel", "TemplateProcessing", "RobertaProcessing", "BertProcessing"},
             "ByteLevel, TemplateProcessing or none");
  ModelReader reader(name);
  reader.read_vocab(model.at("vocab"));
  if (const Json* added = json.find("added_tokens"); !absent(added)) {
    for (const Json& token : added->as_array()) reader.read_added(token);
  }
  reader.settle_special(eos_token);
  for (const Json& merge : model.at("merges").as_array()) {
    if (merge.is_string()) {
      reader.add_merge_line(merge.as_string());
      continue;
    }
    if (merge.as_array().size() != 2) refuse(name, "a merge without two parts", "pairs");
    reader.add_merge(merge.as_array()[0].as_string(), merge.as_array()[1].as_string());
  }
  BpeModel& result = reader.model();
  result.nfc = !normalizers.empty();
  result.ignore_merges = option(model, "ignore_merges");
  result.fuse_unknown = option(model, "fuse_unk");
  if (const Json* unknown = model.find("unk_token"); !absent(unknown)) {
    result.unknown_id = reader.find(unknown->as_string());
    if (result.unknown_id < 0) {
      refuse(name, "unk_token \"" + unknown->as_string() + "\"", "a token of the vocabulary");
    }
  }
  return std::move(result);
}

BpeModel read_bpe_pair(const Json& vocab, std::string_view merges, const std::string& name,
                       const std::string& eos_token) {
  return with_name(name, [&] {
    ModelReader reader(name);
    reader.read_vocab(vocab);
    for (const char* token : kEndOfDocumentNames) {
      if (reader.find(token) < 0) continue;
      AddedToken added;
      added.id = reader.find(token);
      added.content = token;
      added.special = true;
      reader.add_token(added);
    }
    reader.settle_special(eos_token);
    while (!merges.empty()) {
      std::string_view line = merges.substr(0, merges.find('\n'));
      merges.remove_prefix(std::min(merges.size(), line.size() + 1));
      if (line.ends_with('\r')) line.remove_suffix(1);
      if (line.empty() || line.starts_with("#version")) continue;
      reader.add_merge_line(std::string(line));
    }
    return std::move(reader.model());
  });
}

std::unique_ptr<Tokenizer> parse_tokenizer_json(std::string_view text, const std::string& name,
                                                const std::string& eos_token) {
  const Json json = parse_json(text, name);
  return with_name(name, [&]() -> std::unique_ptr<Tokenizer> {
    BpeModel model = read_bpe_model(json, name, eos_token);
    const Json* pre_tokenizer = json.find("pre_tokenizer");
    PreTokenizer cutter(pre_tokenizer == nullptr ? Json() : *pre_tokenizer, name);
    return std::make_unique<BpeTokenizer>(std::move(model), std::move(cutter));
  });
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& spec) {
  if (spec == "bytes") return make_byte_tokenizer();
  FileSystem& files = posix_files();
  std::string path = spec;
  if (files.is_folder(spec)) {
    path = join_path(spec, "tokenizer.json");
    if (!files.is_file(path)) {
      if (files.is_file(join_path(spec, "vocab.json")) &&
          files.is_file(join_path(spec, "merges.txt"))) {
        return load_pair(spec);
      }
      throw InputError(spec,
                       "got a folder without tokenizer.json, expected one (or vocab.json and "
                       "merges.txt); try saving the tokenizer in its fast form");
    }
  } else if (!files.is_file(spec)) {
    throw InputError(spec,
                     "got no such file, expected \"bytes\" or a tokenizer.json (or its "
                     "folder); try checking data.tokenizer");
  }
  return parse_tokenizer_json(files.read_text(path), path, find_eos_token(parent_path(path)));
}

}  // namespace weft
