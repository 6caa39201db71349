// Step 2 of the chain: a plugin whose host part fits but which has no image for a GPU. The device
// source that it carries is compiled for exactly that GPU, cached and loaded.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "call/kernels.h"
#include "driver/driver.h"
#include "facts/machine.h"
#include "jit/compiler.h"

namespace opdock {

// What a plugin's image table says of its source, ready to be compiled for `arch`. plugin: name and
// version, for messages. False and a reason (jit-no-source) if it carries none or names no kernel.
bool packed_request(const std::string& plugin, std::span<const ImageRow> rows, Backend backend,
                    const std::string& arch, CompileRequest* out, std::vector<Reason>* reasons);

// The architecture to compile for on this GPU: "sm_90a", with the suffix where there is one, as the
// image is for no other GPU; on AMD the GPU's own name.
std::string exact_arch(const Gpu& gpu);

// Compiles for, loads on and returns the kernels of, `device`. rows: all of the plugin's table, of
// every kind and backend. gpu: that device, as its driver describes it. A cached image that does
// not load is set aside and compiled anew, once. NULL and reasons (stages jit, cache, device) if it
// cannot be done; notices on success too. Creates the device's primary context. Blocking; any
// thread; a plugin that is asked for twice at once is compiled once.
std::unique_ptr<Kernels> jit_kernels(const std::string& plugin, std::span<const ImageRow> rows,
                                     Driver* driver, opdock_device device, const Gpu& gpu,
                                     const JitContext& context, std::vector<Reason>* reasons);

// The same for any request whose architecture is set: loads its image on `device` and looks for its
// first kernel. *image: what was loaded.
std::unique_ptr<Kernels> load_compiled(const CompileRequest& request, Driver* driver,
                                       opdock_device device, const JitContext& context,
                                       CompiledImagePtr* image, std::vector<Reason>* reasons);

}  // namespace opdock
