// SPDX-License-Identifier: Apache-2.0
#include "inspect/survey.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <new>
#include <set>
#include <system_error>
#include <thread>

#include "base/texts.h"
#include "fmt/format.h"
#include "inspect/conclude.h"
#include "inspect/distributions.h"
#include "inspect/targets.h"
#include "note/reader.h"
#include "opdock/types.hpp"
#include "report/plugins.h"

namespace opdock {
namespace {

constexpr auto kPause = std::chrono::milliseconds(50);  // between reports of progress

// Returns the machine's GPUs, each architecture once, because equal GPUs get equal results.
std::vector<Gpu> different_gpus(const MachineFacts& machine) {
  std::vector<Gpu> gpus;
  for (const Gpu& gpu : machine.gpus) {
    const bool is_known = std::any_of(gpus.begin(), gpus.end(), [&](const Gpu& other) {
      return other.backend == gpu.backend && other.arch == gpu.arch;
    });
    if (!is_known) gpus.push_back(gpu);
  }
  return gpus;
}

GpuCell cell_of(const InspectedFile& inspected, const Gpu& gpu) {
  const std::vector<DeviceImage>& images = inspected.file.images;
  const bool has_code = std::any_of(images.begin(), images.end(), [&](const DeviceImage& image) {
    return image.backend == gpu.backend;
  });
  for (const DeviceVerdict& device : inspected.verdict.devices) {
    if (device.backend != gpu.backend || device.index != gpu.index) continue;
    GpuCell cell;
    if (device.image >= 0) cell.image = images.at(static_cast<size_t>(device.image)).arch;
    if (!has_code && device.state == State::kUsable) return cell;
    if (device.state == State::kRejected) return {GpuState::kNone, ""};
    const bool is_ptx =
        device.image >= 0 && images.at(static_cast<size_t>(device.image)).kind == ImageKind::kPtx;
    cell.state = device.state == State::kUndecided ? GpuState::kUndecided
                 : is_ptx || device.image < 0      ? GpuState::kPtx  // from the plugin's source
                                                   : GpuState::kNative;
    return cell;
  }
  return {};
}

// Returns the report for one file, without lists of thousands of lines unless `whole`: for all
// files they would take gigabytes.
Report report_of(InspectedFile inspected, const std::string& path, bool whole) {
  Candidate candidate;
  candidate.path = path;
  candidate.file = std::move(inspected.file);
  candidate.verdict = std::move(inspected.verdict);
  if (!whole) candidate.file.undefined.clear();
  Report report = details(candidate);
  if (!whole) {
    report.erase("undefined");
    report.erase("images");
  }
  return report;
}

// Returns the result for a file that needs more memory than there is.
InspectedFile without_memory(const std::string& path) {
  InspectedFile inspected;
  inspected.file.path = path;
  inspected.verdict.state = State::kUndecided;
  inspected.verdict.reasons = {make_reason(Code::kFileMemory, "no memory to read its tables into",
                                           "as much as its symbols and strings take")};
  return inspected;
}

SurveyedFile surveyed(InspectedFile inspected, const PackageFile& member, const Survey& survey,
                      bool whole) {
  SurveyedFile file;
  file.path = member.path;
  file.name = member.name;
  file.size = inspected.file.size;
  file.state = inspected.verdict.state;
  file.reasons = inspected.verdict.reasons;
  file.load_state = load_state(file.reasons);
  file.gpu_state = gpu_state(inspected.file, inspected.verdict, survey.around.described);
  for (const std::string& path : inspected.file.link.libraries) {
    file.loads.push_back(plain_path(path));
  }
  for (const LinkProblem& problem : inspected.file.link.problems) {
    if (problem.kind == LinkProblem::Kind::kElsewhere) file.elsewhere.push_back(problem.where);
    if (problem.kind == LinkProblem::Kind::kUnknown) file.unknown.push_back(problem.name);
  }
  for (const Gpu& gpu : survey.gpus) file.gpus.push_back(cell_of(inspected, gpu));
  file.report = report_of(std::move(inspected), member.path, whole);
  return file;
}

SurveyedFile survey_one(const PackageTarget& target, const PackageFile& member, Linkers* linkers,
                        const Survey& survey, bool whole) {
  try {
    return surveyed(inspect_file(*target.files, member.path, survey.around, linkers), member,
                    survey, whole);
  } catch (const std::bad_alloc&) {
    return surveyed(without_memory(member.path), member, survey, whole);
  }
}

// Judges all files of all packages on as many threads as there are cores, while the caller's thread
// reports the progress.
class SurveyWorkers {
 public:
  SurveyWorkers(const Targets& targets, bool whole, Survey* survey, Progress* progress)
      : targets_(targets), whole_(whole), survey_(survey), progress_(progress) {
    for (size_t i = 0; i < targets.list.size(); ++i) {
      for (size_t j = 0; j < targets.list[i].members.size(); ++j) tasks_.push_back({i, j});
    }
    add_linkers();
  }

