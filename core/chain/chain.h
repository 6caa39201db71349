// The chain that finds code for an op: a binary plugin, a run-time compiled device part, a build
// from source, the reference. Steps are tried in this order until one serves, and each records its
// reasons. docs/concepts/build-on-demand.md describes the chain for users.
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

// A reason and the plugin that it is about.
struct StepReason {
  std::string plugin;  // "softmax 0.1.0"; empty: about no particular plugin
  std::string path;    // of the plugin's file or folder
  Reason reason;
};

struct ChainStep {
  enum class Kind { kBinary, kJit, kBuild, kReference };
  enum class Outcome { kUsed, kFailed, kSkipped, kNotNeeded };
  Kind kind;
  Outcome outcome = Outcome::kNotNeeded;
  std::string text;                  // for people: what was done, or why nothing was
  std::vector<StepReason> reasons;   // why each plugin that was tried does not serve
  std::vector<std::string> changed;  // what differs from the builds in the cache
};
std::string_view to_text(ChainStep::Kind kind);        // "binary", "jit", "build", "reference"
std::string_view to_text(ChainStep::Outcome outcome);  // "used", "failed", "skipped", "not-needed"

// How an op was resolved on a device or, with `dry`, how it would be.
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

// The op and the device that the chain looks for.
struct ChainRequest {
  std::string name;  // the name as the caller gave it: "op" or "plugin/op"
  std::string op;
  std::string schema;
  std::string digest;  // the schema's; plugins with another digest do not serve
  opdock_device device{};
  std::vector<uint8_t> arg_devices;  // as in Declared; plugins with others do not serve
};

// Takes the steps for one op on one device. function: NULL for a dry run, which loads, compiles,
// builds and imports nothing. Blocking; any thread.
ChainRecord run_chain(opdock_runtime* runtime, const ChainRequest& wanted,
                      const opdock_function* function, HookedProgress* progress);

// ---- parts of the chain

// Returns what the candidate's note declares of the op, or NULL if the op is not in the note.
const OpClaim* claim_of(const Candidate& candidate, const std::string& op);
// Returns whether the reason explains a refusal; a notice does not.
bool is_serious(const Reason& reason);
// Returns the reasons against a candidate for what is wanted, without loading it.
std::vector<Reason> reasons_against(const Candidate& candidate, const ChainRequest& wanted);
// Returns whether the host part fits this machine and the file carries source for the device.
bool can_compile(const Candidate& candidate, const ChainRequest& wanted);
// Adds to `reason` the plugin's name and path, which precede it in a story.
StepReason reason_of(const Candidate& candidate, Reason reason);
StepReason reason_of(const SourcePlugin& source, Reason reason);
// Returns why run-time compilation is not allowed ("OPDOCK_JIT=never"); empty if it is.
std::string jit_denied(opdock_runtime* runtime);

// Loads the candidate and returns its op, with its kernels if the device is a GPU. compile: compile
// the image at run time instead of taking one from the file. Returns NULL and reasons on failure.
Target* load_target(const std::shared_ptr<const Candidate>& candidate, const ChainRequest& wanted,
                    opdock_runtime* runtime, bool compile, Progress* progress,
                    std::vector<Reason>* reasons);

// Takes the build step: source plugins, from the cache or built now.
void take_build_step(opdock_runtime* runtime, const ChainRequest& wanted, bool dry,
                     HookedProgress* progress, ChainRecord* record);

// Takes the last step, the reference. The earlier steps are in `record`.
void take_reference_step(opdock_runtime* runtime, const ChainRequest& wanted,
                         const opdock_function* function, ChainRecord* record);
// Returns whether the last step might serve. If it cannot, and no plugin serves, there is no
// function.
bool has_reference(opdock_runtime* runtime, const ChainRequest& wanted);

}  // namespace opdock
