// SPDX-License-Identifier: Apache-2.0
#include "report/plugins.h"

#include <algorithm>
#include <cstdlib>
#include <set>
#include <tuple>

#include "note/machine_name.h"

namespace opdock {
namespace {

// Returns the architectures of the images in the order of their numbers: sm_75 before sm_100.
std::vector<std::string> architectures(const FileFacts& file, Backend backend) {
  const auto key = [](const std::string& arch) {
    const size_t digit = std::min(arch.find_first_of("0123456789"), arch.size());
    return std::make_tuple(arch.substr(0, digit), std::strtoul(arch.c_str() + digit, nullptr, 10),
                           arch);
  };
  std::vector<std::string> found;
  for (const DeviceImage& image : file.images) {
    if (image.backend != backend || image.kind == ImageKind::kSource || image.arch.empty())
      continue;
    if (std::find(found.begin(), found.end(), image.arch) == found.end()) {
      found.push_back(image.arch);
    }
  }
  // PTX comes last, because newer GPUs fall back on it.
  std::sort(found.begin(), found.end(), [&](const std::string& a, const std::string& b) {
    const bool a_is_ptx = a.starts_with("compute_"), b_is_ptx = b.starts_with("compute_");
    return a_is_ptx != b_is_ptx ? b_is_ptx : key(a) < key(b);
  });
  return found;
}

Report device_json(const DeviceVerdict& device, const FileFacts& file) {
  Report json;
  json["device"] = device_name(device);
  json["verdict"] = to_text(device.state);
  json["image"] = device.image >= 0 ? Report(file.images.at(static_cast<size_t>(device.image)).arch)
                                    : Report(nullptr);
  json["reasons"] = to_json(device.reasons);
  return json;
}

Report image_json(const DeviceImage& image) {
  Report json;
  json["backend"] = to_text(image.backend);
  json["kind"] = to_text(image.kind);
  json["arch"] = image.arch;
  json["toolkit"] = image.toolkit.empty() ? Report(nullptr) : Report(image.toolkit.text());
  json["compressed"] = image.compressed;
  json["container"] = image.from_table ? "opdock" : "fat binary";
  json["offset"] = image.offset;
  json["size"] = image.size;
  return json;
}

// Returns the file's own symbols that nothing defines.
std::vector<std::string> unresolved_of(const FileFacts& file) {
  std::vector<std::string> names;
  for (const LinkProblem& problem : file.link.problems) {
    const bool own = problem.kind == LinkProblem::Kind::kSymbol && problem.needed_by.empty();
    if (own) names.push_back(problem.name);
  }
  return names;
}

}  // namespace

std::string device_name(const DeviceVerdict& device) {
  std::string name(to_text(device.backend));
  if (device.index >= 0) name.append(":").append(std::to_string(device.index));
  return name;
}

Report summary(const Candidate& candidate) {
  const std::optional<Note>& note = candidate.file.note;
  Report json;
  json["kind"] = "binary";
  json["name"] = note ? Report(note->name) : Report(nullptr);
  json["version"] = note ? Report(note->version.text()) : Report(nullptr);
  json["path"] = candidate.path;
  json["origin"] = candidate.origin;
  json["usable"] = candidate.verdict.state == State::kUsable;
  json["verdict"] = to_text(candidate.verdict.state);
  json["devices"] = Report::array();
  // Without a note, the devices that the file would run on are unknown.
  for (const DeviceVerdict& device : candidate.verdict.devices) {
    if (!note) break;
    json["devices"].push_back(device_json(device, candidate.file));
  }
  json["cuda_archs"] = architectures(candidate.file, Backend::kCuda);
  json["hip_archs"] = architectures(candidate.file, Backend::kRocm);
  json["ops"] = Report::array();
  if (note) {
    for (const OpClaim& op : note->ops) json["ops"].push_back(op.name);
  }
  json["reasons"] = to_json(candidate.verdict.reasons);
  return json;
}

Report summary(const SourcePlugin& source) {
  const bool is_buildable = source.state != State::kRejected;
  Report json;
  json["kind"] = "source";
  json["name"] = source.manifest ? Report(source.manifest->name) : Report(nullptr);
  json["version"] = source.manifest ? Report(source.manifest->version) : Report(nullptr);
  json["path"] = source.folder;
  json["origin"] = source.origin;
  json["usable"] = false;  // not before it is built
  json["verdict"] = is_buildable ? "buildable" : "rejected";
  json["devices"] = Report::array();
  for (const DeviceVerdict& device : source.devices) {
    Report one = device_json(device, FileFacts());
    if (device.state != State::kRejected) one["verdict"] = "buildable";
    json["devices"].push_back(std::move(one));
  }
  json["cuda_archs"] = json["hip_archs"] = json["ops"] = Report::array();
  if (source.manifest) {
    for (const OpDecl& op : source.manifest->ops) {
      if (!op.name.empty()) json["ops"].push_back(op.name);
    }
  }
  json["reasons"] = to_json(source.reasons);
  return json;
}

Report details(const Candidate& candidate) {
  const FileFacts& file = candidate.file;
  Report json = summary(candidate);
  json.erase("origin");
  json.erase("kind");
  json["size"] = file.size;
  json["is_elf"] = file.is_elf;
  json["is_shared_object"] = file.is_shared_object;
  json["machine"] = file.machine;
  const bool is_known = file.elf_bits != 0;
  json["machine_name"] =
      is_known ? machine_name(file.machine, file.elf_bits == 64, file.big_endian) : std::string();
  json["elf_bits"] = file.elf_bits;
  json["byte_order"] = !is_known ? "" : file.big_endian ? "big" : "little";
  json["soname"] = file.soname;
  json["rpath"] = file.rpath;
  json["runpath"] = file.runpath;
  json["needed"] = file.needed;
  std::set<std::string> versions;
  Report by_library = Report::object();
  for (const SymbolVersion& version : file.versions) {
    versions.insert(version.version);
    by_library[version.library].push_back(version.version);
  }
  json["symbol_versions"] = versions;
  json["symbol_versions_by_library"] = by_library;
  json["undefined"] = file.undefined;
  json["unresolved"] = unresolved_of(file);
  json["executable_stack"] = file.executable_stack;
  json["static_tls"] = file.static_tls;
  json["unique_symbols"] = file.unique_symbols;
  json["exports_entry"] = file.exports_entry;
  json["images"] = Report::array();
  for (const DeviceImage& image : file.images) json["images"].push_back(image_json(image));
  json["note"] = file.note ? Report::parse(note_json(*file.note), nullptr, false) : Report(nullptr);
  if (file.note) {
    json["abi"] =
        std::to_string(file.note->head.abi_major) + "." + std::to_string(file.note->head.abi_minor);
  }
  return json;
}

}  // namespace opdock