  // Returns false if it was stopped on request.
  bool run() {
    const size_t wanted =
        std::min<size_t>(tasks_.size(), std::max(1u, std::thread::hardware_concurrency()));
    std::vector<std::thread> helpers;
    for (size_t i = 0; i < wanted; ++i) {
      try {
        running_.fetch_add(1);
        helpers.emplace_back([this] { work(); });
      } catch (const std::system_error&) {
        running_.fetch_sub(1);
        break;  // no more threads can be started
      }
    }
    if (helpers.empty()) {
      running_.fetch_add(1);
      work();
    } else {
      watch();
    }
    for (std::thread& helper : helpers) helper.join();
    if (error_) std::rethrow_exception(error_);
    return !stopped_;
  }

 private:
  struct Task {
    size_t package, member;
  };

  void work() {
    struct Stopped {};
    const ReadWatch watch([this] {
      if (stopped_) throw Stopped();
    });
    for (size_t i = next_++; i < tasks_.size() && !stopped_; i = next_++) {
      const PackageTarget& target = targets_.list[tasks_[i].package];
      try {
        SurveyedFile file = survey_one(target, target.members[tasks_[i].member],
                                       linkers_[tasks_[i].package].get(), *survey_, whole_);
        const std::lock_guard lock(mutex_);
        survey_->packages[tasks_[i].package].files.push_back(std::move(file));
        ++done_;
      } catch (...) {
        const std::lock_guard lock(mutex_);
        if (!stopped_) error_ = std::current_exception();
        stopped_ = true;
      }
    }
    const std::lock_guard lock(mutex_);
    if (--running_ == 0) changed_.notify_all();
  }

  void watch() {
    std::unique_lock lock(mutex_);
    while (running_ != 0) {
      changed_.wait_for(lock, kPause);
      const size_t done = done_;
      lock.unlock();  // hooks may be slow
      progress_->step(fmt::format("inspecting: {} of {} files", done, tasks_.size()),
                      static_cast<double>(done) / static_cast<double>(tasks_.size()));
      if (progress_->cancelled()) stopped_ = true;
      lock.lock();
    }
  }

  // Makes each package's linkers. A library of one package may be needed by another: packages find
  // the libraries of those that are installed next to them.
  void add_linkers() {
    std::map<std::string, std::string> libraries;
    for (const PackageTarget& target : targets_.list) {
      if (wheel_of(target) == nullptr) add_libraries(target, &libraries);
    }
    add_before(&libraries);
    static const Files& real = *new Files;
    const auto installed =
        std::make_shared<Linkers>(survey_->around, real, std::move(libraries), false);
    for (size_t i = 0; i < targets_.list.size(); ++i) {
      const PackageTarget& target = targets_.list[i];
      const Wheel* const wheel = wheel_of(target);
      if (wheel == nullptr) {
        linkers_.push_back(installed);
        continue;
      }
      std::map<std::string, std::string> own;
      add_libraries(target, &own);
      add_before(&own);
      const bool has_absent_requirements = !survey_->packages[i].requirements.empty();
      linkers_.push_back(std::make_shared<Linkers>(
          survey_->around, *target.files, std::move(own), has_absent_requirements,
          python_of_tags(wheel->name().python, wheel->name().abi)));
    }
  }

  static const Wheel* wheel_of(const PackageTarget& target) {
    return dynamic_cast<const Wheel*>(target.files.get());
  }

  static void add_libraries(const PackageTarget& target,
                            std::map<std::string, std::string>* libraries) {
    for (const PackageFile& member : target.members) {
      libraries->emplace(member.path.substr(member.path.rfind('/') + 1), member.path);
    }
  }

  void add_before(std::map<std::string, std::string>* libraries) const {
    for (const std::string& path : targets_.before) {
      libraries->emplace(path.substr(path.rfind('/') + 1), path);
    }
  }

