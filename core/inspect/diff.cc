// SPDX-License-Identifier: Apache-2.0
#include "inspect/diff.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <set>
#include <utility>

namespace opdock {
namespace {

using Texts = std::vector<std::string>;

Changes changes(Texts a, Texts b) {
  for (Texts* texts : {&a, &b}) {
    std::sort(texts->begin(), texts->end());
    texts->erase(std::unique(texts->begin(), texts->end()), texts->end());
  }
  Changes found;
  std::set_difference(b.begin(), b.end(), a.begin(), a.end(), std::back_inserter(found.added));
  std::set_difference(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(found.removed));
  return found;
}

Texts archs_of(const FileFacts& file) {
  Texts archs;
  for (const DeviceImage& image : file.images) {
    if (image.kind != ImageKind::kSource && !image.arch.empty()) archs.push_back(image.arch);
  }
  return archs;
}

Texts toolkits_of(const FileFacts& file) {
  Texts toolkits;
  for (const DeviceImage& image : file.images) {
    if (!image.toolkit.empty()) toolkits.push_back(image.toolkit.text());
  }
  return toolkits;
}

Texts versions_of(const FileFacts& file) {
  Texts versions;
  for (const SymbolVersion& row : file.versions) {
    versions.push_back(row.version + " of " + row.library + (row.weak ? " (weak)" : ""));
  }
  return versions;
}

Texts traits_of(const FileFacts& file) {
  Texts traits = {"ELF machine " + std::to_string(file.machine)};
  const auto add = [&](bool is_so, const std::string& text) {
    if (is_so) traits.push_back(text);
  };
  add(!file.soname.empty(), "soname " + file.soname);
  add(!file.rpath.empty(), "rpath " + file.rpath);
  add(!file.runpath.empty(), "runpath " + file.runpath);
  add(file.executable_stack, "an executable stack");
  add(file.static_tls, "static TLS");
  add(file.unique_symbols, "unique symbols");
  if (file.note) add(true, "plugin " + file.note->name + " " + file.note->version.text());
  return traits;
}

}  // namespace

bool FileDiff::is_equal() const {
  return archs.empty() && toolkits.empty() && needed.empty() && versions.empty() &&
         exports.empty() && imports.empty() && traits.empty();
}

uint64_t image_bytes(const FileFacts& file) {
  std::set<std::pair<uint64_t, uint64_t>> places;
  for (const DeviceImage& image : file.images) places.emplace(image.offset, image.size);
  uint64_t bytes = 0;
  for (const auto& [offset, size] : places) bytes += size;
  return bytes;
}

FileDiff compare(FileFacts a, FileFacts b) {
  FileDiff diff;
  diff.archs = changes(archs_of(a), archs_of(b));
  diff.toolkits = changes(toolkits_of(a), toolkits_of(b));
  diff.needed = changes(a.needed, b.needed);
  diff.versions = changes(versions_of(a), versions_of(b));
  diff.exports = changes(a.exports, b.exports);
  diff.imports = changes(a.undefined, b.undefined);
  diff.traits = changes(traits_of(a), traits_of(b));
  diff.a = std::move(a);
  diff.b = std::move(b);
  return diff;
}

}  // namespace opdock
