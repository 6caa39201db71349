// SPDX-License-Identifier: Apache-2.0
#include "gemm/blas_library.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <string_view>
#include <vector>

#include "base/forked.h"
#include "base/loaded_objects.h"
#include "base/mutex.h"

namespace opdock::gemm {
namespace {

struct Name {
  const char* symbol;
  bool has_long;
};
// SciPy's builds of OpenBLAS, which NumPy's wheels contain, rename their symbols.
constexpr Name kNames[] = {
    {"scipy_sgemm_64_", true}, {"scipy_sgemm_", false}, {"sgemm_64_", true}, {"sgemm_", false}};

// Beginnings of file names, in order of preference. The BLAS in libtorch_cpu comes first because it
// shares its threads with Opdock.
constexpr std::string_view kParts[] = {"libtorch_cpu.", "libmkl_rt.", "libscipy_openblas",
                                       "libopenblas",   "libblis",    "libnvpl_blas_lp64",
                                       "libarmpl",      "libblas."};
// Names to give to the loader if the process has loaded no BLAS.
constexpr const char* kSystem[] = {"libmkl_rt.so.2", "libopenblas.so.0", "libblis.so.4",
                                   "libblas.so.3"};

struct Loaded {
  std::vector<std::string> paths;
  unsigned long long loads = 0;
};

Loaded loaded_objects() {
  Loaded found;
  visit_loaded_objects(
      [](dl_phdr_info* object, size_t, void* context) {
        auto* out = static_cast<Loaded*>(context);
        out->loads = object->dlpi_adds;
        if (object->dlpi_name != nullptr) out->paths.emplace_back(object->dlpi_name);
        return 0;
      },
      &found);
  return found;
}

bool take(void* library, const std::string& path, Blas* out) {
  for (const Name& name : kNames) {
    out->sgemm = reinterpret_cast<Sgemm>(dlsym(library, name.symbol));
    out->has_long = name.has_long;
    out->path = path;
    if (out->sgemm != nullptr) return true;
  }
  return false;
}

bool find(const std::vector<std::string>& paths, Blas* out) {
  for (const std::string_view part : kParts) {
    for (const std::string& path : paths) {
      if (!std::string_view(path).substr(path.rfind('/') + 1).starts_with(part)) continue;
      void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD);
      if (library != nullptr && take(library, path, out)) return true;
    }
  }
  for (const char* name : kSystem) {
    void* const library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr && take(library, name, out)) return true;
  }
  return false;
}

// OpenMP's threads no longer exist after a fork, and its runtime does not notice (GNU's waits for
// them forever). An OpenBLAS with its own threads restarts them.
bool survives_fork(const Blas& blas) {
  return blas.path.find("libscipy_openblas") != std::string::npos;
}

bool is_forked() {
  static const bool began = began_as_fork();
  return began;
}

std::atomic<const Blas*> the_blas{nullptr};
std::atomic<unsigned long long> loads_searched{0};

}  // namespace

const Blas* find_blas(Reason* why) {
  const Blas* known = the_blas.load(std::memory_order_acquire);
  if (known == nullptr) {
    const Loaded loaded = loaded_objects();
    if (loads_searched.load(std::memory_order_relaxed) != loaded.loads) {
      Blas found;
      if (find(loaded.paths, &found)) {
        static const Blas blas = found;  // the first thread initializes it
        the_blas.store(known = &blas, std::memory_order_release);
      } else {
        loads_searched.store(loaded_objects().loads, std::memory_order_relaxed);
      }
    }
  }
  if (known == nullptr) {
    *why = make_reason(Code::kGemmLibraryMissing, "no BLAS in this process or the system",
                       "OpenBLAS, MKL, BLIS or another one, as NumPy and PyTorch bring it");
  } else if (!survives_fork(*known) && (forks() != 0 || is_forked())) {
    *why = make_reason(Code::kGemmLibraryUnfit,
                       "a process that was forked, whose parent had " + known->path,
                       "a BLAS whose threads survive a fork");
    return nullptr;
  }
  return known;
}

}  // namespace opdock::gemm
