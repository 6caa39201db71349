// The chain: a binary plugin, a run-time compiled device part, a build from source, the reference.
// Steps are tried in this order until one serves; each leaves its reasons. docs/build-on-demand.md
// describes it for users.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/reason.h"
#include "call/function.h"
#include "call/target.h"
#include "chain/hooks.h"
#include "chain/runtime.h"
#include "discover/catalog.h"

namespace opdock {

// A reason, and whose it is.
struct StepReason {
  std::string plugin;  // "softmax 0.1.0"; empty: no plugin's in particular
  std::string path;    // of its file or folder
  Reason reason;
};

struct ChainStep {
  enum class Kind { kBinary, kJit, kBuild, kReference };
  enum class Outcome { kUsed, kFailed, kSkipped, kNotNeeded };
  Kind kind;
  Outcome outcome = Outcome::kNotNeeded;
  std::string text;                  // what was done, or why nothing was, for people
  std::vector<StepReason> reasons;   // why each plugin that was tried does not serve
  std::vector<std::string> changed;  // what differs from what the cache had before
};
std::string_view to_text(ChainStep::Kind kind);        // "binary", "jit", "build", "reference"
std::string_view to_text(ChainStep::Outcome outcome);  // "used", "failed", "skipped", "not-needed"

// What became of an op on a device; with `dry`, what would.
struct ChainRecord {
  opdock_device device{};
  bool dry = false;
  bool cancelled = false;
  std::vector<ChainStep> steps;  // in the order in which they were taken
  Target* target = nullptr;      // NULL: none, or dry

  bool serves() const;        // a step was, or would be, used
  std::string story() const;  // "  1. binary plugin: …", one line a step
  std::vector<Reason> reasons() const;
};

// What is looked for.
struct Wanted {
  std::string name;  // as the caller gave it: "op" or "plugin/op"
  std::string op;
  std::string schema;
  std::string digest;  // of the schema; plugins with another one do not serve
  opdock_device device{};
  std::vector<uint8_t> arg_devices;  // as Declared has them; plugins with others do not serve
};

// Takes the steps for one op on one device. function: NULL for a dry run, which loads, compiles,
// builds and imports nothing. Blocking; any thread.
ChainRecord run_chain(opdock_runtime* runtime, const Wanted& wanted,
                      const opdock_function* function, HookedProgress* progress);

// ---- parts of it

// What the candidate's note says of the op; NULL if it is none of its ops.
const OpClaim* claim_of(const Candidate& candidate, const std::string& op);
// Whether it explains a refusal: notices do not.
bool is_serious(const Reason& reason);
// The reasons that speak against a candidate for what is wanted, without loading it.
std::vector<Reason> reasons_against(const Candidate& candidate, const Wanted& wanted);
// Whether the host part fits this machine and the file carries source for the device.
bool can_compile(const Candidate& candidate, const Wanted& wanted);
// What stands before `reason`'s in a story.
StepReason reason_of(const Candidate& candidate, Reason reason);
StepReason reason_of(const SourcePlugin& source, Reason reason);
// Why nothing may be compiled ("OPDOCK_JIT=never"); empty: it may.
std::string jit_denied(opdock_runtime* runtime);

// The candidate's op, loaded, with its kernels if the device is a GPU. compile: make the image by
// the run-time compiler instead of taking one from the file. NULL and reasons.
Target* load_target(const std::shared_ptr<const Candidate>& candidate, const Wanted& wanted,
                    opdock_runtime* runtime, bool compile, Progress* progress,
                    std::vector<Reason>* reasons);

// The build step: source plugins, from the cache or built now.
void take_build_step(opdock_runtime* runtime, const Wanted& wanted, bool dry,
                     HookedProgress* progress, ChainRecord* record);

// The last step. The steps before are in `record`.
void take_reference_step(opdock_runtime* runtime, const Wanted& wanted,
                         const opdock_function* function, ChainRecord* record);
// Whether the last step might serve: without it, and without plugins, there is no function.
bool has_reference(opdock_runtime* runtime, const Wanted& wanted);

}  // namespace opdock
