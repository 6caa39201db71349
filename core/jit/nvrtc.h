// NVRTC, CUDA's run-time compiler: found on the machine, opened at run time, used to make images.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/progress.h"
#include "base/version.h"
#include "jit/source_text.h"

namespace opdock {

struct CompileJob {
  std::vector<SourceText> headers;   // all that can be included: no folder is searched
  std::vector<std::string> sources;  // names among `headers`, included in this order
  std::vector<std::string> kernels;  // name expressions: "softmax<float>"
  std::string arch;                  // "sm_90a" makes a cubin, "compute_75" PTX
  bool with_ptx = false;             // for a cubin, also the PTX that it was made from
  // The program's own text and what messages call it. Empty: it includes `sources`.
  std::string program;
  std::string program_name = "plugin.cu";
  std::vector<std::string> options;  // further options, as NVRTC's documentation has them
  Progress* progress = nullptr;      // asked whether to stop, if NVRTC can (since 12.8)
};

// The cause of a failure.
enum class CompileFault {
  kNone,
  kSource,     // the program: the log has file and line
  kKernel,     // a name expression that names no kernel
  kOption,     // an option that the compiler does not know
  kCompiler,   // the compiler itself: no memory, an internal error
  kArch,       // hipRTC does not know the architecture: the log has those that it knows
  kCancelled,  // Progress said to stop
};

struct CompileResult {
  bool ok = false;
  CompileFault fault = CompileFault::kNone;
  std::string log;  // the compiler's messages; on failure, at least one line that says what failed
  std::vector<uint8_t> image;
  std::vector<uint8_t> ptx;  // if with_ptx; that of "compute_75" is the same as "sm_75"'s
  std::vector<std::pair<std::string, std::string>> names;  // name expression, name in the image
};

// An opened libnvrtc. Lives until the process ends: its static state does not survive dlclose.
class Nvrtc {
 public:
  // Opens the library at `path` with its builtins library, which the CUDA 13 wheel does not find by
  // itself. Returns NULL and *problem if it cannot be used. Different majors may be open at once.
  static const Nvrtc* open(const std::string& path, std::string* problem);

  const std::string& path() const { return path_; }
  const Version& version() const { return version_; }  // 12.9
  // Returns the architectures that it knows as 10 * major + minor, ascending: 50 … 121.
  const std::vector<int>& archs() const { return archs_; }
  bool knows(int arch) const;

  // Compiles for one architecture. May take seconds. Any thread; NVRTC serialises its front end.
  CompileResult compile(const CompileJob& job) const;

 private:
  struct Functions;
  Nvrtc() = default;

  std::string path_;
  Version version_;
  std::vector<int> archs_;
  const Functions* functions_ = nullptr;
};

// Returns the options that Nvrtc::compile() adds itself, apart from the architecture. Together with
// the job's options they decide what the image is.
std::vector<std::string> own_options(const CompileJob& job);

// Opens the newest library of each CUDA major among the candidates; returns them, the oldest major
// first. Problems of files that exist but cannot be opened are appended to *problems.
std::vector<const Nvrtc*> open_nvrtcs(const std::vector<std::string>& candidates,
                                      std::vector<std::string>* problems);

// Returns the compiler that makes the image for `arch`: the oldest that knows it, because a cubin
// needs a driver of at least its toolkit's major. NULL if none knows it.
const Nvrtc* choose_nvrtc(const std::vector<const Nvrtc*>& compilers, int arch);

}  // namespace opdock
