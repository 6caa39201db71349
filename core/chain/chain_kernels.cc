// Loads a binary plugin's op with its kernels on a device.
// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <tuple>

#include "base/mutex.h"
#include "base/sha256.h"
#include "call/host.h"
#include "call/kernels.h"
#include "chain/chain.h"
#include "chain/compile_context.h"
#include "chain/declared.h"
#include "chain/formula_functions.h"
#include "compat/verdict.h"
#include "jit/plugin_source.h"
#include "load/loader.h"
#include "load/mapped.h"
#include "schema/dtype.h"
#include "tune/device_text.h"
#include "tune/stored.h"

namespace opdock {
namespace {

const opdock_op* op_of(const LoadedPlugin& plugin, const OpClaim& claim) {
  for (uint32_t i = 0; i < plugin.descriptor->num_ops; ++i) {
    const opdock_op* op = plugin.descriptor->ops[i];
    if (op != nullptr && op->schema != nullptr && claim.schema == op->schema) return op;
  }
  return nullptr;
}

// Describes the GPU as its driver does, which knows what the machine's facts may not: which GPU has
// which number, and whether this process has XNACK. Returns false and a reason if the driver does
// not answer or the plugin is not for such a GPU.
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

// The kernels of each plugin on each device: those of an image in the plugin, and those compiled
// from its source. They stay until the process ends. They are made without a lock: if two threads
// make the same kernels at once, the first result is kept.
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

// Gives the kernels the numbers by which the plugin asks for them.
std::unique_ptr<Kernels> numbered(const LoadedPlugin& plugin, std::unique_ptr<Kernels> kernels) {
  if (OPDOCK_HAS(plugin.descriptor, opdock_plugin, num_kernels)) {
    kernels->number(plugin.descriptor->kernels, plugin.descriptor->num_kernels);
  }
  return kernels;
}

bool read_images(const LoadedPlugin& plugin, std::vector<ImageRow>* rows,
                 std::vector<Reason>* reasons) {
  std::string problem;
  if (read_mapped_table(plugin.images, rows, &problem)) return true;
  reasons->push_back(make_reason(Code::kImageTable, problem, "a sound image table"));
  return false;
}

// Finds the image for the device as its driver describes it, and interns its kernels.
Kernels* kernels_of(const LoadedPlugin& plugin, opdock_device device, Driver* driver,
                    const MachineFacts& machine, std::vector<Reason>* reasons) {
  const KernelRegistry::Key key = KernelRegistry::key(plugin, device, Origin::kImage);
  if (Kernels* const known = kernel_registry.find(key)) return known;

  std::vector<ImageRow> rows;
  if (!read_images(plugin, &rows, reasons)) return nullptr;
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
  // load() has checked that the note lists as many images as the table.
  const ImageRow& row = rows[static_cast<size_t>(best)];
  if (!check_image(row.bytes, plugin.candidate->file.note->images[row.index], reasons)) {
    return nullptr;
  }
  return kernel_registry.keep(key,
                              numbered(plugin, std::make_unique<Kernels>(driver, device, row)));
}

// Returns the kernels compiled for exactly this GPU from the source that the plugin carries.
Kernels* compiled_kernels(const LoadedPlugin& plugin, const ChainRequest& wanted, Driver* driver,
                          opdock_runtime* runtime, Progress* progress,
                          std::vector<Reason>* reasons) {
  const KernelRegistry::Key key = KernelRegistry::key(plugin, wanted.device, Origin::kSource);
  if (Kernels* const known = kernel_registry.find(key))
    return is_given_up(known, reasons) ? nullptr : known;
  std::vector<ImageRow> rows;
  if (!read_images(plugin, &rows, reasons)) return nullptr;
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

// Returns the tuning choices for the plugin's ops on the device: those measured earlier, or none.
// Problems with the cache itself are reported elsewhere, where they matter more.
Tuning* tuning_of(const LoadedPlugin& plugin, opdock_device device,
                  const opdock_device_facts& facts, Driver* driver, opdock_runtime* runtime,
                  std::vector<Reason>* reasons) {
  const Note& note = *plugin.candidate->file.note;
  TuningScope scope{note.name, note.version.text(), to_hex(note.head.build_hash),
                    device_text(driver, device, facts, *runtime->machine())};
  if (scope.device.empty()) return nullptr;
  if (Tuning* const known = find_tuning(scope)) return known;  // read once, for all of its ops
  std::vector<Reason> of_cache, of_entry;
  const std::vector<TunedResult> known = read_tuned(runtime->cache(&of_cache), scope, &of_entry);
  for (const Reason& reason : of_entry) {
    runtime->log(2, ("measured choices are not used: " + to_text(reason)).c_str());
  }
  reasons->insert(reasons->end(), of_entry.begin(), of_entry.end());
  return intern_tuning(scope, choices_of(known));
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

const char* formula_of(const opdock_op& op) {
  return OPDOCK_HAS(&op, opdock_op, formula) ? op.formula : nullptr;
}

}  // namespace

Target* load_target(const std::shared_ptr<const Candidate>& candidate, const ChainRequest& wanted,
                    opdock_runtime* runtime, bool compile, Progress* progress,
                    std::vector<Reason>* reasons) {
  if (runtime->is_described()) {
    reasons->push_back(make_reason(
        Code::kRequestFailed, "a runtime for a machine that is described", "one for this machine"));
    return nullptr;
  }
  std::shared_ptr<const Candidate> fit = candidate;
  if (candidate->verdict.state == State::kRejected) {
    // The file lacks only an image, which is about to be compiled.
    std::shared_ptr<Candidate> copy = std::make_shared<Candidate>(*candidate);
    copy->verdict.state = State::kUndecided;
    fit = std::move(copy);
  }
  const LoadedPlugin* plugin = load(fit, host_table(), reasons);
  if (plugin == nullptr) return nullptr;
  const OpClaim& claim = *claim_of(*candidate, wanted.op);
  const opdock_op* op = op_of(*plugin, claim);
  if (op == nullptr) {
    reasons->push_back(
        make_reason(Code::kDescriptorInvalid, "no op of that schema", "an op that can be called"));
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
  if (const char* formula = formula_of(*op)) {
    Status made = formula_op(op, formula, &op);
    if (!made.ok()) {
      reasons->push_back(make_reason(Code::kDescriptorInvalid, made.text, "a formula of the op"));
      return nullptr;
    }
  }
  std::unique_ptr<const TensorRules> tensor_rules;
  if (!read_tensor_rules(*op, declared->rules, &tensor_rules, &error)) {
    reasons->push_back(error);
    return nullptr;
  }
  Tuning* const tuning = tuning_of(*plugin, wanted.device, *facts, driver, runtime, reasons);
  return intern_target(op, plugin->descriptor->name, wanted.device, facts, driver, kernels, dtypes,
                       std::move(declared->rules), tuning, std::move(tensor_rules));
}

}  // namespace opdock
