// From an op's name to code that runs on a device, over the runtime's catalogue.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "api/runtime.h"
#include "call/function.h"

namespace opdock {

// The functions of one runtime. Any thread.
class FunctionTable : public Resolver {
 public:
  explicit FunctionTable(opdock_runtime* runtime);
  ~FunctionTable() override;

  // opdock_get_function.
  opdock_status get(const std::string& name, opdock_function** out, std::string* problem);

  Target* resolve(const opdock_function& function, opdock_device device, opdock_status* status,
                  std::string* problem) override;
  std::string doc(const opdock_function& function) override;

 private:
  opdock_runtime* runtime_;
  std::mutex mutex_;
  std::unordered_map<std::string, std::unique_ptr<opdock_function>> functions_;
};

}  // namespace opdock
