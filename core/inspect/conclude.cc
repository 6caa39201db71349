// SPDX-License-Identifier: Apache-2.0
#include "inspect/conclude.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <string_view>
#include <tuple>

#include "base/texts.h"
#include "inspect/inspect_file.h"

namespace opdock {
namespace {

bool has_gpu_code(const SurveyedFile& file) {
  return !file.report.at("cuda_archs").empty() || !file.report.at("hip_archs").empty();
}

// Returns whether the file has code for a kind of GPU that is there, even if it cannot run on it.
bool is_for_these_gpus(const SurveyedFile& file) {
  return std::any_of(file.gpus.begin(), file.gpus.end(),
                     [](const GpuCell& cell) { return cell.state != GpuState::kNoCode; });
}

// Returns the reason against a package whose GPU code is all for other kinds of GPUs: its libraries
// load without their GPUs, but the package is of no use.
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

class Conclusion {
 public:
  Conclusion(const std::vector<Gpu>& gpus, const PackageContext& context, SurveyedPackage* package)
      : gpus_(gpus), context_(context), package_(*package) {
    for (const SurveyedFile& file : package_.files) {
      if (!is_root(file)) continue;
      loaded_.insert(file.loads.begin(), file.loads.end());
    }
    has_own_ = std::any_of(package_.files.begin(), package_.files.end(), is_for_these_gpus);
    reaches_own_ =
        std::any_of(package_.files.begin(), package_.files.end(), [&](const SurveyedFile& file) {
          return is_for_these_gpus(file) && (is_root(file) || loaded_.count(file.path) != 0);
        });
  }

  void run() {
    const bool has_code = std::any_of(package_.files.begin(), package_.files.end(), has_gpu_code);
    if (!gpus_.empty() && !has_own_ && has_code) {
      package_.reasons.push_back(other_vendor_reason(package_.files, gpus_));
    }
    package_.state = worst(package_.reasons);
    package_.gpus.resize(gpus_.size());
    std::map<std::string, std::vector<SurveyedFile*>> alternatives;
    for (SurveyedFile& file : package_.files) {
      assume(&file);
      weigh(&file);
      const bool is_sure = !context_.reach || context_.reach->is_exact;
      const std::string key = is_sure || !file.counts ? "" : alternative_key(file.name);
      if (!key.empty()) alternatives[key].push_back(&file);
    }
    for (const auto& [key, files] : alternatives) {
      if (files.size() > 1) choose(files);
    }
    for (const SurveyedFile& file : package_.files) {
      if (!file.counts) continue;
      package_.state = std::max(package_.state, file.share);
      for (size_t i = 0; i < gpus_.size() && chosen_.count(&file) == 0; ++i) {
        if (file.gpus[i].state > package_.gpus[i].state) package_.gpus[i] = file.gpus[i];
      }
    }
    std::sort(package_.files.begin(), package_.files.end(),
              [](const SurveyedFile& a, const SurveyedFile& b) {
                if (a.counts != b.counts) return a.counts;
                return a.state != b.state ? a.state > b.state : a.path < b.path;
              });
  }

 private:
  bool is_root(const SurveyedFile& file) const {
    return !context_.reach || context_.reach->files.count(file.path) != 0;
  }

  // Returns whether this package or another one loads the library before the file needs it.
  bool is_loaded_before(const std::string& path) const {
    if (context_.is_loaded_before && context_.is_loaded_before(path)) return true;
    const bool is_own = std::any_of(package_.files.begin(), package_.files.end(),
                                    [&](const SurveyedFile& file) { return file.path == path; });
    return is_own && context_.reach &&
           (context_.reach->loads_libraries || context_.reach->files.count(path) != 0);
  }

  // Removes the reasons that libraries are elsewhere or not known if that is as intended.
  void assume(SurveyedFile* file) {
    const bool is_all_there =
        std::all_of(file->elsewhere.begin(), file->elsewhere.end(),
                    [&](const std::string& path) { return is_loaded_before(path); });
    const bool is_all_brought = std::all_of(
        file->unknown.begin(), file->unknown.end(),
        [&](const std::string& name) { return provides_library(package_.requirements, name); });
    std::vector<std::string> names;
    const auto take_away = [&](Code code, const std::vector<std::string>& taken) {
      if (std::erase_if(file->reasons, [&](const Reason& one) { return one.code == code; }) != 0) {
        names.insert(names.end(), taken.begin(), taken.end());
      }
    };
    if (is_all_there && !file->elsewhere.empty()) {
      take_away(Code::kLibraryElsewhere, file->elsewhere);
    }
    if (is_all_brought && !file->unknown.empty()) take_away(Code::kLibraryUnknown, file->unknown);
    if (names.empty()) return;
    file->reasons.push_back(make_reason(Code::kLibraryAssumed, join_some(names, 20),
                                        "them loaded before, by this package or what it requires"));
    file->load_state = load_state(file->reasons);
    file->state = std::max(file->load_state, file->gpu_state);
    file->report["verdict"] = to_text(file->state);
    file->report["usable"] = file->state == State::kUsable;
    file->report["reasons"] = to_json(file->reasons);
  }

