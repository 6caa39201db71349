// SPDX-License-Identifier: Apache-2.0
#include "inspect/targets.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "base/files.h"
#include "base/similar_names.h"
#include "base/texts.h"
#include "inspect/distributions.h"
#include "inspect/finder.h"
#include "inspect/native_names.h"
#include "inspect/python_environment.h"
#include "opdock/types.hpp"

namespace opdock {
namespace {

bool is_below(const std::string& path, const std::string& folder) {
  return path.size() > folder.size() && path.starts_with(folder) && path[folder.size()] == '/';
}

bool exists(const std::string& path) {
  struct stat status{};
  return stat(path.c_str(), &status) == 0;
}

using FolderIdentity = std::pair<dev_t, ino_t>;

class Search {
 public:
  Search(const SurveyRequest& request, Progress* progress)
      : request_(request), progress_(progress), files_(std::make_shared<Files>()) {}

  Targets run() {
    for (const std::string& path : request_.paths) add_path(plain_path(path));
    const bool needs_sites = !request_.packages.empty() || !request_.with.empty();
    if (request_.environment || needs_sites) add_packages();
    return std::move(targets_);
  }

 private:
  void add_path(const std::string& path);
  void add_wheel(const std::string& path);
  void add_file(const std::string& path);
  void add_folder(const std::string& path);
  void add_sites(const std::vector<std::string>& sites);
  void add_packages();
  void add_distribution(const Distribution& distribution, bool named);
  void add_before(const std::vector<Distribution>& all, std::vector<std::string> names);
  void add_found(const std::string& folder, std::vector<std::string> natives);
  void move_skipped(std::vector<Skipped> skipped) {
    std::move(skipped.begin(), skipped.end(), std::back_inserter(targets_.skipped));
  }
  std::vector<std::string> files_of(const Distribution& distribution);
  PackageTarget& add(const char* kind, const std::string& name, const std::string& path);

