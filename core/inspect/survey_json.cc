// SPDX-License-Identifier: Apache-2.0
#include "inspect/survey_json.h"

#include <algorithm>
#include <utility>

#include "opdock/types.hpp"

namespace opdock {
namespace {

Report nullable(const std::string& text) {
  return text.empty() ? Report(nullptr) : Report(text);
}

std::string device_of(const Gpu& gpu) {
  return std::string(to_text(gpu.backend)) + ":" + std::to_string(gpu.index);
}

Report machine_json(const Survey& survey) {
  const MachineFacts& machine = survey.around.machine;
  Report json;
  json["described"] = survey.around.described;
  json["cpu_arch"] = machine.cpu_arch;
  json["cpu_level"] = machine.cpu_level;
  json["symbol_versions"] = Report::object();
  for (const auto& [prefix, version] : machine.symbol_versions) {
    json["symbol_versions"][prefix] = version.text();
  }
  json["driver"] = nullable(machine.cuda_driver_release);
  json["cuda"] = machine.cuda_driver ? Report(machine.cuda_driver->text()) : Report(nullptr);
  json["rocm"] = machine.rocm ? Report(machine.rocm->text()) : Report(nullptr);
  json["gpus"] = Report::array();
  for (const Gpu& gpu : survey.gpus) {
    Report one = {{"arch", gpu.arch}, {"name", nullable(gpu.name)}};
    one["devices"] = Report::array();
    for (const Gpu& same : machine.gpus) {
      if (survey.around.described) break;  // no program sees a described GPU
      if (same.backend == gpu.backend && same.arch == gpu.arch) {
        one["devices"].push_back(device_of(same));
      }
    }
    json["gpus"].push_back(std::move(one));
  }
  return json;
}

Report cells_json(const std::vector<GpuCell>& cells, const std::vector<Gpu>& gpus) {
  Report list = Report::array();
  for (size_t i = 0; i < cells.size(); ++i) {
    list.push_back({{"arch", gpus[i].arch},
                    {"code", to_text(cells[i].state)},
                    {"image", nullable(cells[i].image)}});
  }
  return list;
}

// Returns the architectures that every file with GPU code of that kind was built for.
Report common_archs(const std::vector<SurveyedFile>& files, const char* member) {
  std::vector<std::string> common;
  bool is_first = true;
  for (const SurveyedFile& file : files) {
    const Report& archs = file.report.at(member);
    if (archs.empty()) continue;
    if (is_first) common = archs.get<std::vector<std::string>>();
    is_first = false;
    std::erase_if(common, [&](const std::string& arch) {
      return std::find(archs.begin(), archs.end(), arch) == archs.end();
    });
  }
  return common;
}

// Returns how much a reason explains why a package is of no use; 0: nothing. A missing library
// weighs less, because it may come with another package. If an image fits except for the driver,
// the reasons about images for other architectures are not the cause.
int weight(const Reason& reason) {
  const Severity severity = info(reason.code).severity;
  if (severity != Severity::kReject) return severity == Severity::kUndecided ? 1 : 0;
  if (reason.code == Code::kLibraryMissing) return 2;
  return reason.code == Code::kArchMismatch || reason.code == Code::kArchSpecific ? 3 : 4;
}

// Returns what keeps the package from being usable: the first of the weightiest reasons; or null.
Report cause_json(const SurveyedPackage& package) {
  const Reason* cause = nullptr;
  std::string file;
  const auto look_through = [&](const std::vector<Reason>& reasons, const std::string& name) {
    for (const Reason& reason : reasons) {
      if (weight(reason) <= (cause == nullptr ? 0 : weight(*cause))) continue;
      cause = &reason;
      file = name;
    }
  };
  look_through(package.reasons, "");
  for (const SurveyedFile& one : package.files) {
    if (one.counts && one.share == package.state) look_through(one.reasons, one.name);
  }
  if (cause == nullptr || package.state == State::kUsable) return nullptr;
  Report json = to_json(*cause);
  json["file"] = nullable(file);
  return json;
}

Report package_json(SurveyedPackage* package, const std::vector<Gpu>& gpus) {
  Report json;
  json["kind"] = package->kind;
  json["name"] = package->name;
  json["version"] = nullable(package->version);
  json["path"] = package->path;
  json["verdict"] = to_text(package->state);
  json["gpus"] = cells_json(package->gpus, gpus);
  json["cuda_archs"] = common_archs(package->files, "cuda_archs");
  json["hip_archs"] = common_archs(package->files, "hip_archs");
  json["cause"] = cause_json(*package);
  json["requires"] = package->requirements;
  json["reasons"] = to_json(package->reasons);
  json["files"] = Report::array();
  for (SurveyedFile& file : package->files) {
    file.report["file"] = file.name;
    file.report["counts"] = file.counts;
    file.report["adds"] = to_text(file.counts ? file.share : State::kUsable);
    file.report["gpus"] = cells_json(file.gpus, gpus);
    json["files"].push_back(std::move(file.report));
  }
  return json;
}

Report changes_json(const Changes& changes) {
  return {{"added", changes.added}, {"removed", changes.removed}};
}

using Texts = std::vector<std::string>;

Texts texts_of(const std::string& name, const Report& value) {
  const bool fits =
      value.is_array() &&
      std::all_of(value.begin(), value.end(), [](const Report& item) { return item.is_string(); });
  if (fits) return value.get<Texts>();
  throw Error(OPDOCK_INVALID_ARGUMENT,
              name + ": found " + value.dump() + ", wanted a list of texts");
}

}  // namespace

Report to_json(Survey&& survey) {
  Report json;
  json["machine"] = machine_json(survey);
  Report summary = {{"verdict", ""},
                    {"packages", survey.packages.size()},
                    {"usable", 0},
                    {"undecided", 0},
                    {"rejected", 0},
                    {"files", 0},
                    {"pure", survey.num_pure},
                    {"skipped", survey.skipped.size()}};
  State worst = survey.reasons.empty() ? State::kUsable : State::kRejected;
  json["packages"] = Report::array();
  for (SurveyedPackage& package : survey.packages) {
    worst = std::max(worst, package.state);
    Report& count = summary[std::string(to_text(package.state))];
    count = count.get<uint64_t>() + 1;
    summary["files"] = summary["files"].get<uint64_t>() + package.files.size();
    json["packages"].push_back(package_json(&package, survey.gpus));
  }
  summary["verdict"] = to_text(worst);
  summary["seconds"] = survey.seconds;
  json["skipped"] = Report::array();
  for (const Skipped& skipped : survey.skipped) {
    json["skipped"].push_back({{"path", skipped.path}, {"reason", to_json(skipped.reason)}});
  }
  json["reasons"] = to_json(survey.reasons);
  json["summary"] = std::move(summary);
  return json;
}

Report to_json(const FileDiff& diff) {
  Report json;
  json["equal"] = diff.is_equal();
  for (const auto& [name, file] : {std::pair("a", &diff.a), std::pair("b", &diff.b)}) {
    json[name] = {{"path", file->path},
                  {"size", file->size},
                  {"images", file->images.size()},
                  {"image_bytes", image_bytes(*file)},
                  {"reasons", to_json(file->reasons)}};
  }
  json["archs"] = changes_json(diff.archs);
  json["toolkits"] = changes_json(diff.toolkits);
  json["needed"] = changes_json(diff.needed);
  json["symbol_versions"] = changes_json(diff.versions);
  json["exports"] = changes_json(diff.exports);
  json["undefined"] = changes_json(diff.imports);
  json["traits"] = changes_json(diff.traits);
  return json;
}

MachineSpec read_gpu_machine(const char* text) {
  const Report json = Report::parse(text, nullptr, false);
  MachineSpec machine;
  const std::pair<const char*, std::string*> kTexts[] = {
      {"driver", &machine.driver}, {"cuda", &machine.cuda}, {"rocm", &machine.rocm}};
  bool is_known = json.is_object();
  const Report members = is_known ? json : Report::object();
  for (const auto& [name, value] : members.items()) {
    const std::string& wanted = name;  // clang 15 cannot capture a structured binding
    const auto* member = std::find_if(std::begin(kTexts), std::end(kTexts),
                                      [&](const auto& one) { return wanted == one.first; });
    if (name == "gpus") {
      machine.gpus = texts_of(name, value);
    } else if (member != std::end(kTexts) && value.is_string()) {
      *member->second = value.get<std::string>();
    } else {
      is_known = false;
    }
  }
  if (!is_known) {
    throw Error(OPDOCK_INVALID_ARGUMENT, "machine: found " + json.dump() +
                                             ", wanted a JSON object of gpus (a list of texts), "
                                             "driver, cuda or rocm (texts)");
  }
  check_machine(machine);
  return machine;
}

SurveyRequest read_request(const char* text) {
  const Report json = Report::parse(text, nullptr, false);
  if (!json.is_object()) {
    throw Error(OPDOCK_INVALID_ARGUMENT,
                "request: found no JSON object, wanted one such as {\"paths\": [\"x.whl\"]}");
  }
  SurveyRequest request;
  MachineSpec& machine = request.machine;
  const std::pair<const char*, std::string*> kTexts[] = {
      {"driver", &machine.driver}, {"cuda", &machine.cuda},
      {"glibc", &machine.glibc},   {"libstdcxx", &machine.libstdcxx},
      {"arch", &machine.arch},     {"cpu", &machine.cpu},
      {"rocm", &machine.rocm}};
  const std::pair<const char*, Texts*> kLists[] = {{"paths", &request.paths},
                                                   {"packages", &request.packages},
                                                   {"with", &request.with},
                                                   {"sites", &request.sites},
                                                   {"gpus", &machine.gpus}};
  for (const auto& [name, value] : json.items()) {
    const auto is_it = [&name = name](const auto& known) { return name == known.first; };
    const auto* text_member = std::find_if(std::begin(kTexts), std::end(kTexts), is_it);
    const auto* list_member = std::find_if(std::begin(kLists), std::end(kLists), is_it);
    if (list_member != std::end(kLists)) {
      *list_member->second = texts_of(name, value);
    } else if (text_member != std::end(kTexts) && value.is_string()) {
      *text_member->second = value.get<std::string>();
    } else if ((name == "environment" || name == "whole") && value.is_boolean()) {
      (name == "whole" ? request.whole : request.environment) = value.get<bool>();
    } else {
      throw Error(OPDOCK_INVALID_ARGUMENT,
                  "request: found \"" + name + "\": " + value.dump() +
                      ", wanted paths, packages, with, sites or gpus (lists of texts), environment "
                      "or whole (true or false), driver, cuda, glibc, libstdcxx, arch, cpu or rocm "
                      "(texts)");
    }
  }
  if (request.paths.empty() && request.packages.empty() && !request.environment) {
    throw Error(OPDOCK_INVALID_ARGUMENT,
                "request: found nothing to look at, wanted paths, packages or environment");
  }
  return request;
}

}  // namespace opdock
