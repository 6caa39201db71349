// The functions of compile.h that compile a program and return its kernels and image.
// SPDX-License-Identifier: Apache-2.0
#include "opdock/compile.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/mutex.h"
#include "chain/module.h"
#include "facts/arch.h"
#include "jit/nvrtc_files.h"
#include "jit/plugin_source.h"
#include "jit/request.h"
#include "jit/vocabulary.h"
#include "report/report.h"
#include "schema/dtype.h"

namespace opdock {
namespace {

bool uses_vocabulary(const CompileRequest& request) {
  if (request.program.find("opdock/") != request.program.npos) return true;
  return std::any_of(request.headers.begin(), request.headers.end(), [](const SourceText& header) {
    return header.text.view().find("opdock/") != std::string_view::npos;
  });
}

// Fails if a required member is NULL.
Status read_options(const opdock_compile_options& given, CompileRequest* out) {
  if (given.source == nullptr) return null_argument("options.source");
  out->program = given.source;
  out->program_name = given.name != nullptr && *given.name != '\0' ? given.name : "program.cu";
  out->name = out->program_name;
  const auto missing = [&](const char* what, uint32_t index) {
    return Status{OPDOCK_INVALID_ARGUMENT, std::string("options.") + what + "[" +
                                               std::to_string(index) +
                                               "]: found NULL, wanted a text"};
  };
  for (uint32_t i = 0; i < given.num_headers; ++i) {
    const opdock_header* header = given.headers == nullptr ? nullptr : &given.headers[i];
    if (header == nullptr || header->name == nullptr || header->text == nullptr) {
      return missing("headers", i);
    }
    out->headers.push_back({header->name, header->text});
  }
  for (uint32_t i = 0; i < given.num_options; ++i) {
    if (given.options == nullptr || given.options[i] == nullptr) return missing("options", i);
    out->options.push_back(given.options[i]);
  }
  for (uint32_t i = 0; i < given.num_kernels; ++i) {
    if (given.kernels == nullptr || given.kernels[i] == nullptr) return missing("kernels", i);
    out->kernels.push_back(given.kernels[i]);
  }
  if (!uses_vocabulary(*out)) return {};
  for (const SourceText& header : vocabulary()) {
    const bool own = std::any_of(out->headers.begin(), out->headers.end(),
                                 [&](const SourceText& one) { return one.name == header.name; });
    if (!own) out->headers.push_back(header);
  }
  return {};
}

// Refuses a hook that runs during the module's compilation and asks for the same module.
Status refuse_within(const opdock_module& module) {
  last_compile_reasons().assign(1, deadlock_reason(module.request.name + " to be compiled"));
  return {OPDOCK_INVALID_ARGUMENT,
          module.request.name + ": " + to_text(last_compile_reasons().front())};
}

// Chooses the backend, the driver and the architecture.
Status choose_target(const opdock_compile_options& given, opdock_module* module) {
  CompileRequest& request = module->request;
  if (given.arch != nullptr) {
    const std::optional<CudaArch> named = parse_cuda_gpu(given.arch);  // "9.0a" is sm_90a
    request.arch = named ? to_text(*named) : given.arch;
  }
  if (given.device.type == 0 && given.arch != nullptr) {
    request.backend = request.arch.starts_with("gfx") ? Backend::kRocm : Backend::kCuda;
    return {};
  }
  if (given.device.type != OPDOCK_CUDA && given.device.type != OPDOCK_ROCM) {
    return {OPDOCK_INVALID_ARGUMENT,
            "options.device: found " + to_text(given.device) +
                ", wanted a GPU, or type 0 with `arch` for an image alone"};
  }
  return module->aim_at(given.device);
}

}  // namespace
}  // namespace opdock

using namespace opdock;

opdock_status opdock_compile(opdock_runtime* runtime, const opdock_compile_options* options,
                             opdock_module** out, char* error, uint32_t error_size) {
  last_compile_reasons().clear();
  return guarded({error, error_size}, [&]() -> Status {
    if (runtime == nullptr) return null_argument("runtime");
    if (options == nullptr) return null_argument("options");
    if (out == nullptr) return null_argument("out");
    *out = nullptr;
    if (!OPDOCK_HAS(options, opdock_compile_options, arch)) {
      return {OPDOCK_INVALID_ARGUMENT,
              "options: found struct_size " + std::to_string(options->struct_size) +
                  ", wanted sizeof(opdock_compile_options), " + std::to_string(sizeof *options) +
                  "; set it before calling"};
    }
    auto module = std::make_unique<opdock_module>();
    module->runtime = runtime;
    Status done = read_options(*options, &module->request);
    if (done.ok()) done = choose_target(*options, module.get());
    std::vector<Reason> wrong;  // checked now, as without kernels nothing is compiled yet
    if (done.ok() && !check_request(module->request, &wrong)) {
      done = module->fail_for(std::move(wrong));
    }
    if (done.ok() && !module->request.kernels.empty()) done = module->compile();
    if (done.ok()) *out = module.release();
    return done;
  });
}

void opdock_module_free(opdock_module* module) {
  delete module;
}

opdock_status opdock_module_kernel(opdock_module* module, const char* name, opdock_kernel** out,
                                   char* error, uint32_t error_size) {
  last_compile_reasons().clear();
  return guarded({error, error_size}, [&]() -> Status {
    if (module == nullptr) return null_argument("module");
    if (name == nullptr) return null_argument("name");
    if (out == nullptr) return null_argument("out");
    if (module->driver == nullptr) {
      return {OPDOCK_INVALID_ARGUMENT,
              "kernel(\"" + std::string(name) +
                  "\"): found a module compiled for an architecture alone, wanted one for a "
                  "device; give options.device"};
    }
    const ForkAwareGuard guard(&module->lock);
    if (!guard) return refuse_within(*module);
    const auto known = module->kernels.find(std::string_view(name));
    if (known != module->kernels.end()) {
      *out = known->second;
      return {};
    }
    Status found = module->find(name, out);
    if (!found.ok()) return found;
    const NoFork no_fork;
    module->kernels[name] = *out;
    return found;
  });
}

opdock_status opdock_module_get_image(opdock_module* module, opdock_module_image* out, char* error,
                                      uint32_t error_size) {
  last_compile_reasons().clear();
  return guarded({error, error_size}, [&]() -> Status {
    if (module == nullptr) return null_argument("module");
    if (out == nullptr || !OPDOCK_HAS(out, opdock_module_image, log)) {
      return null_argument("out (with its struct_size)");
    }
    const ForkAwareGuard guard(&module->lock);
    if (!guard) return refuse_within(*module);
    if (module->image == nullptr) {
      if (Status compiled = module->compile(); !compiled.ok()) return compiled;
    }
    const CompiledImage& image = *module->image;
    *out = {out->struct_size,   image.from_cache ? 1u : 0u, image.bytes.data(), image.bytes.size(),
            image.arch.c_str(), image.maker.c_str(),        image.log.c_str()};
    return {};
  });
}

opdock_status opdock_compile_reasons_json(char** out, char* error, uint32_t error_size) {
  return report([] { return to_json(last_compile_reasons()); }, out, {error, error_size});
}

opdock_status opdock_add_compiler_folder(const char* folder, char* error, uint32_t error_size) {
  return guarded({error, error_size}, [&]() -> Status {
    if (folder == nullptr) return null_argument("folder");
    add_compiler_folder(folder);
    return {};
  });
}
