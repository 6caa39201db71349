// The chain's first two steps: what a binary plugin needs to serve an op on a device.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <tuple>

#include "base/mutex.h"
#include "base/texts.h"
#include "call/host.h"
#include "call/kernels.h"
#include "chain/chain.h"
#include "chain/compile_context.h"
#include "chain/declared.h"
#include "compat/verdict.h"
#include "jit/packed.h"
#include "load/loader.h"
#include "load/mapped.h"
#include "schema/dtype.h"

namespace opdock {
namespace {

using CandidatePtr = std::shared_ptr<const Candidate>;

const opdock_op* op_of(const LoadedPlugin& plugin, const OpClaim& claim) {
  for (uint32_t i = 0; i < plugin.descriptor->num_ops; ++i) {
    const opdock_op* op = plugin.descriptor->ops[i];
    if (op != nullptr && op->schema != nullptr && claim.schema == op->schema) return op;
  }
  return nullptr;
}

void add_serious(const std::vector<Reason>& from, std::vector<Reason>* to) {
  std::copy_if(from.begin(), from.end(), std::back_inserter(*to), is_serious);
}

bool same_reason(const Reason& a, const Reason& b) {
  return a.code == b.code && a.found == b.found && a.wanted == b.wanted;
}

// Against the file as a whole: a verdict repeats the devices' reasons among its own.
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

// Reasons that hold whatever images the file has.
std::vector<Reason> reasons_against_host_part(const Candidate& candidate, const Wanted& wanted) {
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

// As its driver describes it, which knows what the machine's facts may not: which GPU has which
// number, and whether this process has XNACK. False and a reason if the driver does not answer, or
// the plugin is not for such a GPU.
bool describe_gpu(const LoadedPlugin& plugin, Driver* driver, opdock_device device,
                  const MachineFacts& machine, Gpu* gpu, std::vector<Reason>* reasons) {
  for (const Gpu& known : machine.gpus) {
    if (static_cast<int32_t>(known.backend) == device.type && known.index == device.index) {
      *gpu = known;
    }
  }
  gpu->backend = static_cast<Backend>(device.type);
  gpu->index = device.index;
  const opdock_device_facts* facts = nullptr;
  Status asked = driver->facts(device.index, &facts);
  if (asked.ok()) asked = driver->arch(device.index, &gpu->arch);
  if (!asked.ok()) {
    reasons->push_back(make_reason(Code::kDriverFailed, asked.text, "a device that answers"));
    return false;
  }
  gpu->major = static_cast<int>(facts->arch_major);
  gpu->minor = static_cast<int>(facts->arch_minor);
  std::optional<Reason> below = judge_least(plugin.candidate->file.note->least_cuda, *gpu);
  if (below) reasons->push_back(*std::move(below));
  return !below;
}

// The kernels of each plugin on each device: those of an image that it brings, and those that are
// compiled from its source. They stay until the process ends. They are made without a lock: of two
// that are made at once, the first counts.
class KernelRegistry {
 public:
  enum class Origin { kImage, kSource };
  using Key = std::tuple<const LoadedPlugin*, int32_t, int32_t, Origin>;

  static Key key(const LoadedPlugin& plugin, opdock_device device, Origin origin) {
    return {&plugin, device.type, device.index, origin};
  }

  Kernels* find(const Key& key) {
    const std::lock_guard lock(mutex_);
    const auto known = all_.find(key);
    return known == all_.end() ? nullptr : known->second.get();
  }
  Kernels* keep(const Key& key, std::unique_ptr<Kernels> made) {
    const std::lock_guard lock(mutex_);
    return all_.try_emplace(key, std::move(made)).first->second.get();
  }

 private:
  Mutex mutex_;
  std::map<Key, std::unique_ptr<Kernels>> all_;
};
KernelRegistry& kernel_registry = *new KernelRegistry;
using Origin = KernelRegistry::Origin;

// With the numbers by which the plugin asks for them.
std::unique_ptr<Kernels> numbered(const LoadedPlugin& plugin, std::unique_ptr<Kernels> kernels) {
  if (OPDOCK_HAS(plugin.descriptor, opdock_plugin, num_kernels)) {
    kernels->number(plugin.descriptor->kernels, plugin.descriptor->num_kernels);
  }
  return kernels;
}

// Finds the image for the device as its driver describes it, and interns its kernels.
Kernels* kernels_of(const LoadedPlugin& plugin, opdock_device device, Driver* driver,
                    const MachineFacts& machine, std::vector<Reason>* reasons) {
  const KernelRegistry::Key key = KernelRegistry::key(plugin, device, Origin::kImage);
  if (Kernels* const known = kernel_registry.find(key)) return known;

  std::vector<ImageRow> rows;
  std::string problem;
  if (!read_mapped_table(plugin.images, &rows, &problem)) {
    reasons->push_back(make_reason(Code::kImageTable, problem, "a sound image table"));
    return nullptr;
  }
  std::erase_if(rows, [&](const ImageRow& row) {
    return row.kind != ImageKind::kSource && static_cast<int32_t>(row.backend) != device.type;
  });
  if (rows.empty()) {
    return kernel_registry.keep(
        key, std::make_unique<Kernels>("the plugin brings no device image for " + to_text(device) +
                                       "; list its kernels under [device] in plugin.toml"));
  }
  std::vector<DeviceImage> images;
  for (const ImageRow& row : rows) {
    DeviceImage image;
    image.backend = row.backend;
    image.kind = row.kind;
    image.arch = row.arch;
    image.toolkit = row.toolkit;
    image.from_table = true;
    image.size = row.bytes.size();
    images.push_back(std::move(image));
  }
  Gpu gpu{};
  if (!describe_gpu(plugin, driver, device, machine, &gpu, reasons)) return nullptr;
  int best = best_image(images, gpu, machine, reasons);
  if (best < 0) return nullptr;
  // load() has seen to it that the note lists as many images as the table.
  const ImageRow& row = rows[static_cast<size_t>(best)];
  if (!check_image(row.bytes, plugin.candidate->file.note->images[row.index], reasons)) {
    return nullptr;
  }
  return kernel_registry.keep(key,
                              numbered(plugin, std::make_unique<Kernels>(driver, device, row)));
}

// The same from the source that the plugin carries, compiled for exactly this GPU.
Kernels* compiled_kernels(const LoadedPlugin& plugin, const Wanted& wanted, Driver* driver,
                          opdock_runtime* runtime, Progress* progress,
                          std::vector<Reason>* reasons) {
  const KernelRegistry::Key key = KernelRegistry::key(plugin, wanted.device, Origin::kSource);
  if (Kernels* const known = kernel_registry.find(key))
    return is_given_up(known, reasons) ? nullptr : known;
  std::vector<ImageRow> rows;
  std::string problem;
  if (!read_mapped_table(plugin.images, &rows, &problem)) {
    reasons->push_back(make_reason(Code::kImageTable, problem, "a sound image table"));
    return nullptr;
  }
  const Note& note = *plugin.candidate->file.note;
  for (const ImageRow& row : rows) {
    if (row.kind != ImageKind::kSource) continue;
    if (!check_image(row.bytes, note.images[row.index], reasons)) return nullptr;
  }
  const std::shared_ptr<const MachineFacts> machine = runtime->machine();
  Gpu gpu{};
  if (!describe_gpu(plugin, driver, wanted.device, *machine, &gpu, reasons)) return nullptr;
  const JitContext context = jit_context(runtime, progress, reasons);
  std::unique_ptr<Kernels> made = jit_kernels(note.name + " " + note.version.text(), rows, driver,
                                              wanted.device, gpu, context, reasons);
  if (made == nullptr) return nullptr;
  return kernel_registry.keep(key, numbered(plugin, std::move(made)));
}

std::vector<opdock_dtype> dtypes_of(const OpClaim& claim, std::vector<Reason>* reasons) {
  std::vector<opdock_dtype> dtypes;
  for (const std::string& name : claim.dtypes) {
    std::optional<opdock_dtype> dtype = parse_dtype(name);
    if (dtype) {
      dtypes.push_back(*dtype);
    } else {
      reasons->push_back(
          make_reason(Code::kNoteField, "the dtype " + name, "dtypes that this host knows"));
    }
  }
  return dtypes;
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

std::vector<Reason> reasons_against(const Candidate& candidate, const Wanted& wanted) {
  std::vector<Reason> reasons = reasons_against_host_part(candidate, wanted);
  if (!reasons.empty()) return reasons;
  const DeviceVerdict* device = verdict_for(candidate.verdict, wanted.device);
  if (device == nullptr) {
    return {make_reason(Code::kNoGpu, to_text(wanted.device) + ", which is not on this machine",
                        "a device that is")};
  }
  // What is undecided is tried.
  if (device->state == State::kRejected) add_serious(device->reasons, &reasons);
  return reasons;
}

bool can_compile(const Candidate& candidate, const Wanted& wanted) {
  if (wanted.device.type == OPDOCK_CPU) return false;
  const std::vector<DeviceImage>& images = candidate.file.images;
  return std::any_of(images.begin(), images.end(),
                     [](const DeviceImage& image) {
                       return image.kind == ImageKind::kSource && image.from_table;
                     }) &&
         reasons_against_host_part(candidate, wanted).empty();
}

Target* load_target(const CandidatePtr& candidate, const Wanted& wanted, opdock_runtime* runtime,
                    bool compile, Progress* progress, std::vector<Reason>* reasons) {
  CandidatePtr fit = candidate;
  if (candidate->verdict.state == State::kRejected) {
    // Only for want of an image, which is about to be made.
    std::shared_ptr<Candidate> copy = std::make_shared<Candidate>(*candidate);
    copy->verdict.state = State::kUndecided;
    fit = std::move(copy);
  }
  const LoadedPlugin* plugin = load(fit, host_table(), reasons);
  if (plugin == nullptr) return nullptr;
  const OpClaim& claim = *claim_of(*candidate, wanted.op);
  const opdock_op* op = op_of(*plugin, claim);
  std::string problem = "no op of that schema";
  if (op == nullptr || !check_op(op, &problem)) {
    reasons->push_back(make_reason(Code::kDescriptorInvalid, problem, "an op that can be called"));
    return nullptr;
  }
  Reason error{};
  std::optional<Declared> declared = declared_of(claim, candidate->file.note->ops, &error);
  if (!declared) {
    reasons->push_back(error);
    return nullptr;
  }
  const opdock_device_facts* facts = cpu_facts();
  Driver* driver = nullptr;
  Kernels* kernels = nullptr;
  if (wanted.device.type != OPDOCK_CPU) {
    const Status opened = driver_for(static_cast<Backend>(wanted.device.type), &driver);
    if (!opened.ok()) {
      reasons->push_back(make_reason(Code::kDriverFailed, opened.text, "a driver"));
      return nullptr;
    }
    const Status asked = driver->facts(wanted.device.index, &facts);
    if (!asked.ok()) {
      reasons->push_back(make_reason(Code::kDriverFailed, asked.text, "a device that answers"));
      return nullptr;
    }
    const std::shared_ptr<const MachineFacts> machine = runtime->machine();
    kernels = compile ? compiled_kernels(*plugin, wanted, driver, runtime, progress, reasons)
                      : kernels_of(*plugin, wanted.device, driver, *machine, reasons);
    if (kernels == nullptr) return nullptr;
  }
  const size_t before = reasons->size();
  const std::vector<opdock_dtype> dtypes = dtypes_of(claim, reasons);
  if (reasons->size() != before) return nullptr;
  return intern_target(op, plugin->descriptor->name, wanted.device, facts, driver, kernels, dtypes,
                       std::move(declared->rules));
}

}  // namespace opdock
