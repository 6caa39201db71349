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
#include "inspect/targets.h"
#include "note/reader.h"
#include "opdock/types.hpp"

namespace opdock {
namespace {

constexpr auto kPause = std::chrono::milliseconds(50);  // between looks at progress

// Each architecture once: eight equal GPUs fare equally.
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
                 : is_ptx                          ? GpuState::kPtx
                                                   : GpuState::kNative;
    return cell;
  }
  return {};
}

// As of one file, without lists of thousands unless `whole`: of all files they would be gigabytes.
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

// Of a file that needs more memory than there is.
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

// All files of all packages, judged on as many threads as there are cores. The caller's thread
// reports how far they are.
class Crew {
 public:
  Crew(const Targets& targets, bool whole, Survey* survey, Progress* progress)
      : targets_(targets), whole_(whole), survey_(survey), progress_(progress) {
    for (size_t i = 0; i < targets.list.size(); ++i) {
      for (size_t j = 0; j < targets.list[i].members.size(); ++j) tasks_.push_back({i, j});
    }
    add_linkers();
  }

  // False: it was stopped on request.
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
        break;  // no more threads to be had
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
      lock.unlock();  // hooks may take their time
      progress_->step(fmt::format("inspecting: {} of {} files", done, tasks_.size()),
                      static_cast<double>(done) / static_cast<double>(tasks_.size()));
      if (progress_->cancelled()) stopped_ = true;
      lock.lock();
    }
  }

  // What one file loads another may need: packages find the libraries of those beside them.
  void add_linkers() {
    std::map<std::string, std::string> libraries;
    for (const PackageTarget& target : targets_.list) {
      if (!is_wheel(target)) add_libraries(target, &libraries);
    }
    static const Files& real = *new Files;
    const auto installed =
        std::make_shared<Linkers>(survey_->around, real, std::move(libraries), false);
    for (size_t i = 0; i < targets_.list.size(); ++i) {
      const PackageTarget& target = targets_.list[i];
      if (!is_wheel(target)) {
        linkers_.push_back(installed);
        continue;
      }
      std::map<std::string, std::string> own;
      add_libraries(target, &own);
      const bool others_bring = !survey_->packages[i].requirements.empty();
      linkers_.push_back(
          std::make_shared<Linkers>(survey_->around, *target.files, std::move(own), others_bring));
    }
  }

  static bool is_wheel(const PackageTarget& target) {
    return dynamic_cast<const Wheel*>(target.files.get()) != nullptr;
  }

  static void add_libraries(const PackageTarget& target,
                            std::map<std::string, std::string>* libraries) {
    for (const PackageFile& member : target.members) {
      libraries->emplace(member.path.substr(member.path.rfind('/') + 1), member.path);
    }
  }

  const Targets& targets_;
  std::vector<std::shared_ptr<Linkers>> linkers_;  // of each package; all installed ones share one
  const bool whole_;
  Survey* survey_;
  Progress* progress_;
  std::vector<Task> tasks_;
  std::atomic<size_t> next_{0};
  std::atomic<size_t> running_{0};
  std::atomic<bool> stopped_{false};
  std::mutex mutex_;  // of the survey's packages, done_ and error_
  std::condition_variable changed_;
  size_t done_ = 0;
  std::exception_ptr error_;
};

bool has_gpu_code(const SurveyedFile& file) {
  return !file.report.at("cuda_archs").empty() || !file.report.at("hip_archs").empty();
}

// Whether it has code for a kind of GPU that is there, whatever that is worth.
bool is_for_these_gpus(const SurveyedFile& file) {
  return std::any_of(file.gpus.begin(), file.gpus.end(),
                     [](const GpuCell& cell) { return cell.state != GpuState::kNoCode; });
}

// A library loads where its GPUs are missing; a package whose GPU code is all for others is no use.
Reason other_vendor_reason(const std::vector<SurveyedFile>& files, const std::vector<Gpu>& gpus) {
  std::set<std::string> built_for;
  for (const SurveyedFile& file : files) {
    for (const char* member : {"cuda_archs", "hip_archs"}) {
      for (const Report& arch : file.report.at(member)) built_for.insert(arch.get<std::string>());
    }
  }
  Reason reason =
      make_reason(Code::kNoImages,
                  "GPU code for " + join_some({built_for.begin(), built_for.end()}, 3) + " only",
                  "code for " + gpus.front().arch);
  reason.advice = "get the package that is built for this kind of GPU";
  return reason;
}

void conclude(const std::vector<Gpu>& gpus, SurveyedPackage* package) {
  std::sort(package->files.begin(), package->files.end(),
            [](const SurveyedFile& a, const SurveyedFile& b) {
              return a.state != b.state ? a.state > b.state : a.path < b.path;
            });
  // Packages for several vendors load the library that fits.
  const auto& files = package->files;
  const bool has_own = std::any_of(files.begin(), files.end(), is_for_these_gpus);
  if (!gpus.empty() && !has_own && std::any_of(files.begin(), files.end(), has_gpu_code)) {
    package->reasons.push_back(other_vendor_reason(files, gpus));
  }
  package->state = worst(package->reasons);
  package->gpus.resize(gpus.size());
  for (SurveyedFile& file : package->files) {
    file.counts = !has_own || !has_gpu_code(file) || is_for_these_gpus(file);
    if (file.counts) package->state = std::max(package->state, file.state);
    for (size_t i = 0; i < gpus.size(); ++i) {
      if (file.gpus[i].state > package->gpus[i].state) package->gpus[i] = file.gpus[i];
    }
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

Survey survey(const SurveyRequest& request, const MachineFacts& here, Progress* progress) {
  const auto begin = std::chrono::steady_clock::now();
  if (const std::optional<SpecProblem> problem = check_spec(request.machine)) {
    throw Error(OPDOCK_INVALID_ARGUMENT,
                problem->name + ": found " + problem->found + ", wanted " + problem->wanted +
                    (problem->advice.empty() ? "" : "; ") + problem->advice);
  }
  Survey result;
  result.around.machine = described_machine(request.machine, here);
  result.around.described = request.machine.is_given();
  result.around.libraries_described = request.machine.tells_libraries();
  for (const std::string& path : request.paths) {
    if (Files().identify(path + "/pyvenv.cfg")) result.around.python = path + "/bin/python3";
  }
  result.gpus = different_gpus(result.around.machine);
  Targets targets = find_targets(request, progress);
  result.skipped = std::move(targets.skipped);
  result.num_pure = targets.num_pure;
  for (PackageTarget& target : targets.list) result.packages.push_back(std::move(target.package));
  if (!Crew(targets, request.whole, &result, progress).run()) {
    throw Error(OPDOCK_CANCELLED, kInspectStopped);
  }
  for (SurveyedPackage& package : result.packages) conclude(result.gpus, &package);
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