  const SurveyRequest& request_;
  Progress* progress_;
  std::shared_ptr<const Files> files_;
  Targets targets_;
};

PackageTarget& Search::add(const char* kind, const std::string& name, const std::string& path) {
  PackageTarget& target = targets_.list.emplace_back();
  target.package.kind = kind;
  target.package.name = name;
  target.package.path = path;
  target.files = files_;
  return target;
}

void Search::add_wheel(const std::string& path) {
  PackageTarget& target = add("wheel", "", path);
  const std::shared_ptr<const Wheel> wheel = Wheel::read(path, &target.package.reasons);
  Distribution about;
  if (wheel != nullptr) {
    read_metadata(wheel->metadata(), &about);
    target.site = path;
    for (const WheelMember& member : wheel->members()) {
      target.members.push_back({member.path, member.name});
    }
    for (const WheelMember& source : wheel->sources()) {
      target.sources.push_back({source.path, source.name});
    }
    bool has_foreign = false;
    for (const Skipped& skipped : wheel->skipped()) {
      has_foreign = has_foreign || skipped.reason.code == Code::kForeignFile;
      if (info(skipped.reason.code).severity != Severity::kReject) continue;
      Reason reason = skipped.reason;
      reason.found =
          skipped.path.substr(std::min(path.size() + 1, skipped.path.size())) + ": " + reason.found;
      target.package.reasons.push_back(std::move(reason));
    }
    if (target.members.empty() && has_foreign) {
      target.package.reasons.push_back(make_reason(
          Code::kPackageForeign, "libraries of other systems only", "ELF files for Linux"));
    }
    move_skipped(wheel->skipped());
    target.files = wheel;
  }
  const WheelName name = parse_wheel_name(std::string(file_name_of(path)));
  target.package.name = about.name.empty() ? name.distribution : about.name;
  target.package.version = about.version.empty() ? name.version : about.version;
  target.package.requirements = std::move(about.requirements);
}

void Search::add_file(const std::string& path) {
  PackageTarget& target = add("file", std::string(file_name_of(path)), path);
  target.files = files_at(path);
  target.members.push_back({path, target.package.name});
  if (const auto* wheel = dynamic_cast<const Wheel*>(target.files.get())) {
    Distribution about;
    read_metadata(wheel->metadata(), &about);
    target.package.requirements = std::move(about.requirements);
  }
}

void Search::add_path(const std::string& path) {
  struct stat status{};
  const bool is_there = stat(path.c_str(), &status) == 0;
  const int error = errno;
  if (!is_there && error == ENOTDIR && files_at(path)->identify(path)) {
    add_file(path);  // a member of a wheel
    return;
  }
  if (!is_there) {
    throw Error(OPDOCK_INVALID_ARGUMENT, path + ": " + std::strerror(error) + "; correct the path");
  }
  if (!S_ISDIR(status.st_mode)) {
    path.ends_with(".whl") ? add_wheel(path) : add_file(path);
  } else if (exists(path + "/pyvenv.cfg")) {
    add_sites(sites_of_venv(path));
  } else {
    add_folder(path);
  }
}

// Adds the files of a folder that belong to no installed package, under the folder's name.
void Search::add_found(const std::string& folder, std::vector<std::string> natives) {
  if (natives.empty()) return;
  PackageTarget& target = add("folder", std::string(file_name_of(folder)), folder);
  for (std::string& path : natives) {
    std::string name = is_below(path, folder) ? path.substr(folder.size() + 1) : path;
    target.members.push_back({std::move(path), std::move(name)});
  }
}

std::vector<std::string> Search::files_of(const Distribution& distribution) {
  Finder own;
  for (const std::string& path : distribution.files) own.add(path);
  for (const std::string& top : distribution.tops) {
    if (exists(top)) {
      own.walk(top);
      continue;
    }
    // A single module, such as "_foo.abi3.so" for "_foo".
    std::vector<std::string> names;
    list_folder(distribution.site, &names);
    const std::string module = std::string(file_name_of(top)) + ".";
    for (const std::string& name : names) {
      if (name.starts_with(module)) own.add(distribution.site + "/" + name);
    }
  }
  move_skipped(std::move(own.skipped));
  return std::move(own.natives);
}

void Search::add_distribution(const Distribution& distribution, bool named) {
  std::vector<std::string> natives = files_of(distribution);
  if (natives.empty() && !named) {
    ++targets_.num_pure;
    return;
  }
  PackageTarget& target = add("package", distribution.name, distribution.site);
  target.package.version = distribution.version;
  target.package.requirements = distribution.requirements;
  for (std::string& path : natives) {
    std::string name =
        is_below(path, distribution.site) ? path.substr(distribution.site.size() + 1) : path;
    target.members.push_back({std::move(path), std::move(name)});
  }
  target.site = distribution.site;
  for (const std::string& path : distribution.sources) {
    if (!is_below(path, distribution.site)) continue;
    target.sources.push_back({path, path.substr(distribution.site.size() + 1)});
  }
}

// Adds the libraries of the packages with these names, and of all that they require, to
// targets_.before.
void Search::add_before(const std::vector<Distribution>& all, std::vector<std::string> names) {
  std::set<std::string> seen;
  while (!names.empty()) {
    const std::string name = normal_name(names.back());
    names.pop_back();
    if (!seen.insert(name).second) continue;
    for (const Distribution& one : all) {
      if (normal_name(one.name) != name) continue;
      std::vector<std::string> natives = files_of(one);
      std::move(natives.begin(), natives.end(), std::back_inserter(targets_.before));
      names.insert(names.end(), one.requirements.begin(), one.requirements.end());
    }
  }
}

// Adds everything in folders of packages: by package, and what belongs to none by its top folder.
void Search::add_sites(const std::vector<std::string>& named) {
  std::vector<std::string> sites;
  std::set<FolderIdentity> seen;  // lib64 is often a link to lib
  for (const std::string& site : named) {
    struct stat status{};
    const bool is_there = stat(site.c_str(), &status) == 0;
    if (is_there && seen.emplace(status.st_dev, status.st_ino).second) {
      sites.push_back(plain_path(site));
    }
  }
  std::set<std::string> owned;
  for (const std::string& site : sites) {
    progress_->step("looking at " + site, -1);
    for (const Distribution& distribution : read_distributions(site)) {
      add_distribution(distribution, false);
    }
  }
  for (const PackageTarget& target : targets_.list) {
    for (const PackageFile& file : target.members) owned.insert(file.path);
  }
  for (const std::string& site : sites) {
    Finder rest;
    rest.walk(site);
    std::map<std::string, std::vector<std::string>> by_folder;
    for (std::string& path : rest.natives) {
      if (owned.count(path) != 0) continue;
      const size_t slash = path.find('/', site.size() + 1);
      by_folder[slash == path.npos ? site : path.substr(0, slash)].push_back(std::move(path));
    }
    for (auto& [folder, natives] : by_folder) add_found(folder, std::move(natives));
    for (const std::string& wheel : rest.wheels) add_wheel(wheel);
    for (Skipped& skipped : rest.skipped) {
      const bool is_known =
          std::any_of(targets_.skipped.begin(), targets_.skipped.end(),
                      [&](const Skipped& other) { return other.path == skipped.path; });
      if (!is_known) targets_.skipped.push_back(std::move(skipped));
    }
  }
}

void Search::add_folder(const std::string& path) {
  progress_->step("looking at " + path, -1);
  Finder finder;
  finder.walk(path);
  std::vector<std::string> sites = finder.sites;
  if (!sites.empty()) add_sites(sites);
  std::vector<std::string> rest;
  for (std::string& native : finder.natives) {
    const bool is_done = std::any_of(sites.begin(), sites.end(), [&](const std::string& site) {
      return is_below(native, site);
    });
    if (!is_done) rest.push_back(std::move(native));
  }
  add_found(path, std::move(rest));
  if (sites.empty()) {
    for (const std::string& wheel : finder.wheels) add_wheel(wheel);
    move_skipped(std::move(finder.skipped));
  }
}

// Finds an installed package by its name. option: what asked for the package, for messages.
const Distribution& find_named(const std::string& option, const std::string& name,
                               const std::vector<Distribution>& all,
                               const std::vector<std::string>& sites) {
  const std::string wanted = normal_name(name);
  std::vector<std::string> names;
  for (const Distribution& one : all) {
    if (normal_name(one.name) == wanted) return one;
    names.push_back(normal_name(one.name));
  }
  const std::vector<std::string> similar = similar_names(wanted, names);
  throw Error(OPDOCK_NOT_FOUND,
              option + ": found no \"" + name + "\" in " +
                  (sites.empty() ? "a Python without folders of packages" : join(sites)) +
                  ", wanted an installed package; " +
                  (similar.empty() ? "install it, or name its wheel or folder"
                                   : "did you mean " + join_or(similar) + "?"));
}

void Search::add_packages() {
  std::vector<std::string> sites = request_.sites;
  if (sites.empty()) {
    std::string problem;
    const std::optional<PythonEnvironment> python = active_python(&problem);
    if (!python) throw Error(OPDOCK_NOT_FOUND, problem);
    sites = python->sites;
    targets_.python = python->executable;
  }
  if (request_.environment) add_sites(sites);
  if (request_.packages.empty() && request_.with.empty()) return;
  std::vector<Distribution> all;
  for (const std::string& site : sites) {
    for (Distribution& one : read_distributions(plain_path(site))) all.push_back(std::move(one));
  }
  std::vector<std::string> before = request_.with;
  for (const std::string& name : request_.with) find_named("with", name, all, sites);
  for (const std::string& name : request_.packages) {
    const Distribution& one = find_named("package", name, all, sites);
    before.insert(before.end(), one.requirements.begin(), one.requirements.end());
    if (!request_.environment) add_distribution(one, true);
  }
  add_before(all, std::move(before));
}

}  // namespace

Targets find_targets(const SurveyRequest& request, Progress* progress) {
  return Search(request, progress).run();
}

}  // namespace opdock
