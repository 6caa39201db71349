// SPDX-License-Identifier: Apache-2.0
#include "api/resolver.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "api/near_names.h"
#include "call/dtype.h"
#include "call/host.h"
#include "call/kernels.h"
#include "call/parallel.h"
#include "compat/verdict.h"
#include "load/loader.h"
#include "load/mapped.h"

namespace opdock {
namespace {

using CandidatePtr = std::shared_ptr<const Candidate>;

void log_to_runtime(void* runtime, int32_t level, const char* message) {
  static_cast<opdock_runtime*>(runtime)->log(level, message);
}

std::string joined(const std::vector<Reason>& reasons) {
  std::string text;
  for (const Reason& reason : reasons) text += (text.empty() ? "" : "; ") + to_text(reason);
  return text.empty() ? "no reason was recorded" : text;
}

// Reasons that explain a refusal: notices do not.
std::vector<Reason> serious(const std::vector<Reason>& reasons) {
  std::vector<Reason> left;
  for (const Reason& reason : reasons) {
    if (info(reason.code).severity != Severity::kNotice) left.push_back(reason);
  }
  return left;
}

// "plugin 0.1.0 (/path): why".
std::string line(const Candidate& candidate, const std::string& why) {
  std::string text = "\n  ";
  if (candidate.file.note) {
    text += candidate.file.note->name + " " + candidate.file.note->version.text() + " ";
  }
  return text + "(" + candidate.path + "): " + why;
}

std::string op_name(const std::string& name) {
  size_t slash = name.find('/');
  return slash == std::string::npos ? name : name.substr(slash + 1);
}

const OpClaim* claim_of(const Candidate& candidate, const std::string& op) {
  for (const OpClaim& claim : candidate.file.note->ops) {
    if (claim.name == op) return &claim;
  }
  return nullptr;
}

const opdock_op* op_of(const LoadedPlugin& plugin, const OpClaim& claim) {
  for (uint32_t i = 0; i < plugin.descriptor->num_ops; ++i) {
    const opdock_op* op = plugin.descriptor->ops[i];
    if (op != nullptr && op->schema != nullptr && claim.schema == op->schema) return op;
  }
  return nullptr;
}

bool says_may_block(const OpClaim& claim) {
  for (const std::string& flag : claim.flags) {
    if (flag == "may-block" || flag == "host-sync") return true;
  }
  return false;
}

// Why the verdict rules the device out; "" if it does not. What is undecided is tried.
std::string refusal(const Verdict& verdict, opdock_device device) {
  if (verdict.state == State::kRejected) return joined(serious(verdict.reasons));
  bool seen = false;
  for (const DeviceVerdict& one : verdict.devices) {
    if (static_cast<int32_t>(one.backend) != device.type) continue;
    seen = true;
    if (one.index >= 0 && one.index != device.index) continue;
    return one.state == State::kRejected ? joined(serious(one.reasons)) : "";
  }
  if (!seen) return "it is not made for " + to_text(device);
  return to_text(device) + " is not on this machine";
}

// Finds the image for the device as its driver describes it, and interns its kernels.
Kernels* kernels_of(const LoadedPlugin& plugin, opdock_device device, Driver* driver,
                    const opdock_device_facts& facts, const MachineFacts& machine,
                    std::string* problem) {
  struct Registry {
    std::mutex mutex;
    std::map<std::tuple<const LoadedPlugin*, int32_t, int32_t>, std::unique_ptr<Kernels>> all;
  };
  static Registry* registry = new Registry;  // kernels stay until the process ends
  std::lock_guard lock(registry->mutex);
  std::unique_ptr<Kernels>& place = registry->all[{&plugin, device.type, device.index}];
  if (place != nullptr) return place.get();

  std::vector<ImageRow> rows;
  if (!read_mapped_table(plugin.images, &rows, problem)) return nullptr;
  std::erase_if(
      rows, [&](const ImageRow& row) { return static_cast<int32_t>(row.backend) != device.type; });
  if (rows.empty()) {
    place = std::make_unique<Kernels>("the plugin brings no device image for " + to_text(device) +
                                      "; list its kernels under [device] in plugin.toml");
    return place.get();
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
  // The machine's facts may not know which GPU has which number; the driver does.
  Gpu gpu;
  for (const Gpu& known : machine.gpus) {
    if (static_cast<int32_t>(known.backend) == device.type && known.index == device.index) {
      gpu = known;
    }
  }
  gpu.backend = static_cast<Backend>(device.type);
  gpu.index = device.index;
  if (device.type == OPDOCK_CUDA) {
    gpu.major = static_cast<int>(facts.arch_major);
    gpu.minor = static_cast<int>(facts.arch_minor);
    gpu.arch = "sm_" + std::to_string(facts.arch_major) + std::to_string(facts.arch_minor);
  }
  std::vector<Reason> reasons;
  int best = best_image(images, gpu, machine, &reasons);
  if (best < 0) {
    *problem = joined(serious(reasons));
    return nullptr;
  }
  // load() has seen to it that the note lists as many images as the table.
  const ImageRow& row = rows[static_cast<size_t>(best)];
  if (!check_image(row.bytes, plugin.candidate->file.note->images[row.index], &reasons)) {
    *problem = joined(serious(reasons));
    return nullptr;
  }
  place = std::make_unique<Kernels>(driver, device, row);
  return place.get();
}

// The candidate's op on the device, loaded; NULL and why not.
Target* target_of(const CandidatePtr& candidate, const opdock_function& function,
                  opdock_device device, const MachineFacts& machine, std::string* why) {
  const OpClaim& claim = *claim_of(*candidate, function.schema().name);
  if (claim.digest != function.digest()) {
    *why = "its schema is another one, " + claim.schema;
    return nullptr;
  }
  const std::string type(to_text(static_cast<Backend>(device.type)));
  if (std::find(claim.devices.begin(), claim.devices.end(), type) == claim.devices.end()) {
    *why = "its op is not made for " + type;
    return nullptr;
  }
  *why = refusal(candidate->verdict, device);
  if (!why->empty()) return nullptr;

  std::vector<Reason> reasons;
  const LoadedPlugin* plugin = load(candidate, host_table(), &reasons);
  if (plugin == nullptr) {
    *why = joined(serious(reasons));
    return nullptr;
  }
  const opdock_op* op = op_of(*plugin, claim);
  if (op == nullptr || !check_op(op, why)) return nullptr;

  const opdock_device_facts* facts = cpu_facts();
  Driver* driver = nullptr;
  Kernels* kernels = nullptr;
  if (device.type != OPDOCK_CPU) {
    driver = driver_for(static_cast<Backend>(device.type), why);
    if (driver == nullptr) return nullptr;
    DriverStatus asked = driver->facts(device.index, &facts);
    if (!asked.ok()) {
      *why = asked.text;
      return nullptr;
    }
    kernels = kernels_of(*plugin, device, driver, *facts, machine, why);
    if (kernels == nullptr) return nullptr;
  }
  std::vector<opdock_dtype> dtypes;
  for (const std::string& name : claim.dtypes) {
    std::optional<opdock_dtype> dtype = parse_dtype(name);
    if (!dtype) {
      *why = "its note names a dtype that this host does not know, " + name;
      return nullptr;
    }
    dtypes.push_back(*dtype);
  }
  return intern_target(op, plugin->descriptor->name, device, facts, driver, kernels, dtypes);
}

}  // namespace

FunctionTable::FunctionTable(opdock_runtime* runtime) : runtime_(runtime) {
  add_log_sink(log_to_runtime, runtime);
  if (runtime->num_threads() != 0) set_parallel_threads(runtime->num_threads());
}

FunctionTable::~FunctionTable() {
  remove_log_sink(runtime_);
}

opdock_status FunctionTable::get(const std::string& name, opdock_function** out,
                                 std::string* problem) {
  std::lock_guard lock(mutex_);
  auto known = functions_.find(name);
  if (known != functions_.end()) {
    *out = known->second.get();
    return OPDOCK_OK;
  }
  std::vector<CandidatePtr> providers = runtime_->catalog()->providers(name);
  if (providers.empty()) {
    const std::vector<std::string> known = known_ops(*runtime_->catalog());
    *problem = "found no plugin that provides \"" + name + "\", wanted one in the search path; ";
    std::string near;
    for (const std::string& one : near_names(name, known)) {
      near += (near.empty() ? "did you mean " : " or ") + one;
    }
    if (!near.empty()) *problem += near + "? ";
    *problem += known.empty()
                    ? "no plugin was found at all: `opdock doctor` shows where they are searched"
                    : "`opdock list` shows what there is, OPDOCK_PLUGIN_PATH says where to look";
    return OPDOCK_NOT_FOUND;
  }
  const CandidatePtr& best = providers.front();
  if (best->verdict.state == State::kRejected) {
    *problem = "\"" + name + "\": found only plugins that cannot be used here:";
    for (const CandidatePtr& one : providers) {
      *problem += line(*one, joined(serious(one->verdict.reasons)));
    }
    return OPDOCK_INCOMPATIBLE;
  }
  Reason error;
  std::optional<Schema> schema = parse_schema(claim_of(*best, op_name(name))->schema, &error);
  if (!schema) {
    *problem = "\"" + name + "\":" + line(*best, to_text(error));
    return OPDOCK_INCOMPATIBLE;
  }
  auto function = std::make_unique<opdock_function>(name, *std::move(schema), this);
  for (const CandidatePtr& one : providers) {
    function->may_block = function->may_block || says_may_block(*claim_of(*one, op_name(name)));
  }
  *out = (functions_[name] = std::move(function)).get();
  return OPDOCK_OK;
}

Target* FunctionTable::resolve(const opdock_function& function, opdock_device device,
                               opdock_status* status, std::string* problem) {
  *status = OPDOCK_INCOMPATIBLE;
  *problem = "found nothing that runs on " + to_text(device) + ", wanted a plugin for it:";
  std::shared_ptr<const MachineFacts> machine = runtime_->machine();
  for (const CandidatePtr& candidate : runtime_->catalog()->providers(function.name())) {
    std::string why;
    Target* target = target_of(candidate, function, device, *machine, &why);
    if (target != nullptr) return target;
    *problem += line(*candidate, why);
  }
  *problem +=
      "\nmove the arguments to a device that a plugin serves, or add a plugin; `opdock explain " +
      function.schema().name + "` says more";
  return nullptr;
}

std::string FunctionTable::doc(const opdock_function& function) {
  for (const CandidatePtr& candidate : runtime_->catalog()->providers(function.name())) {
    const OpClaim& claim = *claim_of(*candidate, function.schema().name);
    if (candidate->verdict.state == State::kRejected || claim.digest != function.digest()) continue;
    std::vector<Reason> reasons;
    const LoadedPlugin* plugin = load(candidate, host_table(), &reasons);
    const opdock_op* op = plugin == nullptr ? nullptr : op_of(*plugin, claim);
    if (op != nullptr && op->doc != nullptr) return op->doc;
  }
  return "";
}

}  // namespace opdock
