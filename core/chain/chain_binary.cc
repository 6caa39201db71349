// The chain's first two steps: whether a binary plugin can serve an op on a device.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>

#include "base/texts.h"
#include "chain/chain.h"
#include "chain/declared.h"
#include "compat/verdict.h"
#include "schema/dtype.h"

namespace opdock {
namespace {

void add_serious(const std::vector<Reason>& from, std::vector<Reason>* to) {
  std::copy_if(from.begin(), from.end(), std::back_inserter(*to), is_serious);
}

bool same_reason(const Reason& a, const Reason& b) {
  return a.code == b.code && a.found == b.found && a.wanted == b.wanted;
}

// Returns the reasons against the file as a whole, without the devices' reasons, which a verdict
// repeats among its own.
std::vector<Reason> reasons_against_file(const Verdict& verdict) {
  std::vector<Reason> left;
  for (const Reason& reason : verdict.reasons) {
    if (info(reason.code).severity != Severity::kReject) continue;
    const bool is_devices =
        std::any_of(verdict.devices.begin(), verdict.devices.end(), [&](const auto& device) {
          return std::any_of(device.reasons.begin(), device.reasons.end(),
                             [&](const Reason& other) { return same_reason(reason, other); });
        });
    if (!is_devices) left.push_back(reason);
  }
  return left;
}

const DeviceVerdict* verdict_for(const Verdict& verdict, opdock_device device) {
  for (const DeviceVerdict& one : verdict.devices) {
    if (static_cast<int32_t>(one.backend) != device.type) continue;
    if (one.index < 0 || one.index == device.index) return &one;
  }
  return nullptr;
}

// Returns the reasons that hold regardless of the file's images.
std::vector<Reason> reasons_against_host_part(const Candidate& candidate,
                                              const ChainRequest& wanted) {
  std::vector<Reason> reasons = reasons_against_file(candidate.verdict);
  if (const DeviceVerdict* device = verdict_for(candidate.verdict, wanted.device)) {
    std::copy_if(device->reasons.begin(), device->reasons.end(), std::back_inserter(reasons),
                 [](const Reason& reason) { return reason.code == Code::kArchBelowLeast; });
  }
  const OpClaim& claim = *claim_of(candidate, wanted.op);
  if (claim.digest != wanted.digest) {
    reasons.push_back(make_reason(Code::kSchemaDiffers, claim.schema, wanted.schema));
  }
  const std::optional<Schema> schema = parse_schema(claim.schema, nullptr);
  if (schema && arg_devices_of(claim, *schema) != wanted.arg_devices) {
    reasons.push_back(make_reason(Code::kSchemaDiffers, claim.schema + " with other \"elsewhere\"",
                                  "arguments on the same devices as the plugin before it takes"));
  }
  const std::string type(to_text(static_cast<Backend>(wanted.device.type)));
  if (std::find(claim.devices.begin(), claim.devices.end(), type) == claim.devices.end()) {
    reasons.push_back(
        make_reason(Code::kDeviceNotServed, "an op for " + join(claim.devices), type));
  }
  return reasons;
}

}  // namespace

const OpClaim* claim_of(const Candidate& candidate, const std::string& op) {
  for (const OpClaim& claim : candidate.file.note->ops) {
    if (claim.name == op) return &claim;
  }
  return nullptr;
}

bool is_serious(const Reason& reason) {
  return info(reason.code).severity != Severity::kNotice;
}

StepReason reason_of(const Candidate& candidate, Reason reason) {
  std::string plugin;
  if (candidate.file.note) {
    plugin = candidate.file.note->name + " " + candidate.file.note->version.text();
  }
  return {plugin, candidate.path, std::move(reason)};
}

std::vector<Reason> reasons_against(const Candidate& candidate, const ChainRequest& wanted) {
  std::vector<Reason> reasons = reasons_against_host_part(candidate, wanted);
  if (!reasons.empty()) return reasons;
  const DeviceVerdict* device = verdict_for(candidate.verdict, wanted.device);
  if (device == nullptr) {
    return {make_reason(Code::kNoGpu, to_text(wanted.device) + ", which is not on this machine",
                        "a device that is")};
  }
  // An undecided device is tried.
  if (device->state == State::kRejected) add_serious(device->reasons, &reasons);
  return reasons;
}

bool can_compile(const Candidate& candidate, const ChainRequest& wanted) {
  if (wanted.device.type == OPDOCK_CPU) return false;
  const std::vector<DeviceImage>& images = candidate.file.images;
  return std::any_of(images.begin(), images.end(),
                     [](const DeviceImage& image) {
                       return image.kind == ImageKind::kSource && image.from_table;
                     }) &&
         reasons_against_host_part(candidate, wanted).empty();
}

}  // namespace opdock