  const Targets& targets_;
  std::vector<std::shared_ptr<Linkers>> linkers_;  // one per package; installed ones share one
  const bool whole_;
  Survey* survey_;
  Progress* progress_;
  std::vector<Task> tasks_;
  std::atomic<size_t> next_{0};
  std::atomic<size_t> running_{0};
  std::atomic<bool> stopped_{false};
  std::mutex mutex_;  // guards the survey's packages, done_ and error_
  std::condition_variable changed_;
  size_t done_ = 0;
  std::exception_ptr error_;
};

// Returns a package, what it requires, and what that requires in turn, as indices in `packages`.
std::set<size_t> closure_of(size_t package, const std::vector<SurveyedPackage>& packages) {
  std::multimap<std::string, size_t> by_name;
  for (size_t i = 0; i < packages.size(); ++i) by_name.emplace(normal_name(packages[i].name), i);
  std::set<size_t> found = {package};
  std::vector<size_t> open = {package};
  while (!open.empty()) {
    const std::vector<std::string>& names = packages[open.back()].requirements;
    open.pop_back();
    for (const std::string& name : names) {
      for (auto [at, end] = by_name.equal_range(name); at != end; ++at) {
        if (found.insert(at->second).second) open.push_back(at->second);
      }
    }
  }
  return found;
}

// Derives packages' verdicts from those of their files.
void conclude_all(const Targets& targets, Survey* survey) {
  std::map<std::string, size_t> owners;  // the package of each file
  for (size_t i = 0; i < targets.list.size(); ++i) {
    for (const PackageFile& member : targets.list[i].members) owners.emplace(member.path, i);
  }
  const std::set<std::string> before(targets.before.begin(), targets.before.end());
  for (size_t i = 0; i < targets.list.size(); ++i) {
    SurveyedPackage& package = survey->packages[i];
    const std::set<size_t> required = closure_of(i, survey->packages);
    const bool is_whole = package.kind == "wheel" || package.kind == "package";
    PackageContext context;
    if (is_whole) context.reach = find_reach(targets.list[i]);
    context.described = survey->around.described;
    context.is_loaded_before = [&](const std::string& path) {
      const auto owner = owners.find(path);
      return before.count(path) != 0 ||
             (owner != owners.end() && owner->second != i && required.count(owner->second) != 0);
    };
    conclude(survey->gpus, context, &package);
  }
}

}  // namespace

std::string_view to_text(GpuState state) {
  switch (state) {
    case GpuState::kNoCode:
      return "no-code";
    case GpuState::kNative:
      return "native";
    case GpuState::kPtx:
      return "ptx";
    case GpuState::kUndecided:
      return "undecided";
    case GpuState::kNone:
      return "none";
  }
  return "";
}

void check_machine(const MachineSpec& machine) {
  if (const std::optional<SpecProblem> problem = check_spec(machine)) {
    throw Error(OPDOCK_INVALID_ARGUMENT,
                problem->name + ": found " + problem->found + ", wanted " + problem->wanted +
                    (problem->advice.empty() ? "" : "; ") + problem->advice);
  }
}

Survey survey(const SurveyRequest& request, const MachineFacts& here, Progress* progress) {
  const auto begin = std::chrono::steady_clock::now();
  check_machine(request.machine);
  Survey result;
  result.around.machine = described_machine(request.machine, here);
  result.around.described = request.machine.is_given();
  result.around.libraries_described = request.machine.tells_libraries();
  for (const std::string& path : request.paths) {
    if (Files().identify(path + "/pyvenv.cfg")) result.around.python = path + "/bin/python3";
  }
  result.gpus = different_gpus(result.around.machine);
  Targets targets = find_targets(request, progress);
  if (result.around.python.empty()) result.around.python = targets.python;
  result.skipped = std::move(targets.skipped);
  result.num_pure = targets.num_pure;
  for (PackageTarget& target : targets.list) result.packages.push_back(std::move(target.package));
  if (!SurveyWorkers(targets, request.whole, &result, progress).run()) {
    throw Error(OPDOCK_CANCELLED, kInspectStopped);
  }
  conclude_all(targets, &result);
  std::sort(result.packages.begin(), result.packages.end(),
            [](const SurveyedPackage& a, const SurveyedPackage& b) {
              if (a.state != b.state) return a.state > b.state;
              return std::tie(a.name, a.path) < std::tie(b.name, b.path);
            });
  if (result.packages.empty() && result.num_pure == 0) {
    result.reasons.push_back(make_reason(Code::kNothingNative, "no native file and no wheel",
                                         "a shared object, a program or a wheel"));
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  result.seconds = took.count();
  return result;
}

}  // namespace opdock
