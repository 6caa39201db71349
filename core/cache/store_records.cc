// Keeps records next to the entries: failures, what was made before for a subject, and texts that
// spare this machine work (memos).
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <map>

#include "base/sha256.h"
#include "cache/store.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"
#include "note/json.h"

namespace opdock::cache {
namespace {

constexpr uint64_t kMaxRecord = 16ull << 20;
constexpr size_t kKeptHistory = 4;  // keys per subject

// Reads a record. It is an entry file too, so that damage to it is noticed in the same way.
std::optional<EntryData> read_record(const std::string& path, std::vector<uint8_t>* bytes,
                                     bool* is_damaged) {
  *is_damaged = false;
  Fd file;
  EntryData data;
  std::string problem;
  if (open_file(path, O_RDONLY, 0, &file) != 0 || read_all(file.get(), kMaxRecord, bytes) != 0) {
    return {};
  }
  const EntryState state = decode_entry(*bytes, &data, &problem);
  *is_damaged = state == EntryState::kDamaged;
  if (state != EntryState::kGood) return {};
  return data;
}

std::string dump(const std::vector<Reason>& reasons) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Reason& reason : reasons) {
    list.push_back({{"code", info(reason.code).name},
                    {"found", reason.found},
                    {"wanted", reason.wanted},
                    {"advice", reason.advice}});
  }
  return list.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string member(const Json& object, std::string_view name) {
  const Json* found = object.find(name);
  return found == nullptr ? std::string() : found->text;
}

// Parses reasons; nullopt if the text has a code that this Opdock does not know.
std::optional<std::vector<Reason>> parse(std::string_view text) {
  std::string problem;
  const std::optional<Json> list = parse_json(text, &problem);
  if (!list || list->type != Json::Type::kArray) return {};
  std::vector<Reason> reasons;
  for (const Json& item : list->items) {
    const std::string name = member(item, "code");
    const auto code = std::find_if(all_codes().begin(), all_codes().end(),
                                   [&](const CodeInfo& known) { return known.name == name; });
    if (code == all_codes().end()) return {};
    reasons.push_back(
        {code->code, member(item, "found"), member(item, "wanted"), member(item, "advice")});
  }
  return reasons;
}

// Returns the modification time in nanoseconds; 0 if the path does not exist.
int64_t modified_ns(const std::string& path) {
  struct stat status{};
  if (lstat(path.c_str(), &status) != 0) return 0;
  return int64_t{status.st_mtim.tv_sec} * 1000000000 + status.st_mtim.tv_nsec;
}

std::string shortened(const std::string& text) {
  constexpr size_t kMax = 80;
  if (text.empty()) return "nothing";
  return text.size() <= kMax ? text : text.substr(0, kMax) + "…";
}

std::map<std::string, std::string> by_name(const std::vector<CacheField>& fields) {
  std::map<std::string, std::string> map;
  for (const CacheField& field : fields) map[field.name] = field.value;
  return map;
}

std::vector<std::string> differences(const std::vector<CacheField>& now,
                                     const std::vector<CacheField>& before) {
  const std::map<std::string, std::string> old = by_name(before), current = by_name(now);
  std::vector<std::string> texts;
  for (const CacheField& field : now) {
    const auto was = old.find(field.name);
    if (was == old.end()) {
      texts.push_back(field.name + " was added");
    } else if (was->second != field.value) {
      const bool is_digest = is_key(field.value) && is_key(was->second);
      texts.push_back(is_digest ? field.name + " changed"
                                : fmt::format("{}: found {}, was {}", field.name,
                                              shortened(field.value), shortened(was->second)));
    }
  }
  for (const CacheField& field : before) {
    if (current.count(field.name) == 0) texts.push_back(field.name + " was removed");
  }
  if (texts.empty()) texts.push_back("the order of the inputs changed");
  return texts;
}

// Returns the digest of a memo. It covers the memo's name, so that no other file can be put in its
// place.
Digest memo_digest(const std::string& name, const std::string& text) {
  FieldHasher hasher;
  return hasher.add("memo 1").add(name).add(text).finish();
}

}  // namespace

void Store::remember_failure(const CacheRequest& request, const CacheMaker& maker,
                             const std::vector<Reason>& why, std::string_view log) {
  if (layout_.root.empty()) return;
  const EntryData data = entry_data(request, maker);
  if (prepare(layout_.failures(data.key)) != 0) return;
  const std::string log_path = layout_.failure_log(data.key, maker);
  if (replace_file(layout_, log_path, log) != 0) unlink(log_path.c_str());
  replace_file(layout_, layout_.failure(data.key, maker),
               encode_entry(data, {{"reasons", dump(why)}}));
}

