// Chooses the architectures to compile for from what the user, the machine and the compiler say.
//
// Order: the command line (or the Meson option) over the environment over the user's configuration
// over the GPUs that are visible here over a default that depends only on the compiler. The first
// that is given decides by itself; lists are never mixed.
//
// - A list that somebody wrote is taken literally. Architectures that no compiler at hand knows are
//   refused, all of them in one message, before anything is compiled.
// - `native`: each visible GPU's own architecture, and PTX of the newest (as PyTorch does). If the
//   visible GPUs decide without being asked for, that PTX is left out, because another GPU makes
//   another build. A GPU that is newer than the compiler gets PTX of the newest architecture below
//   it that the compiler knows, with a notice.
// - `auto`: the visible GPUs' own architectures, without PTX; nothing if no GPU is visible.
// - `all`: every architecture the compiler knows, and PTX of the first of its newest major;
//   `all-major`: the first of each major, and the same PTX (as nvcc's -arch=all, all-major).
// - The default: of the architectures from 7.5 on that the compiler knows, the lowest with PTX (for
//   GPUs that no cubin serves), the first of each later major, and PTX of the newest of these.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "arch/compiler_archs.h"
#include "arch/cuda_list.h"
#include "arch/rocm_list.h"
#include "base/reason.h"
#include "facts/environment.h"
#include "facts/machine.h"

namespace opdock {

// A list that somebody wrote, and its place. An empty or blank text counts as no list.
struct ArchSource {
  std::string name;  // for messages: "--archs", "TORCH_CUDA_ARCH_LIST"
  std::string text;
};

// Return the usual sources, the most important first. `option` is the text of the option called
// `option_name`, `config` that of the key in the file at `config_path`; each may be empty. The
// environment variables are TORCH_CUDA_ARCH_LIST and PYTORCH_ROCM_ARCH.
std::vector<ArchSource> cuda_arch_sources(const std::string& option_name, const std::string& option,
                                          const Environment& environment,
                                          const std::string& config_path = {},
                                          const std::string& config = {});
std::vector<ArchSource> rocm_arch_sources(const std::string& option_name, const std::string& option,
                                          const Environment& environment,
                                          const std::string& config_path = {},
                                          const std::string& config = {});

struct CudaArchInputs {
  std::vector<ArchSource> sources;
  std::vector<Gpu> gpus;                 // visible ones; those of other backends are ignored
  std::vector<CompilerArchs> compilers;  // those that will compile; none: nothing can be checked
  // Numbers in `sources` that nobody wrote: they are those of GPUs of the machine that asks
  // (ArchRequest). A number newer than the compilers is not refused but gets PTX, as a GPU does.
  std::vector<int> gpu_numbers;
  // 10 * major + minor: nothing older is compiled for, whoever asks for it, and a list of nothing
  // else is refused (arch-below-least). 0: no limit.
  int least = 0;
};

struct CudaArchChoice {
  std::vector<CudaTarget> targets;  // in order, merged; empty if nothing decides (no compiler)
  bool nothing = false;             // only "auto", and no GPU here that can be compiled for
  std::string origin;               // "--archs", "the visible GPUs", "the default of NVRTC 12.9"
  std::vector<Reason> notices;  // arch-uncovered: GPUs that the result will not run on; arch-ptx
  std::string text() const { return to_text(targets); }
};

// Returns nullopt and *reason on failure: arch-list-invalid, build-arch or arch-below-least. Pure.
std::optional<CudaArchChoice> choose_cuda_archs(const CudaArchInputs& inputs, Reason* reason);

// The list that a build's request holds. A machine without a compiler must come to the same list,
// so no compiler is asked, `all` and `all-major` stay words, and without a list or a GPU it is
// empty. Errors and order are as above; opdock-pack and nvcc's arguments take the text later.
struct ArchRequest {
  std::string text;             // "8.0;9.0a+PTX", "all-major;9.0a", "gfx90a"
  std::string origin;           // as in CudaArchChoice
  std::vector<Reason> notices;  // arch-uncovered
  std::string gpu_archs;        // what in `text` GPUs here asked for, not a list: "12.1"
};
// Returns CudaArchInputs::gpu_numbers for ArchRequest::gpu_archs.
std::vector<int> gpu_numbers_of(const std::string& gpu_archs);
std::optional<ArchRequest> request_cuda_archs(const std::vector<ArchSource>& sources,
                                              const std::vector<Gpu>& gpus, int least,
                                              Reason* reason);

struct RocmArchInputs {
  std::vector<ArchSource> sources;
  std::vector<Gpu> gpus;
};

struct RocmArchChoice {
  std::vector<std::string>
      targets;  // target IDs; empty: nothing decides, the compiler's own default
  std::string origin;
  std::vector<Reason> notices;
  bool by_gpus = false;  // this machine's GPUs decide, asked for (`native`) or not
  std::string text() const { return to_text(targets); }
};

// Chooses AMD's architectures likewise. The HIP compilers do not say what they know, so they refuse
// unknown ones themselves, and without a GPU there is no default. A GPU's features are left out,
// because such code runs with any setting.
std::optional<RocmArchChoice> choose_rocm_archs(const RocmArchInputs& inputs, Reason* reason);

}  // namespace opdock