  // Decides what the file adds to the package's verdict if no other file does the same work.
  void weigh(SurveyedFile* file) {
    // A package for several vendors loads the library that fits.
    const bool is_for_others = has_own_ && has_gpu_code(*file) && !is_for_these_gpus(*file);
    const bool is_loaded = loaded_.count(file->path) != 0;
    // If the import reaches no code for these GPUs, such code is loaded later, by a name that is
    // not seen.
    const bool adds_gpu_code = is_for_these_gpus(*file) && (is_loaded || !reaches_own_);
    file->counts = !is_for_others && (is_root(*file) || adds_gpu_code);
    file->share = !file->counts ? State::kUsable : is_root(*file) ? file->state : file->gpu_state;
  }

  static State state_of(const GpuCell& cell) {
    return cell.state == GpuState::kNone        ? State::kRejected
           : cell.state == GpuState::kUndecided ? State::kUndecided
                                                : State::kUsable;
  }

  // Chooses among files that do the same work: the package loads the best of them, and another one
  // on another GPU.
  void choose(std::vector<SurveyedFile*> files) {
    if (has_own_) {
      std::erase_if(files, [](SurveyedFile* file) {
        file->counts = is_for_these_gpus(*file);
        return !file->counts;
      });
    }
    std::set<SurveyedFile*> best;
    State best_state = State::kRejected;
    for (size_t i = 0; i < gpus_.size() && has_own_ && !files.empty(); ++i) {
      const auto rank = [&](const SurveyedFile* file) {
        return std::tuple(std::max(file->load_state, state_of(file->gpus[i])), file->gpus[i].state,
                          file->path);
      };
      SurveyedFile* const one =
          *std::min_element(files.begin(), files.end(),
                            [&](const auto* a, const auto* b) { return rank(a) < rank(b); });
      const State state = std::get<0>(rank(one));
      best_state = std::min(best_state, state);
      one->share = best.insert(one).second ? state : std::max(one->share, state);
      if (one->gpus[i].state > package_.gpus[i].state) package_.gpus[i] = one->gpus[i];
    }
    if (best.empty() && !files.empty()) {
      best.insert(*std::min_element(files.begin(), files.end(), [](const auto* a, const auto* b) {
        return std::tie(a->share, a->path) < std::tie(b->share, b->path);
      }));
    }
    for (SurveyedFile* file : files) {
      file->counts = best.count(file) != 0;
      // One GPU of those that are here has to be served, not all.
      if (has_own_ && !context_.described) file->share = std::min(file->share, best_state);
      chosen_.insert(file);
    }
  }

  const std::vector<Gpu>& gpus_;
  const PackageContext& context_;
  SurveyedPackage& package_;
  std::set<std::string> loaded_;          // paths of the libraries that the roots load
  std::set<const SurveyedFile*> chosen_;  // files whose cells are in the package's
  bool has_own_ = false, reaches_own_ = false;
};

}  // namespace

void conclude(const std::vector<Gpu>& gpus, const PackageContext& context,
              SurveyedPackage* package) {
  Conclusion(gpus, context, package).run();
}

std::string alternative_key(const std::string& name) {
  constexpr struct {
    std::string_view word;
    bool needs_number;
  } kWords[] = {{"cuda", false}, {"rocm", false}, {"hip", false}, {"xpu", false},
                {"sycl", false}, {"cpu", false},  {"hpu", false}, {"npu", false},
                {"mps", false},  {"cu", true},    {"sm", true}};
  const auto is_letter = [&](size_t at) {
    return at < name.size() && std::isalnum(static_cast<unsigned char>(name[at])) != 0;
  };
  std::string key;
  bool found = false;
  for (size_t at = 0; at < name.size();) {
    size_t end = at;
    for (const auto& [word, needs_number] : kWords) {
      if ((at > 0 && is_letter(at - 1)) || name.compare(at, word.size(), word) != 0) continue;
      size_t next = at + word.size();
      const size_t digits = next < name.size() && name[next] == '_' ? next + 1 : next;
      size_t behind = digits;
      while (behind < name.size() && std::isdigit(static_cast<unsigned char>(name[behind])) != 0) {
        ++behind;
      }
      if (behind > digits) next = behind;
      const bool has_suffix =
          next == behind && next < name.size() && name.find_first_of("af", next) == next;
      if (has_suffix && !is_letter(next + 1)) ++next;  // "sm90a"
      if ((needs_number && behind == digits) || is_letter(next)) continue;
      end = next;
      break;
    }
    found = found || end > at;
    key += end > at ? '*' : name[at];
    at = std::max(end, at + 1);
  }
  return found ? key : "";
}

}  // namespace opdock
