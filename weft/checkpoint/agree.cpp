#include "weft/checkpoint/agree.h"

#include <fmt/core.h>

#include <new>

#include "weft/base/check.h"
#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/base/raise.h"

namespace weft {
namespace {

constexpr const char* kWhere = "checkpoint";

/// "+<message>", or "-<exit code> <text>".
std::string encode(const std::exception_ptr& failure, std::string_view message) {
  if (!failure) return fmt::format("+{}", message);
  const auto fault = [](ExitCode code, const char* text) {
    return fmt::format("-{} {}", static_cast<int>(code), text);
  };
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    return fault(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    return fault(ExitCode::resource, "got no memory, expected enough for a checkpoint");
  } catch (const std::exception& error) {
    return fault(ExitCode::bug, error.what());
  }
}

[[noreturn]] void throw_fault(std::string_view fault) {
  const size_t space = fault.find(' ');
  const int code = std::stoi(std::string(fault.substr(1, space - 1)));
  const std::string_view text = fault.substr(space + 1);
  raise(static_cast<ExitCode>(code), kWhere, text);
}

bool is_fault(const std::string& message) { return message.empty() || message[0] != '+'; }
bool blames_another(const std::string& fault) {
  return fault.rfind(fmt::format("-{} ", static_cast<int>(ExitCode::peer)), 0) == 0;
}

/// The fault with the rank in front of its text.
std::string name_rank(const std::string& fault, size_t rank) {
  const size_t space = fault.find(' ');
  return fmt::format("{} rank {}: {}", fault.substr(0, space), rank, fault.substr(space + 1));
}

/// The fault to report, "" without one.
std::string first_fault(const std::vector<std::string>& messages) {
  std::string found;
  for (size_t rank = 0; rank < messages.size(); ++rank) {
    if (!is_fault(messages[rank])) continue;
    if (!found.empty() && (!blames_another(found) || blames_another(messages[rank]))) continue;
    found = name_rank(messages[rank], rank);
  }
  return found;
}

std::string reply(std::vector<std::string> messages, const Answer& answer) {
  if (std::string fault = first_fault(messages); !fault.empty()) return fault;
  for (std::string& message : messages) message.erase(0, 1);
  std::string text;
  const std::exception_ptr failure = failure_of([&] { text = answer(messages); });
  const std::string encoded = encode(failure, text);
  return failure ? name_rank(encoded, 0) : encoded;
}

}  // namespace

std::exception_ptr failure_of(const std::function<void()>& body) {
  try {
    body();
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

std::string agree(Communicator* communicator, const std::exception_ptr& failure,
                  std::string_view message, const Answer& answer) {
  if (communicator == nullptr || communicator->world() == 1) {
    if (failure) std::rethrow_exception(failure);
    return answer({std::string(message)});
  }
  std::vector<std::string> messages =
      communicator->gather(Channel::checkpoint, encode(failure, message));
  std::string text;
  if (communicator->rank() == 0) text = reply(std::move(messages), answer);
  text = communicator->broadcast(Channel::checkpoint, text);
  if (is_fault(text)) throw_fault(text);
  text.erase(0, 1);
  return text;
}

void agree(Communicator* communicator, const std::exception_ptr& failure) {
  agree(communicator, failure, "", [](const auto&) { return std::string(); });
}

std::map<std::string, Shape> all_tensors(Communicator* communicator,
                                         const std::exception_ptr& failure,
                                         const std::vector<LogicalGroup>& groups) {
  Json own = Json::array();
  for (const LogicalGroup& group : groups) own.push(Json::Array{group.name, Json(group.shape)});
  std::map<std::string, Shape> tensors;
  const auto add = [&](const std::string& text) {
    const Json json = parse_json(text, kWhere);
    for (const Json& pair : json.as_array()) {
      const std::string& name = pair.as_array()[0].as_string();
      Shape shape;
      for (const Json& extent : pair.as_array()[1].as_array()) shape.push_back(extent.as_int());
      const auto [known, is_new] = tensors.emplace(name, shape);
      WEFT_CHECK(is_new || known->second == shape, kWhere,
                 "tensor \"{}\" is {} on one rank and {} on another", name,
                 shape_text(known->second), shape_text(shape));
    }
  };
  const auto join = [&](const std::vector<std::string>& messages) {
    for (const std::string& message : messages) add(message);
    Json all = Json::array();
    for (const auto& [name, shape] : tensors) all.push(Json::Array{name, Json(shape)});
    return all.dump();
  };
  const std::string all = agree(communicator, failure, own.dump(), join);
  add(all);
  return tensors;
}

}  // namespace weft
