// SPDX-License-Identifier: Apache-2.0
#include "cache/entry_format.h"

#include <algorithm>
#include <cstring>

#include "base/mutex.h"
#include "base/sha256.h"
#include "base/utf8.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"
#include "note/json.h"

namespace opdock::cache {
namespace {

constexpr char kMagic[9] = "\x89OPDOCK\n";
constexpr size_t kMagicBytes = 8, kDigestBytes = 32;

// The head of an entry file. `check` covers magic and format, so that a flipped bit in the format's
// number is not taken for a newer format.
struct Head {
  char magic[kMagicBytes];
  uint32_t format;
  uint32_t check;
  uint64_t json_size;
};
static_assert(sizeof(Head) == kEntryHeadBytes);

uint32_t head_check(const Head& head) {
  const Digest digest = sha256({reinterpret_cast<const char*>(&head), offsetof(Head, check)});
  uint32_t check = 0;
  std::memcpy(&check, digest.data(), sizeof check);
  return check;
}

uint64_t aligned(uint64_t offset) {
  return (offset + kEntryAlignment - 1) / kEntryAlignment * kEntryAlignment;
}

std::string as_json_text(const std::string& text) {
  const bool is_fit = is_utf8(text) && text.find('\0') == std::string::npos;
  return is_fit ? text : "sha256:" + to_hex(sha256(text));
}

bool is_digest(const std::string& text) {
  return text.size() == 64 && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

// Reads members of a JSON object, and reports the first that is missing or of another type.
class Members {
 public:
  Members(const Json& object, std::string* problem) : object_(object), problem_(problem) {
    if (object.type != Json::Type::kObject) *problem = "metadata that is no object";
  }
  std::string text(const char* name) {
    const Json* member = get(name, Json::Type::kString);
    return member == nullptr ? std::string() : member->text;
  }
  int64_t integer(const char* name) {
    const Json* member = get(name, Json::Type::kInteger);
    return member == nullptr ? 0 : member->integer;
  }
  uint64_t size(const char* name) {
    const int64_t value = integer(name);
    if (value < 0) *problem_ = fmt::format("metadata with a negative \"{}\"", name);
    return static_cast<uint64_t>(value);
  }
  const std::vector<Json>& list(const char* name) {
    const NoFork no_fork;
    static const std::vector<Json> none;
    const Json* member = get(name, Json::Type::kArray);
    return member == nullptr ? none : member->items;
  }

 private:
  const Json* get(const char* name, Json::Type type) {
    const Json* member = object_.find(name);
    if (member != nullptr && member->type == type) return member;
    if (problem_->empty()) {
      *problem_ = fmt::format("metadata without \"{}\" as {}", name, to_text(type));
    }
    return nullptr;
  }

  const Json& object_;
  std::string* problem_;
};

// Computes the blobs' offsets. Blobs follow each other in order, so only their sizes are stored.
void place_blobs(uint64_t begin, std::vector<EntryBlob>* blobs) {
  for (EntryBlob& blob : *blobs) {
    blob.offset = begin;
    begin = aligned(begin + blob.size);
  }
}

void read_metadata(const Json& json, EntryData* data, std::string* problem) {
  Members top(json, problem);
  data->kind = top.text("kind");
  data->key = top.text("key");
  data->subject = top.text("subject");
  data->created = top.integer("created");
  data->maker = {top.text("maker"), top.text("maker_id")};
  if (problem->empty() && !is_digest(data->key)) *problem = "metadata whose key is no digest";
  for (const Json& item : top.list("fields")) {
    Members field(item, problem);
    data->fields.push_back({field.text("name"), field.text("value")});
  }
  for (const Json& item : top.list("blobs")) {
    Members blob(item, problem);
    data->blobs.push_back({blob.text("name"), 0, blob.size("size")});
  }
  for (const Json& item : top.list("files")) {
    Members file(item, problem);
    data->files.push_back({file.text("name"), file.size("size"), file.text("sha256")});
    if (!problem->empty()) return;
    if (!is_inner_name(data->files.back().name) || !is_digest(data->files.back().sha256)) {
      *problem = "metadata with an impossible file";
    }
  }
}

}  // namespace

bool is_inner_name(std::string_view name) {
  if (name.empty() || name.size() > 255 || name.find('\0') != std::string_view::npos) return false;
  while (true) {
    const size_t slash = name.find('/');
    const std::string_view part = name.substr(0, slash);
    if (part.empty() || part == "." || part == "..") return false;
    if (slash == std::string_view::npos) return true;
    name.remove_prefix(slash + 1);
  }
}

std::string encode_entry(const EntryData& data, const std::vector<CacheBlob>& blobs) {
  nlohmann::ordered_json json = {{"kind", data.kind},
                                 {"key", data.key},
                                 {"subject", as_json_text(data.subject)},
                                 {"created", data.created},
                                 {"maker", as_json_text(data.maker.text)},
                                 {"maker_id", as_json_text(data.maker.id)},
                                 {"fields", nlohmann::ordered_json::array()},
                                 {"blobs", nlohmann::ordered_json::array()},
                                 {"files", nlohmann::ordered_json::array()}};
  for (const CacheField& field : data.fields) {
    json["fields"].push_back(
        {{"name", as_json_text(field.name)}, {"value", as_json_text(field.value)}});
  }
  std::vector<EntryBlob> places;
  for (const CacheBlob& blob : blobs) {
    json["blobs"].push_back({{"name", as_json_text(blob.name)}, {"size", blob.bytes.size()}});
    places.push_back({blob.name, 0, blob.bytes.size()});
  }
  for (const EntryFile& file : data.files) {
    json["files"].push_back({{"name", file.name}, {"size", file.size}, {"sha256", file.sha256}});
  }
  const std::string text = json.dump();
  Head head{};
  std::memcpy(head.magic, kMagic, kMagicBytes);
  head.format = kEntryFormat;
  head.check = head_check(head);
  head.json_size = text.size();
  std::string bytes(reinterpret_cast<const char*>(&head), sizeof head);
  bytes += text;
  bytes.resize(aligned(bytes.size()), '\0');
  place_blobs(bytes.size(), &places);
  for (size_t i = 0; i < blobs.size(); ++i) {
    bytes.resize(places[i].offset, '\0');
    bytes += blobs[i].bytes;
  }
  bytes.resize(aligned(bytes.size()), '\0');
  const Digest digest = sha256(bytes);
  bytes.append(reinterpret_cast<const char*>(digest.data()), digest.size());
  return bytes;
}

EntryState decode_entry(std::span<const uint8_t> bytes, EntryData* data, std::string* problem) {
  problem->clear();
  *data = {};
  Head head{};
  if (bytes.size() < sizeof head + kDigestBytes) {
    *problem = fmt::format("{} bytes, too few for an entry", bytes.size());
    return EntryState::kDamaged;
  }
  std::memcpy(&head, bytes.data(), sizeof head);
  if (std::memcmp(head.magic, kMagic, kMagicBytes) != 0 || head.check != head_check(head)) {
    *problem = "a head that is not an entry's";
    return EntryState::kDamaged;
  }
  if (head.format > kEntryFormat) {
    *problem = fmt::format("format {}", head.format);
    return EntryState::kNewer;
  }
  const size_t body = bytes.size() - kDigestBytes;
  const Digest digest = sha256(bytes.first(body));
  if (std::memcmp(digest.data(), bytes.data() + body, kDigestBytes) != 0) {
    *problem = "bytes that do not match their digest";
    return EntryState::kDamaged;
  }
  if (head.json_size > kMaxMetadata || head.json_size > body - sizeof head) {
    *problem = fmt::format("{} bytes of metadata", head.json_size);
    return EntryState::kDamaged;
  }
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + sizeof head,
                              head.json_size);
  std::string trouble;
  const std::optional<Json> json = parse_json(text, &trouble);
  if (!json) {
    *problem = "metadata that is no JSON: " + trouble;
    return EntryState::kDamaged;
  }
  read_metadata(*json, data, problem);
  if (!problem->empty()) return EntryState::kDamaged;
  // Each size is checked against the file's before offsets are added up, so that no sum overflows.
  uint64_t end = aligned(sizeof head + head.json_size);
  for (const EntryBlob& blob : data->blobs) {
    if (blob.size > body) end = UINT64_MAX / 2;
    if (end <= body) end = aligned(end + blob.size);
  }
  if (end != body) {
    *problem = fmt::format("{} bytes, which do not fit the sizes of the blobs", bytes.size());
    return EntryState::kDamaged;
  }
  place_blobs(aligned(sizeof head + head.json_size), &data->blobs);
  return EntryState::kGood;
}

}  // namespace opdock::cache
