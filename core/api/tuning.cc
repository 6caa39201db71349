// The function of opdock.h that measures which way of launching an op is the fastest.
// SPDX-License-Identifier: Apache-2.0
#include <charconv>

#include "chain/runtime.h"
#include "fmt/format.h"
#include "opdock/types.hpp"
#include "report/report.h"
#include "tune/stored.h"

namespace opdock {
namespace {

[[noreturn]] void refuse(const std::string& found, const std::string& wanted) {
  throw Error(OPDOCK_INVALID_ARGUMENT, "request: found " + found + ", wanted " + wanted);
}

Report parse(const char* request) {
  if (request == nullptr) return Report::object();
  Report json = Report::parse(request, nullptr, false);
  if (!json.is_object()) refuse("no JSON object", "one, as opdock.h describes it");
  return json;
}

// Returns the member `name`; refuses the request if `is` does not accept its type.
const Report& member(const Report& object, const char* name, bool (Report::*is)() const noexcept,
                     const char* wanted) {
  const auto found = object.is_object() ? object.find(name) : object.end();
  if (found == object.end()) refuse(fmt::format("no \"{}\"", name), wanted);
  if (!((*found).*is)()) refuse(fmt::format("\"{}\": {}", name, found->dump()), wanted);
  return *found;
}

std::string text(const Report& object, const char* name) {
  return member(object, name, &Report::is_string, "a text");
}

double number(const Report& object, const char* name) {
  return member(object, name, &Report::is_number, "a number");
}

template <class Integer>
Integer integer(const Report& object, const char* name, int64_t least) {
  const Report& found = member(object, name, &Report::is_number_integer, "a whole number");
  const int64_t value = found.get<int64_t>();
  if (value < least || value > INT32_MAX) {
    refuse(fmt::format("\"{}\": {}", name, found.dump()),
           fmt::format("a number from {} to {}", least, INT32_MAX));
  }
  return static_cast<Integer>(value);
}

uint64_t question(const Report& object) {
  const std::string found = text(object, "question");
  uint64_t number = 0;
  const char* const end = found.data() + found.size();
  const char* const begin = found.data() + (found.starts_with("0x") ? 2 : found.size());
  const auto [at, error] = std::from_chars(begin, end, number, 16);
  if (error != std::errc() || at != end) {
    refuse("\"question\": \"" + found + "\"", "a 64-bit number such as \"0x12ab\"");
  }
  return number;
}

std::string text_of(uint64_t question) {
  return fmt::format("{:#x}", question);
}

Report to_json(const TuningScope& scope) {
  return {{"plugin", scope.plugin},
          {"version", scope.version},
          {"build", scope.build},
          {"device", scope.device}};
}

Report to_json(const std::vector<TunedEntry>& entries) {
  Report list = Report::array();
  for (const TunedEntry& entry : entries) {
    Report json = to_json(entry.scope);
    json["created"] = entry.created;
    json["path"] = entry.path;
    json["results"] = Report::array();
    for (const TunedResult& result : entry.results) {
      json["results"].push_back({{"question", text_of(result.question)},
                                 {"choice", result.choice},
                                 {"count", result.count},
                                 {"situation", result.situation},
                                 {"default_us", result.default_us},
                                 {"best_us", result.best_us}});
    }
    list.push_back(std::move(json));
  }
  return list;
}

[[noreturn]] void refuse_cache(const std::vector<Reason>& reasons) {
  std::string all;
  for (const Reason& reason : reasons) all += (all.empty() ? "" : " ") + to_text(reason);
  throw Error(OPDOCK_INCOMPATIBLE, all);
}

std::unique_ptr<Cache> open_cache() {
  std::vector<Reason> reasons;
  std::unique_ptr<Cache> cache = Cache::open(cache_options_from_environment(&reasons), &reasons);
  if (cache->folder().empty()) refuse_cache(reasons);
  return cache;
}

Report measure(const Report& request) {
  std::optional<uint64_t> which;
  std::optional<int32_t> way;
  if (request.contains("question")) which = question(request);
  if (which || request.contains("choice")) way = integer<int32_t>(request, "choice", -1);
  measure_ways(which, way);
  return Report::object();
}

Report asked(const Report&) {
  Report list = Report::array();
  for (const AskedQuestion& one : take_asked()) {
    Report json = to_json(one.scope);
    json["op"] = one.op;
    json["question"] = text_of(one.question);
    json["count"] = one.count;
    list.push_back(std::move(json));
  }
  return {{"asked", std::move(list)}};
}

Report store(const Report& request) {
  const TuningScope scope{text(request, "plugin"), text(request, "version"), text(request, "build"),
                          text(request, "device")};
  std::vector<TunedResult> results, now;
  for (const Report& item : member(request, "results", &Report::is_array, "a list of results")) {
    results.push_back({question(item), integer<int32_t>(item, "choice", -1),
                       integer<uint32_t>(item, "count", 0), text(item, "situation"),
                       number(item, "default_us"), number(item, "best_us")});
  }
  const std::unique_ptr<Cache> cache = open_cache();
  std::vector<Reason> reasons;
  if (!store_tuned(cache.get(), scope, results, &now, &reasons)) refuse_cache(reasons);
  retune(scope, choices_of(now));
  return {{"folder", cache->folder()}};
}

Report list(const Report&) {
  const std::string folder = open_cache()->folder();
  return {{"folder", folder}, {"stored", to_json(list_tuned({folder}))}};
}

Report forget(const Report& request) {
  const std::string plugin = request.contains("plugin") ? text(request, "plugin") : "";
  const std::string folder = open_cache()->folder();
  return {{"folder", folder}, {"stored", to_json(forget_tuned({folder}, plugin))}};
}

Report stop(const Report&) {
  stop_measuring();
  return Report::object();
}

constexpr struct {
  std::string_view name;
  Report (*act)(const Report& request);
} kActions[] = {{"measure", measure}, {"stop", stop}, {"asked", asked},
                {"store", store},     {"list", list}, {"forget", forget}};

}  // namespace
}  // namespace opdock

opdock_status opdock_tuning_json(const char* action, const char* request, char** out, char* error,
                                 uint32_t error_size) {
  using namespace opdock;
  return report(
      [&] {
        const std::string_view what = action == nullptr ? "" : action;
        for (const auto& [name, act] : kActions) {
          if (name == what) return act(parse(request));
        }
        throw Error(OPDOCK_INVALID_ARGUMENT,
                    "action: found \"" + std::string(what) +
                        "\", wanted measure, stop, asked, store, list or forget");
      },
      out, {error, error_size});
}
