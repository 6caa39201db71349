// Chooses the backend of an engine.
// SPDX-License-Identifier: Apache-2.0
#include "ring.h"

namespace async_io {
namespace {

using MakeRing = std::unique_ptr<Ring> (*)(uint32_t depth, std::string* why_not);

// Makes a ring for each thread; returns none if one of them fails.
std::vector<std::unique_ptr<Ring>> make_all(MakeRing make, const Options& options,
                                            std::string* why_not) {
  std::vector<std::unique_ptr<Ring>> rings;
  for (uint32_t i = 0; i < options.num_threads; ++i) {
    std::unique_ptr<Ring> ring = make(options.queue_depth, why_not);
    if (ring == nullptr) return {};
    rings.push_back(std::move(ring));
  }
  return rings;
}

}  // namespace

const char* name(Backend backend) {
  switch (backend) {
    case Backend::kUring:
      return "io_uring";
    case Backend::kAio:
      return "Linux AIO";
    case Backend::kThreads:
      return "pread and pwrite";
    case Backend::kAny:
      break;
  }
  return "any";
}

Rings make_rings(const Options& options) {
  Rings made;
  std::string refusals;
  for (const auto& [backend, make] :
       {std::pair{Backend::kUring, &make_uring}, std::pair{Backend::kAio, &make_aio}}) {
    if (options.backend != Backend::kAny && options.backend != backend) continue;
    std::string why_not;
    made.rings = make_all(make, options, &why_not);
    if (!made.rings.empty()) {
      made.backend = backend;
      break;
    }
    if (options.backend == backend)
      throw Error(Error::Kind::kSystem, std::string(name(backend)) + " cannot be used: " + why_not +
                                            "; leave the choice of the backend to the engine");
    refusals += "\nnot " + std::string(name(backend)) + ": " + why_not;
  }
  made.report = std::string(name(made.backend)) + ", " + std::to_string(options.num_threads) +
                (options.num_threads == 1 ? " thread" : " threads") + refusals;
  return made;
}

}  // namespace async_io
