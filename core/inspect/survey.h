// Inspects many native files at once: will what these packages hold run here, and if not, why?
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/progress.h"
#include "inspect/inspect_file.h"
#include "inspect/machine_spec.h"
#include "inspect/wheel.h"
#include "report/json.h"

namespace opdock {

struct SurveyRequest {
  std::vector<std::string> paths;     // shared objects, wheels, folders, virtual environments
  std::vector<std::string> packages;  // names of installed packages
  bool environment = false;           // every package that is installed
  std::vector<std::string> with;      // installed packages that are imported first
  // Folders where packages are installed; empty: the active Python is asked for them.
  std::vector<std::string> sites;
  MachineSpec machine;
  bool whole = false;  // files' reports include what may be thousands of lines
};

// How a file or a package fares on one GPU, from best to worst.
enum class GpuState { kNoCode, kNative, kPtx, kUndecided, kNone };
std::string_view to_text(GpuState state);  // "no-code", "native", "ptx", "undecided", "none"

struct GpuCell {
  GpuState state = GpuState::kNoCode;
  std::string image;  // the architecture of the image that would be used
};

struct SurveyedFile {
  std::string path;
  std::string name;  // within the package
  uint64_t size = 0;
  // state: the worse of load_state, whether it loads, and gpu_state, how its GPU code fares.
  State state = State::kRejected, load_state = State::kRejected, gpu_state = State::kUsable;
  std::vector<Reason> reasons;
  std::vector<GpuCell> gpus;           // one for each of Survey::gpus
  std::vector<std::string> loads;      // paths of the libraries that it loads
  std::vector<std::string> elsewhere;  // paths of libraries that are where the loader does not look
  std::vector<std::string> unknown;    // names of libraries that other packages may bring
  // share: what the file adds to the package's verdict. counts: false if it adds nothing, because
  // importing the package does not load it, or because another file does its work here.
  State share = State::kUsable;
  bool counts = true;
  Report report;  // the report for one file; long parts only on request
};

struct SurveyedPackage {
  std::string kind;           // "wheel", "package", "folder", "file"
  std::string name, version;  // version: empty if unknown
  std::string path;           // path of the wheel, folder or file; for a package, its site
  std::vector<std::string> requirements;
  std::vector<SurveyedFile> files;  // the worst first
  std::vector<Reason> reasons;      // about the package as a whole
  State state = State::kUsable;     // the worst of what its files add
  std::vector<GpuCell> gpus;        // the worst of its files' cells
};

struct Survey {
  JudgedMachine around;
  std::vector<Gpu> gpus;                  // the machine's, each architecture once
  std::vector<SurveyedPackage> packages;  // the worst first, then by name
  std::vector<Skipped> skipped;
  std::vector<Reason> reasons;  // if nothing was found to inspect
  uint64_t num_pure = 0;        // installed packages without native code, which are not listed
  double seconds = 0;
};

inline constexpr const char* kInspectStopped =
    "inspecting was stopped on request; ask again: it starts anew";

// Throws Error (OPDOCK_INVALID_ARGUMENT) for a machine that cannot exist.
void check_machine(const MachineSpec& machine);

// Finds the files and judges them on as many threads as there are cores; `here` is this machine.
// Throws Error for an invalid request: OPDOCK_NOT_FOUND for a package that is not installed,
// OPDOCK_INVALID_ARGUMENT for a path that does not exist or a machine that cannot be described; and
// OPDOCK_CANCELLED if `progress` asks to stop. Blocks on files, and starts a Python if it has to
// ask for its folders. A file that there is no memory for is undecided (file-memory).
Survey survey(const SurveyRequest& request, const MachineFacts& here, Progress* progress);

}  // namespace opdock
