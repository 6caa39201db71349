// SPDX-License-Identifier: Apache-2.0
#include "tune/stored.h"

#include <algorithm>
#include <charconv>
#include <ctime>
#include <optional>

#include "cache/entry.h"
#include "cache/evict.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"

namespace opdock {
namespace {

using nlohmann::ordered_json;

constexpr int kFormat = 1;  // version of the text in an entry
constexpr const char* kBlob = "choices";
constexpr int64_t kFarFuture = int64_t{1} << 40;  // no entry is too new to be removed

CacheMaker maker() {
  return {"opdock bench --tune", "0e7d0c4a"};  // one variant per request: a new one replaces it
}

CacheRequest request_of(const TuningScope& scope) {
  return {"tuning",
          fmt::format("{} {} on {}", scope.plugin, scope.version, scope.device),
          {{"plugin", scope.plugin},
           {"version", scope.version},
           {"build", scope.build},
           {"device", scope.device}}};
}

std::string text_of(const std::vector<TunedResult>& results) {
  ordered_json list = ordered_json::array();
  for (const TunedResult& result : results) {
    list.push_back({{"question", fmt::format("{:#x}", result.question)},
                    {"choice", result.choice},
                    {"count", result.count},
                    {"situation", result.situation},
                    {"default_us", result.default_us},
                    {"best_us", result.best_us}});
  }
  return ordered_json{{"format", kFormat}, {"results", list}}.dump(
      1, ' ', false, ordered_json::error_handler_t::replace);
}

// Returns nullopt if the text is not what text_of() of this format writes.
std::optional<std::vector<TunedResult>> parse(std::span<const uint8_t> text) {
  std::vector<TunedResult> results;
  try {
    const ordered_json json = ordered_json::parse(text.begin(), text.end());
    if (json.at("format") != kFormat) return {};
    for (const ordered_json& item : json.at("results")) {
      TunedResult result;
      const std::string question = item.at("question");
      if (!question.starts_with("0x")) return {};
      const char* const end = question.data() + question.size();
      const auto [at, error] = std::from_chars(question.data() + 2, end, result.question, 16);
      if (error != std::errc() || at != end) return {};
      result.choice = item.at("choice");
      result.count = item.at("count");
      result.situation = item.at("situation");
      result.default_us = item.at("default_us");
      result.best_us = item.at("best_us");
      results.push_back(std::move(result));
    }
  } catch (const ordered_json::exception&) {
    return {};
  }
  return results;
}

std::optional<std::vector<TunedResult>> results_of(const CacheEntry& entry) {
  std::span<const uint8_t> text;
  return entry.blob(kBlob, &text) ? parse(text) : std::nullopt;
}

std::optional<TuningScope> scope_of(const CacheEntry& entry) {
  TuningScope scope;
  std::string* const members[] = {&scope.plugin, &scope.version, &scope.build, &scope.device};
  const char* const names[] = {"plugin", "version", "build", "device"};
  const std::vector<CacheField>& fields = entry.fields();
  if (fields.size() != std::size(names)) return {};
  for (size_t i = 0; i < fields.size(); ++i) {
    if (fields[i].name != names[i]) return {};
    *members[i] = fields[i].value;
  }
  return scope;
}

std::optional<TunedEntry> tuned_entry(const CacheEntry& entry) {
  std::optional<TuningScope> scope = scope_of(entry);
  std::optional<std::vector<TunedResult>> results = results_of(entry);
  if (!scope || !results) return {};
  return TunedEntry{*std::move(scope), *std::move(results), entry.created(), entry.path()};
}

}  // namespace

std::vector<TunedResult> read_tuned(Cache* cache, const TuningScope& scope,
                                    std::vector<Reason>* reasons) {
  for (const std::shared_ptr<CacheEntry>& entry :
       cache->find(request_of(scope), nullptr, reasons)) {
    if (std::optional<std::vector<TunedResult>> results = results_of(*entry)) {
      return *std::move(results);
    }
    const Reason why = make_reason(Code::kCacheDamaged, entry->path() + ": no list of choices",
                                   "what `opdock bench --tune` writes");
    cache->quarantine(*entry, why);
    reasons->push_back(why);
  }
  return {};
}

TunedChoices choices_of(const std::vector<TunedResult>& results) {
  TunedChoices choices;
  for (const TunedResult& result : results) choices.emplace_back(result.question, result.choice);
  return choices;
}

bool store_tuned(Cache* cache, const TuningScope& scope, const std::vector<TunedResult>& results,
                 std::vector<TunedResult>* now, std::vector<Reason>* reasons) {
  const CacheRequest request = request_of(scope);
  std::unique_ptr<CacheLock> lock;
  do {  // until this thread may store, whatever others store meanwhile
    lock = cache->lock(request, maker(), nullptr, reasons);
    if (lock == nullptr) return false;
  } while (!lock->is_turn());
  *now = read_tuned(cache, scope, reasons);
  for (const TunedResult& result : results) {
    std::erase_if(*now, [&](const TunedResult& old) { return old.question == result.question; });
    if (result.choice >= 0) now->push_back(result);
  }
  std::sort(now->begin(), now->end(),
            [](const TunedResult& a, const TunedResult& b) { return a.question < b.question; });
  std::vector<CacheBlob> blobs;
  if (!now->empty()) blobs.push_back({kBlob, text_of(*now)});
  return cache->replace_blobs(request, maker(), blobs, reasons);
}

std::vector<TunedEntry> list_tuned(const cache::Layout& layout) {
  std::vector<TunedEntry> found;
  for (const cache::Variant& variant : cache::list_variants(layout)) {
    if (variant.kind != "tuning") continue;
    const cache::OpenedEntry opened = cache::open_entry(variant.path);
    if (opened.state != cache::OpenedEntry::kGood) continue;
    if (std::optional<TunedEntry> entry = tuned_entry(*opened.entry)) {
      found.push_back(*std::move(entry));
    }
  }
  return found;
}

std::vector<TunedEntry> forget_tuned(const cache::Layout& layout, const std::string& plugin) {
  std::vector<TunedEntry> forgotten;
  for (TunedEntry& entry : list_tuned(layout)) {
    if (!plugin.empty() && entry.scope.plugin != plugin) continue;
    const CacheRequest request = request_of(entry.scope);
    const cache::Variant variant{request.kind, request.key(), cache::maker_name(maker()),
                                 entry.path};
    if (cache::remove_unused(layout, variant, kFarFuture)) forgotten.push_back(std::move(entry));
  }
  return forgotten;
}

}  // namespace opdock
