// SPDX-License-Identifier: Apache-2.0
#include "inspect/distributions.h"

#include <algorithm>
#include <cctype>
#include <functional>

#include "base/fd.h"
#include "base/files.h"
#include "inspect/native_names.h"
#include "link/files.h"

namespace opdock {
namespace {

constexpr uint64_t kMaxRecordBytes = 64ull << 20;  // limit for a RECORD; the largest have a few MiB

std::string read_text(const std::string& path) {
  const std::optional<OpenFile> file = Files().open(path);
  std::vector<uint8_t> bytes;
  if (!file || read_all(file->fd.get(), kMaxRecordBytes, &bytes) != 0) return "";
  return {bytes.begin(), bytes.end()};
}

void for_each_line(std::string_view text, const std::function<void(std::string_view)>& take) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    take(line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

// Returns the first field of a row of a CSV file.
std::string first_field(std::string_view line) {
  if (!line.starts_with('"')) return std::string(line.substr(0, line.find(',')));
  std::string field;
  for (size_t i = 1; i < line.size(); ++i) {
    if (line[i] == '"' && (++i >= line.size() || line[i] != '"')) break;
    field += line[i];
  }
  return field;
}

std::string stem_of(std::string_view folder) {
  const std::string_view stem = folder.substr(0, folder.rfind('.'));
  return std::string(stem.substr(0, stem.find('-')));
}

void read_tops(const std::string& folder, Distribution* distribution) {
  for_each_line(read_text(folder + "/top_level.txt"), [&](std::string_view line) {
    if (!line.empty())
      distribution->tops.push_back(plain_path(distribution->site + "/" + std::string(line)));
  });
  if (!distribution->tops.empty()) return;
  std::string name = distribution->name;
  std::replace(name.begin(), name.end(), '-', '_');
  distribution->tops.push_back(distribution->site + "/" + name);
}

}  // namespace

std::string normal_name(std::string_view name) {
  std::string normal;
  for (const char letter : name) {
    if (letter == '-' || letter == '_' || letter == '.') {
      if (!normal.ends_with('-')) normal += '-';
    } else {
      normal += static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
    }
  }
  return normal;
}

void read_metadata(std::string_view text, Distribution* distribution) {
  bool is_header = true;
  for_each_line(text, [&](std::string_view line) {
    is_header = is_header && !line.empty();  // the description follows the headers
    if (!is_header) return;
    const size_t colon = line.find(": ");
    if (colon == line.npos) return;
    const std::string_view key = line.substr(0, colon);
    const std::string value(line.substr(colon + 2));
    if (key == "Name") distribution->name = value;
    if (key == "Version") distribution->version = value;
    // Extras are installed only on request.
    if (key == "Requires-Dist" && value.find("extra ==") == value.npos) {
      std::string name = normal_name(value.substr(0, value.find_first_of(" ;[(<>=!~")));
      if (!name.empty()) distribution->requirements.push_back(std::move(name));
    }
  });
}

std::vector<Distribution> read_distributions(const std::string& site) {
  std::vector<std::string> names;
  std::vector<Distribution> found;
  if (list_folder(site, &names) != 0) return found;
  for (const std::string& entry : names) {
    const bool is_wheel = entry.ends_with(".dist-info");
    if (!is_wheel && !entry.ends_with(".egg-info")) continue;
    const std::string folder = site + "/" + entry;
    Distribution one;
    one.site = site;
    one.name = stem_of(entry);
    const std::string metadata = read_text(folder + (is_wheel ? "/METADATA" : "/PKG-INFO"));
    read_metadata(metadata.empty() ? read_text(folder) : metadata, &one);
    const std::string record = is_wheel ? read_text(folder + "/RECORD") : "";
    for_each_line(record, [&](std::string_view line) {
      const std::string path = first_field(line);
      const bool is_source = path.ends_with(".py");
      const bool is_other = native_kind(file_name_of(path)) == NativeKind::kOther;
      if (path.empty() || (is_other && !is_source)) return;
      (is_source ? one.sources : one.files)
          .push_back(plain_path(path.front() == '/' ? path : site + "/" + path));
    });
    if (record.empty()) read_tops(folder, &one);
    found.push_back(std::move(one));
  }
  return found;
}

}  // namespace opdock
