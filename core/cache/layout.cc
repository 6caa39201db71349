// SPDX-License-Identifier: Apache-2.0
#include "cache/layout.h"

#include <algorithm>

#include "base/files.h"
#include "base/sha256.h"
#include "fmt/format.h"

namespace opdock {

namespace cache {

bool is_hex(std::string_view text, size_t least, size_t most) {
  return text.size() >= least && text.size() <= most &&
         std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool is_key(std::string_view text) {
  return is_hex(text, 64, 64);
}

std::string maker_name(const CacheMaker& maker) {
  return is_hex(maker.id, 8, 64) ? maker.id : to_hex(sha256(maker.id));
}

std::string Layout::variants(std::string_view kind, std::string_view key) const {
  return fmt::format("{}/{}/{}/{}", base(), kind, key.substr(0, 2), key);
}

std::string Layout::variant(std::string_view kind, std::string_view key,
                            const CacheMaker& maker) const {
  return variants(kind, key) + "/" + maker_name(maker);
}

std::string Layout::lock(std::string_view key, const CacheMaker& maker) const {
  return fmt::format("{}/{}.{}", locks(), key, maker_name(maker));
}

std::string Layout::failures(std::string_view key) const {
  return fmt::format("{}/failures/{}/{}", base(), key.substr(0, 2), key);
}

std::string Layout::failure(std::string_view key, const CacheMaker& maker) const {
  return failures(key) + "/" + maker_name(maker);
}

std::string Layout::failure_log(std::string_view key, const CacheMaker& maker) const {
  return failure(key, maker) + ".log";
}

std::string Layout::history(std::string_view kind, std::string_view subject) const {
  FieldHasher hasher;
  const std::string name = to_hex(hasher.add(kind).add(subject).finish());
  return fmt::format("{}/history/{}/{}", base(), name.substr(0, 2), name);
}

std::string Layout::memo(std::string_view name) const {
  FieldHasher hasher;
  const std::string file = to_hex(hasher.add(host_name()).add(name).finish());
  return fmt::format("{}/memos/{}/{}/memo", base(), file.substr(0, 2), file);
}

}  // namespace cache
}  // namespace opdock
