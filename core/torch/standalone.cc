// Registers the ops of all usable plugins when the library is loaded into a program without Python,
// so that a program needs to do no more than link or open it. In a Python process the package
// registers them (python/opdock/torch), as it knows more: fake kernels, gradients, transforms.
// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include <cstdio>
#include <exception>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include "operator.h"
#include "register.h"
#include "schema.h"
#include "shim.h"
#include "state.h"

namespace opdock::torch {

namespace {

constexpr uint32_t kReasonSize = 1024;

bool is_in_python() {
  using IsInitialized = int();
  auto* const is_initialized =
      reinterpret_cast<IsInitialized*>(dlsym(RTLD_DEFAULT, "Py_IsInitialized"));
  return is_initialized != nullptr && is_initialized() != 0;
}

void warn(const std::string& text) {
  std::fprintf(stderr, "opdock: %s\n", text.c_str());
}

// Returns the names of the ops of plugins that are usable here or can be built here.
std::set<std::string> op_names(opdock_runtime* runtime) {
  char* text = nullptr;
  char error[kReasonSize] = "";
  if (opdock_list_json(runtime, 0, &text, error, kReasonSize) != OPDOCK_OK) {
    warn(error);
    return {};
  }
  const nlohmann::json found = nlohmann::json::parse(text, nullptr, false);
  opdock_free(text);
  std::set<std::string> names;
  if (found.is_discarded()) return names;
  for (const nlohmann::json& plugin : found["plugins"]) {
    if (!plugin.value("usable", false) && plugin.value("verdict", "") != "buildable") continue;
    for (const nlohmann::json& op : plugin.value("ops", nlohmann::json::array()))
      names.insert(op.is_string() ? op.get<std::string>() : op.value("name", ""));
  }
  return names;
}

// The functions of torch 2.12 and newer that define an operator with tags.
struct Tags {
  int32_t (*define)(TorchLibraryHandle library, const char* schema, const int32_t* tags,
                    int32_t num_tags) = nullptr;
  int32_t (*cudagraph_unsafe)() = nullptr;
  int32_t (*nondeterministic_seeded)() = nullptr;

  Tags() {
    void* const library = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr) return;
    const auto find = [library](const char* name, auto* out) {
      *out = reinterpret_cast<std::remove_reference_t<decltype(*out)>>(dlsym(library, name));
    };
    find("torch_library_def_with_tags", &define);
    find("torch_tag_cudagraph_unsafe", &cudagraph_unsafe);
    find("torch_tag_nondeterministic_seeded", &nondeterministic_seeded);
  }
};

bool define(TorchLibraryHandle library, const Operator& op, const std::string& text) {
  static const Tags known;
  const uint32_t flags = op.info->flags;
  const bool is_safe = (flags & OPDOCK_OP_CAPTURE_SAFE) != 0 &&
                       (flags & (OPDOCK_OP_HOST_SYNC | OPDOCK_OP_MAY_BLOCK)) == 0;
  std::vector<int32_t> tags;
  if (!is_safe && known.cudagraph_unsafe != nullptr) tags.push_back(known.cudagraph_unsafe());
  if (op.is_random && known.nondeterministic_seeded != nullptr)
    tags.push_back(known.nondeterministic_seeded());
  if (tags.empty() || known.define == nullptr)
    return aoti_torch_library_def(library, text.c_str()) == 0;
  return known.define(library, text.c_str(), tags.data(), static_cast<int32_t>(tags.size())) == 0;
}

void register_all() {
  const std::string problem = check_version();
  if (!problem.empty()) return warn(problem);
  opdock_runtime* runtime = nullptr;  // lives as long as the process, as the operators do
  char error[kReasonSize] = "";
  if (opdock_runtime_create(nullptr, &runtime, error, kReasonSize) != OPDOCK_OK) return warn(error);
  TorchLibraryHandle library = nullptr;
  if (aoti_torch_library_init_fragment("opdock", __FILE__, __LINE__, &library) != 0)
    return warn("found that torch takes no operators of the namespace opdock");
  for (const std::string& name : op_names(runtime)) {
    opdock_function* function = nullptr;
    Operator op;
    if (opdock_get_function(runtime, name.c_str(), &function, error, kReasonSize) != OPDOCK_OK ||
        !describe(function, name, &op).empty())
      continue;
    const std::string text = schema(op);
    if (text.empty() || !define(library, op, text)) continue;
    const std::string why = implement(function, name, Gradients::kRefused, false);
    if (!why.empty()) warn(why);
  }
}

[[gnu::constructor]] void register_at_load() {
  if (is_in_python()) return;
  try {
    register_all();
  } catch (const std::exception& problem) {
    warn(std::string("libopdock_torch: found ") + problem.what() +
         " while the operators were registered, wanted all ops of all usable plugins");
  }
}

}  // namespace

}  // namespace opdock::torch