std::optional<std::vector<Reason>> Store::failure(const CacheRequest& request,
                                                  const CacheMaker& maker, std::string* log_path) {
  if (log_path != nullptr) log_path->clear();
  if (layout_.root.empty()) return {};
  const std::string key = request.key(), path = layout_.failure(key, maker);
  std::vector<uint8_t> bytes;
  bool is_damaged = false;
  const std::optional<EntryData> data = read_record(path, &bytes, &is_damaged);
  if (is_damaged) unlink(path.c_str());  // the next attempt finds out again
  if (!data || data->key != key || maker_name(data->maker) != maker_name(maker)) return {};
  if (data->blobs.size() != 1) return {};
  const EntryBlob& blob = data->blobs.front();
  std::optional<std::vector<Reason>> reasons =
      parse({reinterpret_cast<const char*>(bytes.data()) + blob.offset, blob.size});
  const std::string log = layout_.failure_log(key, maker);
  if (reasons && log_path != nullptr && access(log.c_str(), R_OK) == 0) *log_path = log;
  return reasons;
}

void Store::forget_failure(const CacheRequest& request) {
  if (!layout_.root.empty()) remove_tree(layout_.failures(request.key()));
}

void forget_failure_of(const Layout& layout, const std::string& key, const CacheMaker& maker) {
  unlink(layout.failure(key, maker).c_str());
  unlink(layout.failure_log(key, maker).c_str());
  rmdir(layout.failures(key).c_str());
}

void record_history(const Layout& layout, const EntryData& data) {
  EntryData record = data;
  record.blobs.clear();
  record.files.clear();
  const std::string folder = layout.history(data.kind, data.subject);
  if (replace_file(layout, folder + "/" + data.key, encode_entry(record, {})) != 0) return;
  std::vector<std::string> names;
  list_folder(folder, &names);
  std::vector<std::pair<int64_t, std::string>> others;
  for (const std::string& name : names) {
    const std::string path = folder + "/" + name;
    if (name != data.key) others.emplace_back(modified_ns(path), path);
  }
  std::sort(others.begin(), others.end());
  for (size_t i = 0; i + kKeptHistory <= others.size(); ++i) unlink(others[i].second.c_str());
}

std::vector<std::string> Store::what_changed(const CacheRequest& request) {
  if (layout_.root.empty()) return {};
  const std::string folder = layout_.history(request.kind, request.subject), key = request.key();
  std::vector<std::string> names;
  list_folder(folder, &names);
  std::erase(names, key);
  std::sort(names.begin(), names.end(), [&](const std::string& a, const std::string& b) {
    return modified_ns(folder + "/" + a) > modified_ns(folder + "/" + b);
  });
  std::optional<EntryData> newest;
  for (size_t i = 0; i < names.size() && !newest; ++i) {
    std::vector<uint8_t> bytes;
    bool is_damaged = false;
    newest = read_record(folder + "/" + names[i], &bytes, &is_damaged);
  }
  return newest ? differences(request.fields, newest->fields) : std::vector<std::string>();
}

std::optional<std::string> recall(const Layout& layout, const std::string& name) {
  Fd file;
  std::vector<uint8_t> bytes;
  if (open_file(layout.memos().memo(name), O_RDONLY, 0, &file) != 0 ||
      read_all(file.get(), kMaxRecord, &bytes) != 0 || bytes.size() < sizeof(Digest)) {
    return {};
  }
  const size_t size = bytes.size() - sizeof(Digest);
  std::string text(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(size));
  const Digest digest = memo_digest(name, text);
  if (!std::equal(digest.begin(), digest.end(), bytes.begin() + static_cast<ptrdiff_t>(size))) {
    return {};
  }
  return text;
}

void remember(const Layout& layout, const std::string& name, const std::string& text) {
  const Layout memos = layout.memos();
  if (!layout.memo_root.empty()) {
    if (prepare_folder(memos.root, memos.base()) != 0) return;
  } else if (!can_write(memos.base())) {
    return;  // a cache that was only read is not created for a memo
  }
  const Digest digest = memo_digest(name, text);
  replace_file(memos, memos.memo(name),
               text + std::string(reinterpret_cast<const char*>(digest.data()), digest.size()));
}

std::optional<std::string> Store::recall(const std::string& name) const {
  if (layout_.root.empty()) return {};
  return cache::recall(layout_, name);
}

void Store::remember(const std::string& name, const std::string& text) {
  if (!layout_.root.empty()) cache::remember(layout_, name, text);
}

}  // namespace opdock::cache

namespace opdock {

std::optional<std::string> Cache::recall(const std::string&) const {
  return std::nullopt;
}

void Cache::remember(const std::string&, const std::string&) {}

bool Cache::replace_blobs(const CacheRequest&, const CacheMaker&, const std::vector<CacheBlob>&,
                          std::vector<Reason>*) {
  return false;
}

}  // namespace opdock
