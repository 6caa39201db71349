// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

#include "base/fd.h"
#include "discover/catalog.h"
#include "discover/places.h"
#include "discover/rivals.h"
#include "discover/scan.h"
#include "discover/sources.h"

namespace opdock {
namespace {

constexpr size_t kFilesPerThread = 32;  // with fewer files, a thread costs more than it saves
constexpr size_t kMaxThreads = 16;

}  // namespace

// A file to examine, or its result if that is already known.
struct DiscoveryTask {
  DiscoveryTask(FileSite where, std::string its_path, const Place* its_place)
      : site(std::move(where)), path(std::move(its_path)), place(its_place) {}

  FileSite site;
  std::string path;
  const Place* place;
  TrustedPath trusted;  // the trust in its folder or, if the place is a file, in the file; unused
                        // where consent was given
  std::shared_ptr<Candidate> done;
};

// Builds one catalogue; no other class writes to Catalog.
class Discovery {
 public:
  Discovery(const SearchOptions& options, const MachineFacts& machine)
      : options_(options),
        machine_(machine),
        trust_(options.environment),
        linker_(this_process(machine.cpu_level), &files_) {}

  std::shared_ptr<const Catalog> run() {
    places_ = search_places(options_);
    for (const Place& place : places_) visit(place);
    look_at_all();
    Candidates found;
    found.reserve(tasks_.size());
    for (DiscoveryTask& task : tasks_) found.push_back(std::move(task.done));
    for (size_t i = 0; i < found.size(); ++i) found[i]->rank = i;
    mark_deselected(options_.environment, found);
    mark_duplicates(found);
    mark_superseded(found);
    for (size_t i = 0; i < sources_.size(); ++i) sources_[i].rank = i;
    mark_sources(options_.environment, &sources_);
    const std::shared_ptr<Catalog> catalog = std::make_shared<Catalog>();
    catalog->notices_ = options_.environment.ignored;
    catalog->notices_.insert(catalog->notices_.end(), trust_.notices().begin(),
                             trust_.notices().end());
    catalog->candidates_.assign(found.begin(), found.end());
    for (SourcePlugin& source : sources_) {
      catalog->sources_.push_back(std::make_shared<const SourcePlugin>(std::move(source)));
    }
    return catalog;
  }

 private:
  void visit(const Place& place);
  void visit_folder(const Place& place, int fd);
  void visit_source(const Place& place, const std::string& folder);
  void add_done(const Place& place, Reason reason);
  void look_at_one(DiscoveryTask* task);
  void look_at_all();

  const SearchOptions& options_;
  const MachineFacts& machine_;
  Trust trust_;
  const Files files_;
  Linker linker_;
  std::vector<Place> places_;
  std::vector<Fd> folders_;  // open while files are read relative to them, so that no folder is
                             // swapped meanwhile
  std::set<std::pair<uint64_t, uint64_t>> visited_;  // the folders visited, by device and inode
  std::set<std::pair<uint64_t, uint64_t>> source_folders_;
  std::vector<DiscoveryTask> tasks_;
  std::vector<SourcePlugin> sources_;
};

void Discovery::add_done(const Place& place, Reason reason) {
  DiscoveryTask task(FileSite{AT_FDCWD, place.path}, place.path, &place);
  task.done = std::make_shared<Candidate>(rejected(place.path, place.origin, std::move(reason)));
  tasks_.push_back(std::move(task));
}

void Discovery::visit(const Place& place) {
  const int fd = open(place.path.c_str(), O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC);
  if (fd >= 0) {
    visit_folder(place, fd);
    return;
  }
  struct stat status{};
  if (errno == ENOTDIR && place.path.ends_with(std::string("/") + kManifestName)) {
    visit_source(place, place.path.substr(0, place.path.rfind('/')));
    return;
  }
  if (errno == ENOTDIR && stat(place.path.c_str(), &status) == 0) {
    DiscoveryTask task(FileSite{AT_FDCWD, place.path}, place.path, &place);
    if (!place.consent) task.trusted = trust_.check_path(place.path);
    tasks_.push_back(std::move(task));
    return;
  }
  const int error = errno;
  const bool is_absent = error == ENOENT || error == ENOTDIR;
  if (is_absent && lstat(place.path.c_str(), &status) == 0) {
    add_done(place, make_reason(Code::kLinkBroken, place.path + ", whose target is missing",
                                "a folder or a file"));
    return;
  }
  if (is_absent && !place.must_exist) return;
  Reason reason = open_reason(error, place.path);
  reason.found += ", named by " + place.origin;
  add_done(place, std::move(reason));
}

void Discovery::visit_folder(const Place& place, int fd) {
  folders_.emplace_back(fd);
  struct stat status{};
  if (fstat(fd, &status) != 0) {
    add_done(place, open_reason(errno, place.path));
    return;
  }
  // A folder that was visited before, perhaps under another name, has nothing new.
  if (!visited_.emplace(status.st_dev, status.st_ino).second) return;
  const TrustedPath trusted = place.consent ? TrustedPath() : trust_.check_path(place.path);
  int problem = 0;
  std::string folder = place.path;
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  if (is_source_folder(fd, ".")) visit_source(place, folder);
  if (folder.back() != '/') folder += '/';
  std::vector<std::string> sources;
  for (FileSite& site : list_folder(fd, &sources, &problem)) {
    std::string path = folder + site.name;
    DiscoveryTask& task = tasks_.emplace_back(std::move(site), std::move(path), &place);
    task.trusted = trusted;
  }
  for (const std::string& name : sources) visit_source(place, folder + name);
  if (problem != 0) add_done(place, open_reason(problem, place.path));
}

void Discovery::visit_source(const Place& place, const std::string& folder) {
  struct stat status{};
  // The folder was named twice, or a link leads to it: the first occurrence counts.
  if (stat(folder.c_str(), &status) == 0 &&
      !source_folders_.emplace(status.st_dev, status.st_ino).second) {
    return;
  }
  sources_.push_back(
      look_at_source(folder, place.origin, place.consent ? nullptr : &trust_, machine_));
}

void Discovery::look_at_one(DiscoveryTask* task) {
  if (task->done) return;
  task->done = std::make_shared<Candidate>(
      look_at(task->site, task->path, task->place->origin, task->place->consent ? nullptr : &trust_,
              task->trusted, machine_, &linker_, Depth::kJudge));
}

void Discovery::look_at_all() {
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i = next++; i < tasks_.size(); i = next++) look_at_one(&tasks_[i]);
  };
  const size_t cores = std::max(1u, std::thread::hardware_concurrency());
  const size_t wanted = std::min({tasks_.size() / kFilesPerThread, cores, kMaxThreads});
  std::vector<std::thread> helpers;
  for (size_t i = 1; i < wanted; ++i) {
    try {
      helpers.emplace_back(work);
    } catch (const std::system_error&) {
      break;  // no more threads available: this thread does the work
    }
  }
  work();
  for (std::thread& helper : helpers) helper.join();
}

std::shared_ptr<const Catalog> discover(const SearchOptions& options, const MachineFacts& machine) {
  return Discovery(options, machine).run();
}

}  // namespace opdock
